//! Instructions of a benchmark, counted by callgrind. Unlike times, counts are the same in every run.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};

/// Runs this program again as `--child CASE` in callgrind, and counts the instructions within the functions whose names
/// contain `function`. The child prints the number of times for which it measures. Returns the instructions of each.
///
/// # Errors
/// Returns an error if callgrind is missing or fails, or if it does not meet the function.
pub fn count(case: &str, function: &str) -> Result<f64> {
    let out = Scratch::new();
    let mut callgrind = Command::new("valgrind");
    callgrind.args(["--tool=callgrind", "--quiet", &format!("--toggle-collect=*{function}*")]);
    callgrind.arg(format!("--callgrind-out-file={}", out.0.display()));
    callgrind.arg(env::current_exe()?).args(["--child", case]).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = match callgrind.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("valgrind is missing; `cargo xtask setup` installs it")
        }
        output => output.context("cannot run valgrind")?,
    };
    ensure!(output.status.success(), "{case}: callgrind failed ({})", output.status);
    let times: f64 = String::from_utf8(output.stdout)?.trim().parse()?;
    let profile = fs::read_to_string(&out.0)?;
    let totals = profile.lines().find_map(|line| line.strip_prefix("totals: "));
    let instructions: f64 = totals.context("callgrind has written no total")?.trim().parse()?;
    ensure!(instructions > 0.0, "callgrind has not found the measured function");
    Ok(instructions / times)
}

/// A file that is removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        Self(env::temp_dir().join(format!("shoal-instructions-{}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If it cannot be removed, it stays in the directory for temporary files.
        let _ = fs::remove_file(&self.0);
    }
}
