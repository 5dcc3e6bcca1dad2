//! The kernel switches that let the program ask for routes.
//!
//! The program takes a frame only if the kernel would send the reply back the same way, and asks the kernel for that
//! (`bpf_fib_lookup`). The kernel answers only for packets from an interface that forwards. Packets of the host itself
//! count as coming from the loopback interface, so forwarding is switched on there. Nothing else changes: packets that
//! arrive there are for this host, and the other interfaces have their own switches.
//!
//! A positive answer is cached for a second, in 256 KiB for each processor and interface, because a look-up takes 80
//! ns, and 190 ns over IPv6. Announces and scrapes are checked like connect requests: an id shows that its owner was
//! reached, but not that a reply to this frame would be.
//!
//! The alternative was a list of routes and neighbours in user space. It would be a second routing table that lags
//! behind the kernel's. A look-up takes as long as all other work of the program, so routes are cached under their
//! whole key: source, MAC address, segment, and a hash of the address that was looked up. Each processor has its own
//! memory, since two processors that write one entry could make up a route. Refusals are not cached: the socket path,
//! which follows them, costs far more.

use std::{fs, io};

/// The switches, one for each family.
pub const SWITCHES: [&str; 2] = ["net.ipv4.conf.lo.forwarding", "net.ipv6.conf.lo.forwarding"];

/// The error that the kernel would not answer questions about routes.
#[derive(Debug, thiserror::Error)]
#[error(
    "the XDP program asks the kernel for routes, which takes `{switch} = 1`, and this process cannot set it ({reason}): set it in \
     a file of /etc/sysctl.d, or for a container at its start"
)]
pub struct SwitchError {
    switch: &'static str,
    reason: io::Error,
}

/// Lets programs ask for routes in this network namespace, until the next reboot. Returns the switches that were off.
/// The error names the switch that cannot be turned on.
pub fn permit_lookups() -> Result<Vec<&'static str>, SwitchError> {
    let mut changed = Vec::new();
    for switch in SWITCHES {
        let path = format!("/proc/sys/{}", switch.replace('.', "/"));
        let on = match fs::read_to_string(&path) {
            // A kernel without the family receives no frames of it either.
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
