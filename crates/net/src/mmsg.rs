//! The portable back end: `poll`, `recvmmsg` and `sendmmsg`, on every kernel and in every container.
//!
//! This module owns the order of events in a poll round. It uses `poll` and not `epoll`: with a handful of descriptors
//! the two calls cost the same, but a socket in an epoll set runs a callback for each arriving datagram, even while the
//! worker is busy and does not wait.

mod receive;
mod send;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use shoal_base::transport::datagram::{BATCH_MAX, DatagramService, Exchange, REPLY_BYTES_MAX};

use crate::socket::{SOCKETS_MAX, decode_source};
use crate::stream::Readiness;
use crate::{Counters, DatagramIo, POLL_BATCHES_MAX, Sockets, Unread, fault};
use receive::ReceiveBatch;
use send::{Reply, SendBatch};

/// The back end over `recvmmsg` and `sendmmsg`.
#[derive(Debug)]
pub struct MmsgIo {
    sockets: Sockets,
    received: ReceiveBatch,
    replies: Box<[[u8; REPLY_BYTES_MAX]]>,
    sending: SendBatch,
    /// The descriptors of another back end, which also end a wait.
    others: Vec<Arc<OwnedFd>>,
    /// Another descriptor that ends a wait.
    watched: Option<Readiness>,
    /// Whether to wait in the epoll set of the connections.
    waits_in_watched: bool,
}

/// Maximum number of descriptors of the other back end.
pub(crate) const OTHERS_MAX: usize = 64;

/// The sockets that may have datagrams: bit `i` stands for socket `i`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ready(u64);

const _: () = assert!(SOCKETS_MAX <= u64::BITS as usize);

impl MmsgIo {
    /// Takes over the sockets of a worker. Fails if there is not enough memory.
    pub fn open(sockets: Sockets) -> io::Result<Self> {
        Self::open_beside(sockets, Vec::new())
    }

    /// Like `open`, for a back end that also waits for up to [`OTHERS_MAX`] descriptors of its own.
    pub(crate) fn open_beside(sockets: Sockets, others: Vec<Arc<OwnedFd>>) -> io::Result<Self> {
        let replies = vec![[0; REPLY_BYTES_MAX]; BATCH_MAX].into_boxed_slice();
        let (received, sending) = (ReceiveBatch::new()?, SendBatch::new());
        Ok(Self { sockets, received, replies, sending, others, watched: None, waits_in_watched: false })
    }

    /// Returns the descriptors of a wait, without the watched one.
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let others = self.others.iter().map(AsFd::as_fd);
        self.sockets.descriptors().chain([self.sockets.waker.as_fd()]).chain(others)
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.sockets.counters
    }

    /// Stops waiting for one of the other descriptors.
    pub(crate) fn remove_other(&mut self, index: usize) {
        let removed = self.others.remove(index);
        if let Some(watched) = &self.watched {
            watched.part([removed.as_fd()].into_iter());
        }
    }

    /// Waits for the first event, and returns the sockets that may have datagrams.
    pub(crate) fn wait(&self, mut timeout: Duration) -> io::Result<Ready> {
        if let Some(watched) = &self.watched
            && self.waits_in_watched
            && !timeout.is_zero()
        {
            match watched.wait(Timespec::try_from(timeout).ok().as_ref()) {
                Ok(()) | Err(Errno::INTR) => timeout = Duration::ZERO,
                Err(errno) => return Err(errno.into()),
            }
        }
        let mut descriptors = ArrayVec::<PollFd<'_>, { SOCKETS_MAX + OTHERS_MAX + 2 }>::new();
        let watched = self.watched.as_ref().map(AsFd::as_fd);
        for descriptor in self.descriptors().chain(watched) {
            descriptors.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
        }
        // A timeout that does not fit is one of many years.
        let timeout = Timespec::try_from(timeout).ok();
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(errno) => return Err(errno.into()),
        }
        // The waker, the others and the watched descriptor only end the wait.
        let mut rest = descriptors.drain(self.sockets.bound.len()..);
        let woken = rest.next().is_some_and(|waker| !waker.revents().is_empty());
        drop(rest);
        if woken {
            self.sockets.waker.clear();
        }
        let mut ready = Ready::default();
        for (index, socket) in descriptors.iter().enumerate() {
            ready.set(index, !socket.revents().is_empty());
        }
        Ok(ready)
    }

    /// Serves the sockets that a wait has found. Returns the number of datagrams received, including dropped ones.
    pub(crate) fn serve(
        &mut self,
        mut ready: Ready,
        service: &mut impl DatagramService,
    ) -> io::Result<usize> {
        let mut taken = 0;
        for _ in 0..POLL_BATCHES_MAX {
            if ready == Ready::default() {
                break;
            }
            for index in 0..self.sockets.bound.len() {
                if ready.contains(index) {
                    let arrived = self.exchange(index, service)?;
                    ready.set(index, arrived == BATCH_MAX);
                    taken += arrived;
                }
            }
        }
        Ok(taken)
    }

    /// Exchanges one batch on one socket. Returns the number of datagrams received. If fewer than `BATCH_MAX`, the
    /// socket is now empty.
    fn exchange(&mut self, index: usize, service: &mut impl DatagramService) -> io::Result<usize> {
        let Self { sockets, received, replies, sending, .. } = self;
        let (socket, counters) = (sockets.bound[index].socket.as_fd(), sockets.family(index));
        let arrived = match received.receive(socket) {
            Ok(arrived) => arrived,
            Err(errno) => return fault::count_receive(errno, counters).map(|()| 0),
        };
        let mut datagrams = ArrayVec::<_, BATCH_MAX>::new();
        let mut batch = ArrayVec::<_, BATCH_MAX>::new();
        for (index, reply) in (0..arrived).zip(replies.iter_mut()) {
            let datagram = received.datagram(index);
            let Some(request) = datagram.request else {
                counters.unread.of(Unread::Oversized).increment();
                continue;
            };
            let Some(source) = decode_source(datagram.name) else {
                counters.unread.of(Unread::Failed).increment();
                continue;
            };
            datagrams.push(datagram);
            batch.push(Exchange { source, request, reply, reply_len: 0 });
        }
        if batch.is_empty() {
            return Ok(arrived);
        }
        counters.received.add(batch.len() as u64);
        sockets.counters.batches.increment();
        service.serve(&mut batch);
        let answered = datagrams.iter().zip(&batch).filter(|(_, exchange)| exchange.reply_len > 0);
        let replies = answered.map(|(datagram, exchange)| Reply {
            name: datagram.return_name(),
            control: datagram.return_control(),
            payload: &exchange.reply[..exchange.reply_len],
        });
        sending.send(socket, replies, counters);
        service.sent();
        Ok(arrived)
    }
}

impl DatagramIo for MmsgIo {
    fn poll(&mut self, timeout: Duration, service: &mut impl DatagramService) -> io::Result<usize> {
        let ready = self.wait(timeout)?;
        self.serve(ready, service)
    }

    fn coalesce(&mut self, time: Duration) -> io::Result<()> {
        if self.waits_in_watched {
            // The sockets are in that set, so the next datagram would end this wait.
            return Ok(());
        }
        self.sockets.waker.wait_beside(self.watched.as_ref().map(AsFd::as_fd), time)
    }

    fn watch(&mut self, readiness: Option<Readiness>) -> io::Result<()> {
        if let Some(watched) = self.watched.take() {
            watched.part(self.descriptors());
        }
        self.waits_in_watched = match &readiness {
            Some(readiness) => readiness.join(self.descriptors())?,
            None => false,
        };
        self.watched = readiness;
        Ok(())
    }

    fn pause(&mut self, _service: &mut impl DatagramService) -> io::Result<()> {
        // A poll round takes no more than it serves.
        Ok(())
    }
}

impl Ready {
    fn contains(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }

    fn set(&mut self, index: usize, ready: bool) {
        self.0 = self.0 & !(1 << index) | u64::from(ready) << index;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_holds_every_socket() {
        let mut ready = Ready::default();
        for index in 0..SOCKETS_MAX {
            ready.set(index, true);
            assert!(ready.contains(index));
        }
        for index in 0..SOCKETS_MAX {
            ready.set(index, false);
            assert!(!ready.contains(index));
        }
        assert_eq!(ready, Ready::default());
    }
}
