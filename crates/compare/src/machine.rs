//! The machine: its hardware, its clock, and the commit that `shoal-lab` was built from.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Instant;

use crate::result::Machine;

/// Returns the current time, to measure durations. No other part of the comparison reads the clock.
#[expect(clippy::disallowed_methods, reason = "a comparison measures real programs in real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns the current time as RFC 3339, in the time zone of the machine and whole seconds.
pub(crate) fn timestamp() -> String {
    jiff::Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
}

/// Returns the current time as a part of a folder name. The names sort by time.
pub(crate) fn folder_stamp() -> String {
    jiff::Zoned::now().strftime("%Y-%m-%d-%H%M").to_string()
}

impl Machine {
    pub(crate) fn this() -> Self {
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let uname = rustix::system::uname();
        let kernel = [uname.sysname(), uname.release(), uname.machine()];
        Self {
            processor: field(&processors, "model name").unwrap_or("unknown").to_owned(),
            processors: thread::available_parallelism().map_or(1, Into::into),
            memory_bytes: memory_bytes(&memory).unwrap_or_default(),
            kernel: kernel.map(|part| part.to_string_lossy()).join(" "),
            virtualised: virtualised(&processors),
        }
    }
}

/// Returns the commit of the repository around the current folder, marked if files were modified; "unknown" without one.
pub(crate) fn commit() -> String {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=-modified"]);
    let output = git.output().ok().filter(|output| output.status.success());
    let text = output.and_then(|output| String::from_utf8(output.stdout).ok());
    text.map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| "unknown".into())
}

/// Returns the firmware's name of the hypervisor, if the processor reports that there is one.
fn virtualised(processors: &str) -> Option<String> {
    let flags = field(processors, "flags").or_else(|| field(processors, "Features"))?;
    if !flags.split(' ').any(|flag| flag == "hypervisor") {
        return None;
    }
    let firmware = ["sys_vendor", "product_name"].map(|name| {
        let text = fs::read_to_string(format!("/sys/class/dmi/id/{name}")).unwrap_or_default();
        text.trim().to_owned()
    });
    let known: Vec<String> = firmware.into_iter().filter(|text| !text.is_empty()).collect();
    Some(if known.is_empty() { "of an unknown kind".to_owned() } else { known.join(" ") })
}

fn memory_bytes(text: &str) -> Option<u64> {
    let kib: u64 = field(text, "MemTotal")?.split(' ').next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Returns the value after `name` and a colon, from the first line with that name.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let machine = Machine::this();
        assert!(machine.processors > 0 && machine.memory_bytes > 1 << 20, "{machine:?}");
        assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "MemTotalOther: 1 kB\nMemTotal:   24 kB\n";
        assert_eq!(memory_bytes(text), Some(24 * 1024));
        assert_eq!(virtualised("flags\t: fpu sse\n"), None);
        assert!(virtualised("flags\t: fpu hypervisor sse\n").is_some());
    }
}
