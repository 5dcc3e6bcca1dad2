//! The messages between tracker and broker: one packet of JSON each, with descriptors beside it.
//!
//! A message has a bounded size. The kernel limits the number of descriptors in one packet; more packets carry the
//! rest.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ancillary::{self, DESCRIPTORS_MAX};

/// Maximum size of a message. The longest one carries a path.
const MESSAGE_BYTES_MAX: usize = 8192;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Bind UDP sockets with these `shoal_net::SocketSettings`.
    BindDatagrams {
        addr: SocketAddr,
        recv_buffer_bytes: usize,
        send_buffer_bytes: usize,
        workers: NonZeroUsize,
    },
    /// Listen for TCP connections.
    BindTcp { addr: SocketAddr, workers: NonZeroUsize },
    /// Listen on a Unix socket.
    BindUnix { path: PathBuf },
    /// Start the installed program with the descriptor in this message.
    Start,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// This message and the following ones carry the sockets.
    Bound { sockets: usize },
    /// The program runs. When it ends, the descriptor carries its exit status, four bytes in network order.
    Started { pid: u32 },
    /// The broker did nothing, for this reason.
    Refused { reason: String },
}

impl Answer {
    const fn descriptors(&self) -> usize {
        match self {
            Self::Bound { sockets } => *sockets,
            Self::Started { .. } => 1,
            Self::Refused { .. } => 0,
        }
    }
}

pub(super) fn send(
    socket: BorrowedFd<'_>,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let (first, others) = descriptors.split_at(descriptors.len().min(DESCRIPTORS_MAX));
    ancillary::send(socket, &bytes, first)?;
    others.chunks(DESCRIPTORS_MAX).try_for_each(|others| ancillary::send(socket, b" ", others).map(drop))
}

/// Receives a message. Returns `None` at the end of the connection.
pub(super) fn receive<M: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    let mut bytes = [0; MESSAGE_BYTES_MAX];
    let (length, descriptors) = ancillary::receive(socket, &mut bytes)?;
    if length == 0 {
        return Ok(None);
    }
    Ok(Some((serde_json::from_slice(&bytes[..length])?, descriptors)))
}

pub(super) fn receive_answer(socket: BorrowedFd<'_>) -> io::Result<(Answer, Vec<OwnedFd>)> {
    let end = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let (answer, mut descriptors) = receive::<Answer>(socket)?.ok_or_else(end)?;
    while descriptors.len() < answer.descriptors() {
        let (_, more) = ancillary::receive(socket, &mut [0])?;
        if more.is_empty() {
            return Err(end());
        }
        descriptors.extend(more);
    }
    Ok((answer, descriptors))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn an_answer_carries_more_descriptors_than_the_kernel_passes_at_once() {
        let (own, other) = pair();
        let sockets = 2 * DESCRIPTORS_MAX + 1;
        let one = own.as_fd();
        send(one, &Answer::Bound { sockets }, &vec![one; sockets]).unwrap();
        let (answer, descriptors) = receive_answer(other.as_fd()).unwrap();
        assert_eq!((answer.descriptors(), descriptors.len()), (sockets, sockets));
    }

    #[test]
    fn a_message_that_is_too_long_or_makes_no_sense_is_an_error() {
        let (own, other) = pair();
        let reason = "x".repeat(MESSAGE_BYTES_MAX);
        send(own.as_fd(), &Answer::Refused { reason }, &[]).unwrap();
        assert!(receive::<Answer>(other.as_fd()).is_err());
        send(own.as_fd(), &"Anything", &[]).unwrap();
        assert!(receive::<Request>(other.as_fd()).is_err());
        drop(own);
        assert!(receive::<Request>(other.as_fd()).unwrap().is_none());
    }
}
