//! Memory: the ceiling of the tracker against what the machine and its control group have, and huge pages.

use shoal_config::{Auto, ByteSize, Config};

use super::machine::Machine;
use super::sockets::Process;
use crate::finding::Finding;
use shoal_runtime::{advice, machine as host};

const SUBJECT: &str = "memory";

pub(super) fn examine(machine: &Machine, config: &Config, tracker: Option<&Process>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = ceiling(machine, config, tracker).into_iter().collect();
    match host::huge_pages(machine.root()).as_deref() {
        Some("never") => {
            findings.push(Finding::advice(SUBJECT, advice::HUGE_PAGES_OFF, advice::PERMIT_HUGE_PAGES))
        }
        Some(mode) => findings.push(Finding::ok(SUBJECT, format!("huge pages: {mode}"))),
        None => {}
    }
    findings
}

/// Judges memory.max. A tracker that reaches the limit of its control group is killed, and one that reaches the memory of
/// the machine may be.
fn ceiling(machine: &Machine, config: &Config, tracker: Option<&Process>) -> Option<Finding> {
    let process = tracker.map_or_else(|| "self".to_owned(), |tracker| tracker.number.to_string());
    let limits = [
        (host::memory_bytes(machine.root()), "of this machine"),
        (host::cgroup_bytes(machine.root(), &process), "of the control group"),
    ];
    let known = limits.into_iter().filter_map(|(bytes, whose)| Some((bytes?, whose)));
    let (available, whose) = known.min_by_key(|(bytes, _)| *bytes)?;
    let (shown, usual) = (mib(available), mib(available / 4 * 3));
    Some(match config.memory.max {
        Auto::Auto => Finding::ok(
            SUBJECT,
            format!("memory.max is three quarters of the memory {whose}: {usual} of {shown}"),
        ),
        Auto::Set(max) if max.0 > available => Finding::problem(
            SUBJECT,
            format!(
                "memory.max = {max} exceeds the memory {whose} ({shown}): the kernel kills the tracker before it is full"
            ),
            format!(
                "set memory.max to {usual} or \"auto\", or raise the limit (MemoryMax= in a systemd unit)"
            ),
        ),
        Auto::Set(max) if max.0 > available / 4 * 3 => Finding::advice(
            SUBJECT,
            format!(
                "memory.max = {max} leaves less than a quarter of the memory {whose} ({shown}) to the kernel's sockets"
            ),
            format!("set memory.max to {usual} or \"auto\""),
        ),
        Auto::Set(max) => Finding::ok(SUBJECT, format!("memory.max = {max} of {shown}, the memory {whose}")),
    })
}

fn mib(bytes: u64) -> ByteSize {
    ByteSize::mib(bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::{config, made_up};
    use super::*;
    use crate::finding::Level;

    #[test]
    fn the_ceiling_must_fit_the_machine_and_the_group_of_the_tracker() {
        let made = made_up(&[
            ("proc/meminfo", "MemTotal:       2097152 kB\n"),
            ("proc/self/cgroup", "0::/user\n"),
            ("proc/7/cgroup", "0::/system/shoal\n"),
            ("sys/fs/cgroup/system/shoal/memory.max", "1073741824\n"),
        ]);
        let tracker = Process { number: 7, name: "shoal".to_owned() };
        for (max, tracker, level) in [
            ("auto", None, Level::Ok),
            ("1536MiB", None, Level::Ok),
            ("1600MiB", None, Level::Advice),
            ("3GiB", None, Level::Problem),
            ("1536MiB", Some(&tracker), Level::Problem),
        ] {
            let finding = ceiling(&made.machine, &config(&[("SHOAL_MEMORY_MAX", max)]), tracker).unwrap();
            assert_eq!(finding.level, level, "{finding:?}");
        }
    }

    #[test]
    fn huge_pages_that_are_off_come_with_the_command() {
        let made = made_up(&[("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]")]);
        let findings = examine(&made.machine, &config(&[]), None);
        assert!(findings[0].action.as_ref().unwrap().starts_with("echo madvise >"), "{findings:?}");
    }
}
