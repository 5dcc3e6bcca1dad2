//! Errors of opening sockets, explained to the operator.

use std::io;
use std::net::SocketAddr;

use rustix::io::Errno;

use super::SOCKETS_MAX;

/// The error that the sockets could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// There are more addresses than a worker can serve.
    #[error("{0} addresses to listen on are too many: at most {SOCKETS_MAX} are served")]
    TooMany(usize),
    /// The event descriptor that wakes a worker could not be created.
    #[error("cannot create the event descriptor of a worker: {0}")]
    Waker(#[source] io::Error),
    /// An address cannot be listened on.
    #[error("cannot listen on UDP {addr}: {}", explain_io(*addr, doing, source))]
    Address {
        /// The address.
        addr: SocketAddr,
        /// The call or option that failed.
        doing: &'static str,
        /// The error of the call.
        source: io::Error,
    },
}

impl BindError {
    /// Returns whether this host has no addresses of the family at all, for example because IPv6 is switched off. A
    /// program may then continue without an address that it only listens on by default.
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
