//! Why the sockets could not be opened, in words for the operator.

use std::io;
use std::net::SocketAddr;

use rustix::io::Errno;

use super::SOCKETS_MAX;

/// The sockets could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// More addresses than a worker serves.
    #[error("{0} addresses to listen on are too many: at most {SOCKETS_MAX} are served")]
    TooMany(usize),
    /// The event descriptor that wakes a worker could not be made.
    #[error("cannot make the event descriptor of a worker: {0}")]
    Waker(#[source] io::Error),
    /// One address cannot be listened on.
    #[error("cannot listen on UDP {addr}: {}", explain_io(*addr, doing, source))]
    Address {
        /// Which address.
        addr: SocketAddr,
        /// The call or option that failed.
        doing: &'static str,
        /// How it failed.
        source: io::Error,
    },
}

impl BindError {
    /// Whether this host lacks the address family altogether, as where IPv6 is switched off, so that a program that
    /// listens there by default and not by the operator's wish may go on without.
    #[must_use]
    pub fn is_family_missing(&self) -> bool {
        let Self::Address { addr, source, .. } = self else { return false };
        match Errno::from_io_error(source) {
            Some(Errno::AFNOSUPPORT) => true,
            // With net.ipv6.conf.all.disable_ipv6 there are sockets, but not even the wildcard address.
            Some(Errno::ADDRNOTAVAIL) => addr.ip().is_unspecified(),
            _ => false,
        }
    }

    pub(super) fn at(addr: SocketAddr, doing: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::Address { addr, doing, source: errno.into() }
    }
}

fn explain_io(addr: SocketAddr, doing: &str, source: &io::Error) -> String {
    Errno::from_io_error(source)
        .map_or_else(|| format!("{doing}: {source}"), |errno| explain(addr, doing, errno))
}

/// What it means that an address cannot be listened on.
pub(crate) fn explain(addr: SocketAddr, doing: &str, errno: Errno) -> String {
    match errno {
        Errno::ADDRINUSE => {
            format!("port {} is in use by another program or another copy of this one", addr.port())
        }
        Errno::ADDRNOTAVAIL => format!("this host does not have the address {}", addr.ip()),
        Errno::ACCESS => format!("port {} needs the capability CAP_NET_BIND_SERVICE", addr.port()),
        Errno::AFNOSUPPORT => format!("this host has no IPv{}", if addr.is_ipv4() { 4 } else { 6 }),
        _ => format!("{doing}: {errno}"),
    }
}
