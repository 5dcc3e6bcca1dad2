//! `shoal-lab conform` from outside: its report on another tracker, invalid command lines, and exit codes.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

mod command_line;
mod opentracker;

use std::process::{Command, Output};

fn conform(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal-lab"));
    command.arg("conform").args(arguments).env_remove("NO_COLOR").output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
