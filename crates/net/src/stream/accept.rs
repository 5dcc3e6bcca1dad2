//! Accepts connections, and classifies errors of accepting.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use shoal_base::transport::stream::Remote;

use super::listen::StreamListener;

/// Pause after a failed accept, for example if there are no free descriptors and no idle connection to close.
const PAUSE_MS: u64 = 100;

/// Whether connections are being accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accepting {
    Active,
    /// Not before this time.
    Paused {
        until_ms: u64,
    },
    /// No more connections are accepted.
    Stopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AcceptFailure {
    /// The connection ended before it was accepted, or through a network error (`accept(2)`, "Error handling").
    Peer,
    /// There are no descriptors or no memory for more.
    NoResources,
    /// Something prevents all connections, for example a security policy. It may pass.
    Blocked,
    /// A fault in this program or host that would only repeat.
    Host,
}

impl Accepting {
    pub(super) const fn pause(now_ms: u64) -> Self {
        Self::Paused { until_ms: now_ms + PAUSE_MS }
    }

    /// Returns whether the pause is over, if this is one.
    pub(super) const fn is_due(self, now_ms: u64) -> bool {
        matches!(self, Self::Paused { until_ms } if until_ms <= now_ms)
    }
}

impl AcceptFailure {
    pub(super) const fn of(errno: Errno) -> Self {
        match errno {
            Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => Self::NoResources,
            Errno::BADF | Errno::FAULT | Errno::INVAL | Errno::NOTSOCK => Self::Host,
            // `accept(2)`, "Error handling": these errors belong to a connection that is gone. The next one may
            // succeed.
            Errno::CONNABORTED | Errno::CONNRESET | Errno::NOTCONN | Errno::INTR | Errno::PROTO => Self::Peer,
            Errno::NETDOWN | Errno::NETUNREACH | Errno::NONET | Errno::NOPROTOOPT => Self::Peer,
            Errno::HOSTDOWN | Errno::HOSTUNREACH | Errno::OPNOTSUPP | Errno::TIMEDOUT => Self::Peer,
            // Another attempt at once might repeat forever.
            _ => Self::Blocked,
        }
    }
}

pub(super) fn accept(listener: &StreamListener, index: usize) -> Result<(OwnedFd, Remote), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, peer) = acceptfrom_with(&listener.socket, flags)?;
    let peer = match peer.and_then(|peer| SocketAddr::try_from(peer).ok()) {
        Some(peer) if listener.is_tcp() => Some(canonical(peer)),
        // A TCP connection without a peer, for example after a reset, must not be taken for one over a Unix socket.
        None if listener.is_tcp() => return Err(Errno::NOTCONN),
        _ => None,
    };
    Ok((socket, Remote { listener: index, peer }))
}

/// Returns an address whose family is the client's.
pub(super) fn canonical(peer: SocketAddr) -> SocketAddr {
    match peer {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(ip) => SocketAddr::new(ip.into(), v6.port()),
            None => peer,
        },
        SocketAddr::V4(_) => peer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends() {
        let paused = Accepting::pause(1000);
        assert!(
            !paused.is_due(1000) && !paused.is_due(1000 + PAUSE_MS - 1) && paused.is_due(1000 + PAUSE_MS)
        );
        assert!(!Accepting::Active.is_due(u64::MAX) && !Accepting::Stopped.is_due(u64::MAX));
    }

    /// Errors that one peer can cause neither end the worker nor delay others, and no error makes it spin.
    #[test]
    fn errors_are_told_apart() {
        for errno in [Errno::CONNABORTED, Errno::PROTO, Errno::OPNOTSUPP, Errno::HOSTUNREACH] {
            assert_eq!(AcceptFailure::of(errno), AcceptFailure::Peer, "{errno}");
        }
        for errno in [Errno::PERM, Errno::ACCESS, Errno::NOSYS] {
            assert_eq!(AcceptFailure::of(errno), AcceptFailure::Blocked, "{errno}");
        }
        assert_eq!(AcceptFailure::of(Errno::MFILE), AcceptFailure::NoResources);
        assert_eq!(AcceptFailure::of(Errno::NOTSOCK), AcceptFailure::Host);
    }

    #[test]
    fn a_mapped_peer_is_the_v4_one() {
        for (given, expected) in
            [("[::ffff:192.0.2.7]:1", "192.0.2.7:1"), ("[2001:db8::7]:1", "[2001:db8::7]:1")]
        {
            assert_eq!(canonical(given.parse().unwrap()), expected.parse().unwrap());
        }
    }
}
