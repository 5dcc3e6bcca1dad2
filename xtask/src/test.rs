//! All tests. What a test says about being skipped is not lost: in CI it is an error, elsewhere a warning.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};

use crate::setup;
use crate::shell::{cargo, in_ci, show, title};

pub(crate) fn run() -> Result<()> {
    setup::run()?;
    run_prepared()
}

/// The tests, on a machine that has what they need.
pub(crate) fn run_prepared() -> Result<()> {
    title("tests");
    // The harness of the tests shows what passed tests print only if it is asked to; skipped tests pass.
    let mut command = cargo(&["test", "--workspace", "--locked", "--no-fail-fast", "--", "--show-output"]);
    show(&command);
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot run cargo")?;
    let output = BufReader::new(child.stdout.take().context("cargo has a stdout")?);
    let mut filter = Filter::default();
    for line in output.split(b'\n') {
        let line = line.context("cannot read the output of the tests")?;
        let line = String::from_utf8_lossy(&line);
        if filter.is_shown(&line) {
            println!("{line}");
        }
    }
    let status = child.wait().context("cannot wait for cargo")?;
    let skipped = report_skipped(&filter.skipped);
    ensure!(status.success(), "there are failed tests, see above ({status})");
    skipped
}

fn report_skipped(skipped: &[String]) -> Result<()> {
    if skipped.is_empty() {
        return Ok(());
    }
    eprintln!("\nTests were skipped:");
    skipped.iter().for_each(|line| eprintln!("  {line}"));
    if in_ci() {
        bail!("CI runs every test: it has to provide what they lack");
    }
    Ok(())
}

/// Leaves out what passed tests print, and keeps what skipped tests say.
#[derive(Default)]
struct Filter {
    in_output_of_passed: bool,
    skipped: Vec<String>,
}

impl Filter {
    fn is_shown(&mut self, line: &str) -> bool {
        if line == "successes:" {
            self.in_output_of_passed = true;
        } else if line == "failures:" || line.starts_with("test result:") {
            self.in_output_of_passed = false;
        }
        let ignored = line.starts_with("test ") && line.contains("... ignored");
        if ignored || line.to_ascii_lowercase().starts_with("skipped") {
            self.skipped.push(line.to_owned());
        }
        !self.in_output_of_passed
    }
}

#[cfg(test)]
mod tests {
    use super::Filter;

    #[test]
    fn output_of_passed_tests_is_left_out_but_skips_are_kept() {
        let output = "running 3 tests\n\
                      test a ... ok\n\
                      test b ... FAILED\n\
                      test c ... ignored, too slow\n\
                      \n\
                      successes:\n\
                      ---- a stdout ----\n\
                      skipped: no io_uring\n\
                      failures:\n\
                      ---- b stdout ----\n\
                      it broke\n\
                      test result: FAILED. 1 passed; 1 failed; 1 ignored";
        let mut filter = Filter::default();
        let shown: Vec<&str> = output.lines().filter(|line| filter.is_shown(line)).collect();
        assert!(
            shown.contains(&"it broke") && shown.last().is_some_and(|last| last.starts_with("test result:"))
        );
        assert!(!shown.contains(&"skipped: no io_uring"));
        assert_eq!(filter.skipped, ["test c ... ignored, too slow", "skipped: no io_uring"]);
    }
}
