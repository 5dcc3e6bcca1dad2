//! Taking connections from listeners: who has come, and what a failure tells of.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use shoal_transport::stream::Remote;

use super::listen::StreamListener;

/// For how long no connections are accepted where none can be had: the descriptors ran out and nobody idled, or the like.
const PAUSE_MS: u64 = 100;

/// Whether connections are being accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accepting {
    Yes,
    /// Not before this time.
    Paused {
        until_ms: u64,
    },
    /// Not any more.
    Retired,
}

/// What a failed accept tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The connection was gone before it was accepted, or the network failed it (`accept(2)`, "Error handling").
    Peer,
    /// There are no descriptors or no memory for more.
    Scarcity,
    /// Something that is in the way of every connection, as a security policy may be, and that may pass.
    Obstacle,
    /// A fault in this program or host that would only repeat itself.
    Host,
}

impl Accepting {
    /// Nothing can be had at the moment.
    pub(super) const fn pause(now_ms: u64) -> Self {
        Self::Paused { until_ms: now_ms + PAUSE_MS }
    }

    /// Whether a pause is over.
    pub(super) const fn is_due(self, now_ms: u64) -> bool {
        matches!(self, Self::Paused { until_ms } if until_ms <= now_ms)
    }
}

impl Trouble {
    pub(super) const fn of(errno: Errno) -> Self {
        match errno {
            Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => Self::Scarcity,
            Errno::BADF | Errno::FAULT | Errno::INVAL | Errno::NOTSOCK => Self::Host,
            // `accept(2)`, "Error handling": they tell of a connection that is gone, and the next one may be had.
            Errno::CONNABORTED | Errno::CONNRESET | Errno::NOTCONN | Errno::INTR | Errno::PROTO => Self::Peer,
            Errno::NETDOWN | Errno::NETUNREACH | Errno::NONET | Errno::NOPROTOOPT => Self::Peer,
            Errno::HOSTDOWN | Errno::HOSTUNREACH | Errno::OPNOTSUPP | Errno::TIMEDOUT => Self::Peer,
            // To try again at once might be to try for ever.
            _ => Self::Obstacle,
        }
    }
}

/// Takes the next connection that waits at `listener`, which is number `index`.
pub(super) fn accept(listener: &StreamListener, index: usize) -> Result<(OwnedFd, Remote), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, peer) = acceptfrom_with(&listener.socket, flags)?;
    let peer = match peer.and_then(|peer| SocketAddr::try_from(peer).ok()) {
        Some(peer) if listener.is_tcp() => Some(canonical(peer)),
        // A TCP connection without a peer, as a reset may leave it, must not pass for one over a Unix socket.
        None if listener.is_tcp() => return Err(Errno::NOTCONN),
        _ => None,
    };
    Ok((socket, Remote { listener: index, peer }))
}

fn canonical(peer: SocketAddr) -> SocketAddr {
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
        assert!(!Accepting::Yes.is_due(u64::MAX) && !Accepting::Retired.is_due(u64::MAX));
    }

    /// What one peer can bring about neither ends the worker nor keeps others waiting, and nothing makes it spin.
    #[test]
    fn errors_are_told_apart() {
        for errno in [Errno::CONNABORTED, Errno::PROTO, Errno::OPNOTSUPP, Errno::HOSTUNREACH] {
            assert_eq!(Trouble::of(errno), Trouble::Peer, "{errno}");
        }
        for errno in [Errno::PERM, Errno::ACCESS, Errno::NOSYS] {
            assert_eq!(Trouble::of(errno), Trouble::Obstacle, "{errno}");
        }
        assert_eq!(Trouble::of(Errno::MFILE), Trouble::Scarcity);
        assert_eq!(Trouble::of(Errno::NOTSOCK), Trouble::Host);
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
