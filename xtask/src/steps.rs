//! The steps of a task, and the duration of each.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;

/// The steps of a task that have ended.
#[derive(Default)]
pub(crate) struct Steps(Vec<Step>);

struct Step {
    name: &'static str,
    wall: Duration,
    failed: bool,
}

impl Steps {
    /// Runs a step and prints its duration.
    pub(crate) fn run(&mut self, name: &'static str, step: impl FnOnce() -> Result<()>) -> Result<()> {
        let start = now();
        let result = step();
        let step = Step { name, wall: now() - start, failed: result.is_err() };
        eprintln!("<== {step}");
        self.0.push(step);
        result
    }

    /// Adds the steps that ran beside these.
    pub(crate) fn append(&mut self, mut beside: Self) {
        self.0.append(&mut beside.0);
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, wall, failed } = self;
        let outcome = if *failed { "  failed" } else { "" };
        write!(f, "{name:<16} {:>8.1} s{outcome}", wall.as_secs_f64())
    }
}

#[expect(clippy::disallowed_methods, reason = "the duration of a step is the result")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn all_steps_are_listed() {
        let step = |name, wall_s, failed| Step { name, wall: Duration::from_secs(wall_s), failed };
        let mut steps = Steps(vec![step("build", 90, false)]);
        steps.append(Steps(vec![step("lints", 5, true)]));
        let expected = "build                90.0 s\nlints                 5.0 s  failed\n";
        assert_eq!(steps.to_string(), expected);
    }

    #[test]
    fn a_step_that_fails_is_listed_too() {
        let mut steps = Steps::default();
        steps.run("good", || Ok(())).unwrap();
        assert_eq!(steps.run("bad", || bail!("reason")).unwrap_err().to_string(), "reason");
        assert_eq!(steps.0.iter().map(|step| step.failed).collect::<Vec<_>>(), [false, true]);
    }
}
