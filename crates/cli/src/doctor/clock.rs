//! The clock, which certificates, tokens, and connection ids that trackers share depend on.
//!
//! The only place of the crate with `unsafe`: it passes a struct to the kernel, which no library wraps.
#![allow(unsafe_code, reason = "the system call has no safe interface")]

use std::io;

use super::machine::Machine;
use crate::finding::Finding;

const SUBJECT: &str = "clock";

pub(super) fn examine(machine: &Machine) -> Finding {
    match (machine.is_synchronised)() {
        Ok(true) => Finding::ok(SUBJECT, "the clock is synchronised"),
        Ok(false) => Finding::advice(
            SUBJECT,
            "the clock is not synchronised: certificates, tokens and shared connection ids need the right time",
            "apt install systemd-timesyncd, or another NTP client; in a virtual machine or a container, look at its host",
        ),
        Err(error) => Finding::advice(
            SUBJECT,
            format!("the kernel does not tell whether the clock is synchronised: {error}"),
            "timedatectl",
        ),
    }
}

/// Returns whether the kernel holds the clock for synchronised (adjtimex(2), `STA_UNSYNC`).
pub(super) fn is_synchronised() -> io::Result<bool> {
    // SAFETY: all fields of a timex are numbers, for which zero is a value.
    let mut question: libc::timex = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes into the struct that this function borrows, and `modes` is 0, so that it changes nothing.
    let state = unsafe { libc::adjtimex(&raw mut question) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(state != libc::TIME_ERROR && question.status & libc::STA_UNSYNC == 0)
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::made_up;
    use super::*;
    use crate::finding::Level;

    #[test]
    fn a_clock_without_a_server_is_told() {
        let mut made = made_up(&[]);
        assert_eq!(examine(&made.machine).level, Level::Ok);
        made.machine.is_synchronised = || Ok(false);
        let finding = examine(&made.machine);
        assert!(finding.level == Level::Advice && finding.action.unwrap().contains("timesyncd"));
        // Any host answers.
        is_synchronised().unwrap();
    }
}
