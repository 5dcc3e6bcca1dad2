//! Features of the kernel: io_uring, and the two parts of the sandbox.

use shoal_config::{Config, DatagramBackend};
use shoal_net::Backend;

use super::machine::Machine;
use crate::finding::Finding;

const SUBJECT: &str = "kernel";

/// The first version with Landlock.
const LANDLOCK: (u32, u32) = (5, 13);

pub(super) fn examine(machine: &Machine, config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some((major, minor)) = machine.kernel() {
        findings.push(Finding::ok(SUBJECT, format!("Linux {major}.{minor}")));
    }
    if config.udp.io == DatagramBackend::Uring
        && let Err(unsupported) = (machine.probe)(Backend::Uring)
    {
        let action = "set udp.io to \"auto\", or permit it (sysctl kernel.io_uring_disabled=0; in a container its seccomp profile)";
        findings.push(Finding::problem(SUBJECT, unsupported.to_string(), action));
    }
    findings.extend(config.process.landlock.then(|| landlock(machine)).flatten());
    if config.process.seccomp && machine.kernel().is_some() {
        findings.push(match machine.text("proc/sys/kernel/seccomp/actions_avail") {
            Some(_) => Finding::ok(SUBJECT, "seccomp limits the system calls of the tracker"),
            None => Finding::advice(
                SUBJECT,
                "this kernel has no seccomp, so system calls are not limited",
                "use a kernel with CONFIG_SECCOMP_FILTER; the tracker also serves without it",
            ),
        });
    }
    findings
}

/// Judges Landlock, by the list of security modules if it can be read.
fn landlock(machine: &Machine) -> Option<Finding> {
    let is_listed = machine
        .text("sys/kernel/security/lsm")
        .map(|modules| modules.split(',').any(|module| module == "landlock"));
    let absent = |why: &str, action: &str| {
        let found = format!("{why}, so the files of the tracker are not limited");
        Some(Finding::advice(SUBJECT, found, format!("{action}; the tracker also serves without it")))
    };
    match (machine.kernel()?, is_listed) {
        (version, _) if version < LANDLOCK => absent("Landlock came with Linux 5.13", "use a newer kernel"),
        (_, Some(false)) => {
            absent("Landlock is not among the security modules", "boot with landlock in lsm=")
        }
        (_, Some(true)) => Some(Finding::ok(SUBJECT, "Landlock limits the files of the tracker")),
        (_, None) => Some(Finding::advice(
            SUBJECT,
            "Landlock cannot be seen here",
            "look at the line \"sandbox\" in the log of the tracker, which tells whether its files are limited",
        )),
    }
}

#[cfg(test)]
mod tests {
    use shoal_net::Unsupported;

    use super::super::machine::tests::{config, made_up};
    use super::*;
    use crate::finding::Level;

    #[test]
    fn io_uring_matters_if_it_is_configured() {
        let mut made = made_up(&[]);
        made.machine.probe = |backend| Err(Unsupported { backend, reason: "forbidden".to_owned() });
        assert!(examine(&made.machine, &config(&[])).is_empty());
        let findings = examine(&made.machine, &config(&[("SHOAL_UDP_IO", "uring")]));
        assert_eq!(findings[0].level, Level::Problem);
        assert!(
            findings[0].found.contains("forbidden")
                && findings[0].action.as_ref().unwrap().contains("udp.io")
        );
    }

    #[test]
    fn a_sandbox_that_the_kernel_does_not_have_is_told() {
        let made = made_up(&[
            ("proc/sys/kernel/osrelease", "5.10.0"),
            ("proc/sys/kernel/seccomp/actions_avail", "errno"),
        ]);
        let levels =
            || examine(&made.machine, &config(&[])).iter().map(|finding| finding.level).collect::<Vec<_>>();
        assert_eq!(levels(), [Level::Ok, Level::Advice, Level::Ok]);
        made.write("proc/sys/kernel/osrelease", "6.1.0");
        made.write("sys/kernel/security/lsm", "lockdown,capability,landlock,yama");
        assert_eq!(levels(), [Level::Ok; 3]);
        made.write("sys/kernel/security/lsm", "lockdown,capability");
        std::fs::remove_file(made.folder.path().join("proc/sys/kernel/seccomp/actions_avail")).unwrap();
        assert_eq!(levels(), [Level::Ok, Level::Advice, Level::Advice]);
    }
}
