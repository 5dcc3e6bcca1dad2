//! Statistics that the kernel keeps of this process, for the customary `process_…` metrics.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// The statistics of the process at one moment. An unreadable value is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Account {
    pub(crate) cpu_s: f64,
    pub(crate) resident_bytes: u64,
    pub(crate) virtual_bytes: u64,
    pub(crate) threads: u64,
    pub(crate) descriptors: u64,
    pub(crate) descriptors_max: u64,
}

pub(crate) fn account() -> Account {
    let descriptors = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    Account {
        descriptors: descriptors as u64,
        descriptors_max: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        ..usage()
    }
}

/// Returns the current statistics without file descriptors, each of which takes time.
pub(crate) fn usage() -> Account {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    parse_stat(&stat, clock_ticks_per_second(), page_size() as u64).unwrap_or_default()
}

/// Returns the resident memory of the process, or 0 if it cannot be read (proc_pid_statm(5)).
pub fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<u64> = statm.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * page_size() as u64
}

/// Parses the needed fields of `/proc/self/stat`, by their numbers in proc_pid_stat(5).
fn parse_stat(stat: &str, ticks_per_second: u64, page_bytes: u64) -> Option<Account> {
    // Field 2 is the name in parentheses. It may itself contain spaces and parentheses.
    let (_, after_name) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    #[expect(clippy::cast_precision_loss, reason = "the error is one clock tick in a thousand years")]
    let cpu_s = (field(14)? + field(15)?) as f64 / ticks_per_second as f64;
    Some(Account {
        cpu_s,
        threads: field(20)?,
        virtual_bytes: field(23)?,
        resident_bytes: field(24)? * page_bytes,
        ..Account::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_stat_line() {
        let stat = "42 (a b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 13 14 15 16 3 18 19 1000000 25 22\n";
        let expected = Account {
            cpu_s: 3.0,
            threads: 3,
            virtual_bytes: 1_000_000,
            resident_bytes: 102_400,
            ..Account::default()
        };
        assert_eq!(parse_stat(stat, 100, 4096), Some(expected));
        assert_eq!(parse_stat("", 100, 4096), None);
    }

    #[test]
    fn this_process_has_an_account() {
        let account = account();
        assert!(account.resident_bytes > 100_000 && account.threads > 0, "{account:?}");
        assert!(account.descriptors > 2 && account.descriptors_max > 2, "{account:?}");
    }
}
