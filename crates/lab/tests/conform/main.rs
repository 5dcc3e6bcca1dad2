//! `shoal-lab conform` from outside: what it says of another tracker, what it refuses, and its exit codes.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

mod command_line;
mod opentracker;

use std::process::{Command, Output};

/// Runs it to its end.
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
