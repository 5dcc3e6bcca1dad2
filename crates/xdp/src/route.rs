//! The switches of the kernel that let the program ask for routes.
//!
//! The program takes a frame only if the kernel would send the reply back to where it came from, and asks the kernel for that
//! (`bpf_fib_lookup`). The kernel answers only about packets from an interface that forwards. Packets of the host itself count as
//! coming from the loopback interface, so that one is made to forward. Nothing else changes: what arrives there is for this host,
//! and the other interfaces have switches of their own.
//!
//! The answer that there is a way back is retained for a second, in 256 KiB for each processor and interface, because a look-up
//! takes 80 ns, and 190 over IPv6. Announces and scrapes are checked as well as requests for connection ids: an id shows that its
//! owner was reached, but not that a reply to this frame would be.
//!
//! A list of routes and neighbours in user space was the alternative. It would be a second routing table that lags
//! behind the kernel's. A look-up takes as long as all the rest of the program, so routes are retained with their whole
//! key: source, MAC address, segment, and a hash of the address that was asked. They lie in memory of each processor,
//! since two processors that write one entry could make up a route. Refusals are not retained: what follows them, the
//! socket path, costs far more.

use std::{fs, io};

/// The switches, one for each family.
const SWITCHES: [&str; 2] = ["net.ipv4.conf.lo.forwarding", "net.ipv6.conf.lo.forwarding"];

/// The error that the kernel would answer no question about routes.
#[derive(Debug, thiserror::Error)]
#[error(
    "the XDP program asks the kernel for routes, which takes `{switch} = 1`, and this process cannot set it ({reason}): set it in \
     a file of /etc/sysctl.d, or for a container at its start"
)]
pub struct SwitchError {
    switch: &'static str,
    reason: io::Error,
}

/// Lets programs ask for routes in this network namespace, until it is rebooted. Returns the switches that were off.
///
/// # Errors
/// Returns the switch that is off and cannot be turned on.
pub fn permit_lookups() -> Result<Vec<&'static str>, SwitchError> {
    let mut changed = Vec::new();
    for switch in SWITCHES {
        let path = format!("/proc/sys/{}", switch.replace('.', "/"));
        let on = match fs::read_to_string(&path) {
            // A kernel without the family has no frames of it either.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read.map(|value| value.trim_end() != "0"),
        };
        match on.and_then(|is_on| if is_on { Ok(false) } else { fs::write(&path, "1").map(|()| true) }) {
            Ok(has_changed) => changed.extend(has_changed.then_some(switch)),
            Err(reason) => return Err(SwitchError { switch, reason }),
        }
    }
    Ok(changed)
}
