//! Why a tracker on the other end of connections says nothing, for people.

use std::net::SocketAddr;
use std::time::Duration;

use crate::tally::Tally;

/// The most likely reason, by what was counted of connections. `silence` is how long the tracker has said nothing,
/// `timeout` how long each answer is waited for.
pub(crate) fn why_silent(
    scheme: &str,
    server: SocketAddr,
    tally: &Tally,
    silence: Duration,
    timeout: Duration,
) -> String {
    let connections = tally.connections.as_ref();
    let failures = connections.map(|connections| connections.failures).unwrap_or_default();
    let first = connections.and_then(|connections| connections.first_fault.as_deref()).unwrap_or_default();
    if tally.replies() > 0 {
        let fault = if first.is_empty() { String::new() } else { format!(" ({first})") };
        return format!("{scheme} {server} fell silent: no reply for {:.1} s{fault}", silence.as_secs_f64());
    }
    if failures.refused > 0 {
        return format!("nobody listens at TCP {server}: connection refused");
    }
    if failures.tls > 0 {
        return format!("no TLS can be agreed on with {server}: {first}");
    }
    if failures.total() > failures.timeout {
        return format!("{scheme} {server} cannot be spoken to: {first}");
    }
    format!(
        "{scheme} {server} does not answer within {timeout:?}: does a tracker speak {scheme} there, does a firewall drop the \
         packets, or does no way lead back to the source addresses?"
    )
}
