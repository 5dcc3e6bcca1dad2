//! The steps of a task, and the duration of each.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// The steps of a task that have ended.
#[derive(Default)]
pub(crate) struct Steps(Vec<Step>);

struct Step {
    name: &'static str,
    wall: Duration,
    /// The CPU time of the processes that the step started and waited for.
    cpu: Duration,
    failed: bool,
}

impl Steps {
    /// Runs a step and prints its duration.
    pub(crate) fn run(&mut self, name: &'static str, step: impl FnOnce() -> Result<()>) -> Result<()> {
        let (start, cpu_before) = (now(), cpu_of_children());
        let result = step();
        let cpu = cpu_of_children().saturating_sub(cpu_before);
        let step = Step { name, wall: now() - start, cpu, failed: result.is_err() };
        eprintln!("<== {step}");
        self.0.push(step);
        result
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = |of: fn(&Step) -> Duration| self.0.iter().map(of).sum();
        let total =
            Step { name: "all", wall: total(|step| step.wall), cpu: total(|step| step.cpu), failed: false };
        self.0.iter().chain([&total]).try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, wall, cpu, failed } = self;
        let (wall_s, cpu_s) = (wall.as_secs_f64(), cpu.as_secs_f64());
        let outcome = if *failed { "  failed" } else { "" };
        write!(f, "{name:<14} {wall_s:>8.1} s {cpu_s:>8.1} s of CPU{outcome}")
    }
}

#[expect(clippy::disallowed_methods, reason = "the duration of a step is the result")]
fn now() -> Instant {
    Instant::now()
}

/// Returns the CPU time of all processes that this one, or one of them, has waited for.
fn cpu_of_children() -> Duration {
    let duration = |time: TimeVal| {
        let seconds = Duration::from_secs(time.tv_sec().try_into().unwrap_or_default());
        seconds + Duration::from_micros(time.tv_usec().try_into().unwrap_or_default())
    };
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN);
    usage.map_or(Duration::ZERO, |usage| duration(usage.user_time()) + duration(usage.system_time()))
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn steps_are_listed_with_their_sums() {
        let step = |name, wall_s, cpu_s| {
            let [wall, cpu] = [wall_s, cpu_s].map(Duration::from_secs);
            Step { name, wall, cpu, failed: name == "tests" }
        };
        let steps = Steps(vec![step("lints", 90, 130), step("tests", 5, 1)]);
        let expected = "\
lints              90.0 s    130.0 s of CPU
tests               5.0 s      1.0 s of CPU  failed
all                95.0 s    131.0 s of CPU
";
        assert_eq!(steps.to_string(), expected);
    }

    #[test]
    fn a_step_that_fails_is_listed_too() {
        let mut steps = Steps::default();
        steps.run("good", || Ok(())).unwrap();
        assert_eq!(steps.run("bad", || bail!("reason")).unwrap_err().to_string(), "reason");
        assert_eq!(steps.0.iter().map(|step| step.failed).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn the_cpu_time_of_a_child_is_counted() {
        let before = cpu_of_children();
        let busy = "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done";
        assert!(std::process::Command::new("sh").args(["-c", busy]).status().unwrap().success());
        assert!(cpu_of_children() > before);
    }
}
