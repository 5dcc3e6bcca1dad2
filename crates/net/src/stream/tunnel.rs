//! Encrypted connections whose sessions another process continues.
//!
//! A tunnel has a socket to the peer and one to the other process, and a [`Cipher`] between them. It decrypts the
//! peer's input for the session, and encrypts the session's output for the peer. This module owns the tunnels and moves
//! their bytes. It must not interpret these.
//!
//! While one side does not read, nothing is read for it from the other one. So a tunnel holds little more than one
//! input for each side, and the back pressure reaches the sender. An idle tunnel holds no buffer.
//!
//! TLS sessions have secrets that no library exports in a form that it takes back. To the new process, a tunnel is a
//! plain connection. To close one, the old process ends its input. The session knows that it is tunnelled, and then
//! says 1012. So the old process chooses the time, and the new one the boundary of a message.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use shoal_base::transport::stream::Cipher;

use super::POLL_EVENTS_MAX;

/// Maximum number of bytes that are read at a time: the content of one TLS record.
const INPUT_BYTES_MAX: usize = 16 * 1024;

/// The maximum while all tunnels together hold more than [`HELD_BYTES_MAX`].
const SHORT_INPUT_BYTES_MAX: usize = 1024;

/// Number of bytes beyond which tunnels read less at a time.
const HELD_BYTES_MAX: usize = 64 << 20;

/// How long the peer may read the rest, and end its side, after the session has ended.
const END_MS_MAX: u64 = 5_000;

/// Maximum number of reads from each side before other tunnels have their turn.
const READS_MAX: usize = 4;

/// The tunnels of one worker.
pub struct Tunnels {
    epoll: OwnedFd,
    tunnels: BTreeMap<u64, Tunnel>,
    /// The number of the next tunnel. Numbers are not reused, so an event of a removed tunnel finds nothing.
    next: u64,
    /// Tunnels with smaller numbers are ending.
    first_open: u64,
    /// Number of the other tunnels.
    open: usize,
    /// Number of bytes that wait in all tunnels.
    held_bytes: usize,
    /// The tunnels whose sessions have ended, and the latest time of their close.
    ending: VecDeque<(u64, u64)>,
    events: Vec<Event>,
    input: Box<[u8; INPUT_BYTES_MAX]>,
}

#[derive(Debug)]
struct Tunnel {
    cipher: Box<dyn Cipher>,
    peer: End,
    session: End,
    /// Whether no more input is read for the session, so that it ends.
    is_ending: bool,
}

#[derive(Debug)]
struct End {
    socket: OwnedFd,
    /// Bytes that the socket has not accepted yet.
    unsent: Vec<u8>,
    /// Whether nothing more is read from it.
    has_ended: bool,
    /// Whether nothing more is sent to it.
    is_shut: bool,
    /// The watched events. `None` if the socket is not in the set.
    interest: Option<EventFlags>,
}

/// The state of a tunnel after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Continue,
    /// The session has ended with this step.
    SessionEnded,
    /// Nothing more can be moved.
    Over,
}

impl Tunnels {
    /// Creates a set without tunnels. Fails if the kernel has no more descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            tunnels: BTreeMap::new(),
            next: 0,
            first_open: 0,
            open: 0,
            held_bytes: 0,
            ending: VecDeque::new(),
            events: Vec::with_capacity(POLL_EVENTS_MAX),
            input: Box::new([0; INPUT_BYTES_MAX]),
        })
    }

    /// Returns the number of tunnels.
    pub fn len(&self) -> usize {
        self.tunnels.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tunnels.is_empty()
    }

    /// Adds a tunnel between the sockets of a peer and of a session. `unsent` are encrypted bytes that the peer has not
    /// accepted yet.
    pub(super) fn insert(
        &mut self,
        peer: OwnedFd,
        session: OwnedFd,
        cipher: Box<dyn Cipher>,
        unsent: Vec<u8>,
    ) {
        let number = self.next;
        self.next += 1;
        self.held_bytes += unsent.len();
        let (peer, session) = (End::new(peer, unsent), End::new(session, Vec::new()));
        self.tunnels.insert(number, Tunnel { cipher, peer, session, is_ending: false });
        self.open += 1;
        // Input may be waiting, and the peer may have room.
        self.advance(number, 0);
    }

    /// Ends the oldest tunnels until this many others are left: their sessions get no more input, notice that, and end.
    pub fn end(&mut self, left: usize, now_ms: u64) {
        while self.open > left
            && let Some((&number, tunnel)) = self.tunnels.range_mut(self.first_open..).next()
        {
            tunnel.is_ending = true;
            (self.first_open, self.open) = (number + 1, self.open - 1);
            self.advance(number, now_ms);
        }
    }

    /// Waits at most this long for events, and moves bytes. Returns the number of events. Fails with errors of this
    /// host that make it impossible to continue.
    pub fn poll(&mut self, timeout_ms: u32, now_ms: u64) -> io::Result<usize> {
        self.events.clear();
        let timeout = Timespec { tv_sec: 0, tv_nsec: (timeout_ms.min(999) * 1_000_000).into() };
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let events = mem::take(&mut self.events);
        for event in &events {
            self.advance(event.data.u64(), now_ms);
        }
        let seen = events.len();
        self.events = events;
        while self.ending.front().is_some_and(|(until_ms, _)| *until_ms <= now_ms) {
            if let Some((_, number)) = self.ending.pop_front() {
                self.remove(number);
            }
        }
        Ok(seen)
    }

    /// Moves the bytes of a tunnel as far as possible.
    fn advance(&mut self, number: u64, now_ms: u64) {
        let Some(tunnel) = self.tunnels.get_mut(&number) else { return };
        let before = tunnel.held_bytes();
        let is_short = self.held_bytes > HELD_BYTES_MAX;
        let input = &mut self.input[..if is_short { SHORT_INPUT_BYTES_MAX } else { INPUT_BYTES_MAX }];
        let step = tunnel.advance(input);
        self.held_bytes = self.held_bytes + tunnel.held_bytes() - before;
        if step == Step::SessionEnded {
            self.ending.push_back((now_ms + END_MS_MAX, number));
        }
        if step == Step::Over || !tunnel.watch(&self.epoll, number) {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u64) {
        if let Some(tunnel) = self.tunnels.remove(&number) {
            self.held_bytes -= tunnel.held_bytes();
            self.open -= usize::from(!tunnel.is_ending);
        }
    }
}

impl fmt::Debug for Tunnels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnels").field("tunnels", &self.tunnels.len()).finish_non_exhaustive()
    }
}

impl Tunnel {
    fn held_bytes(&self) -> usize {
        self.peer.unsent.len() + self.session.unsent.len()
    }

    fn advance(&mut self, input: &mut [u8]) -> Step {
        let had_ended = self.session.has_ended;
        for _ in 0..READS_MAX {
            if self.flush().is_err() {
                return Step::Over;
            }
            let has_moved = match (self.read_peer(input), self.read_session(input)) {
                (Ok(from_peer), from_session) => from_peer | from_session,
                (Err(_), _) => return Step::Over,
            };
            if !has_moved {
                break;
            }
        }
        if self.flush().is_err() || self.peer.is_shut && self.peer.has_ended {
            return Step::Over;
        }
        if self.session.has_ended && !had_ended { Step::SessionEnded } else { Step::Continue }
    }

    /// Returns whether input from the peer is read now. A peer that does not read is still read while little waits for
    /// it: messages of others must not block its own.
    fn reads_peer(&self) -> bool {
        !self.peer.has_ended
            && (!self.is_ending || self.session.has_ended)
            && self.session.unsent.is_empty()
            && self.peer.unsent.len() <= 2 * INPUT_BYTES_MAX
    }

    /// Returns whether output of the session is read now.
    fn reads_session(&self) -> bool {
        !self.session.has_ended && self.peer.unsent.is_empty()
    }

    /// Reads input from the peer up to the available room. Returns whether there was any.
    fn read_peer(&mut self, input: &mut [u8]) -> Result<bool, Errno> {
        if !self.reads_peer() {
            return Ok(false);
        }
        let received = match recv(&self.peer.socket, &mut *input, RecvFlags::empty()) {
            Ok((received, _)) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(errno) => return Err(errno),
        };
        if received == 0 {
            self.peer.has_ended = true;
        } else if !self.session.has_ended {
            let Self { cipher, peer, session, .. } = self;
            peer.has_ended = !cipher.open(&mut input[..received], &mut session.unsent, &mut peer.unsent);
            if session.is_shut {
                session.unsent = Vec::new();
            }
        }
        // After the end of the session, input is discarded, so that no reset overtakes the output.
        Ok(true)
    }

    /// Reads output of the session. Returns false if nothing can be read now.
    fn read_session(&mut self, input: &mut [u8]) -> bool {
        if !self.reads_session() {
            return false;
        }
        match recv(&self.session.socket, &mut *input, RecvFlags::empty()) {
            Ok((1.., _)) if self.peer.is_shut => {}
            Ok((received @ 1.., _)) => self.cipher.seal(&input[..received], &mut self.peer.unsent),
            Err(Errno::AGAIN | Errno::INTR) => return false,
            // The other process may have closed it before it has read everything.
            Ok((0, _)) | Err(_) => {
                self.session.has_ended = true;
                // Nothing reads this any more.
                (self.session.is_shut, self.session.unsent) = (true, Vec::new());
                self.cipher.close(&mut self.peer.unsent);
            }
        }
        true
    }

    /// Sends to both ends as much as they have room for, and ends a direction whose sender has ended.
    fn flush(&mut self) -> Result<(), Errno> {
        self.peer.flush()?;
        if self.session.flush().is_err() {
            // The session has ended, but what it has sent before can still be read.
            (self.session.is_shut, self.session.unsent) = (true, Vec::new());
        }
        if self.peer.has_ended || self.is_ending {
            self.session.shut();
        }
        if self.session.has_ended {
            self.peer.shut();
        }
        Ok(())
    }

    /// Watches for the events that the tunnel waits for. Returns whether that is possible.
    fn watch(&mut self, epoll: &OwnedFd, number: u64) -> bool {
        let (reads_peer, reads_session) = (self.reads_peer(), self.reads_session());
        self.peer.watch(epoll, number, reads_peer).is_ok()
            && self.session.watch(epoll, number, reads_session).is_ok()
    }
}

impl End {
    const fn new(socket: OwnedFd, unsent: Vec<u8>) -> Self {
        Self { socket, unsent, has_ended: false, is_shut: false, interest: None }
    }

    /// Sends as much as the socket has room for.
    fn flush(&mut self) -> Result<(), Errno> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        match send(&self.socket, &self.unsent, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) if sent == self.unsent.len() => self.unsent = Vec::new(),
            Ok(sent) => drop(self.unsent.drain(..sent)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    /// Tells the other side that nothing more comes, once it has accepted everything.
    fn shut(&mut self) {
        if self.unsent.is_empty() && !self.is_shut {
            self.is_shut = true;
            // It fails if the other side is gone, which the next read shows.
            let _ = shutdown(&self.socket, Shutdown::Write);
        }
    }

    /// Watches for room if there are unsent bytes, and for input if it `reads`. A socket without either is not in the
    /// set, because its end would be reported continually.
    fn watch(&mut self, epoll: &OwnedFd, number: u64, reads: bool) -> Result<(), Errno> {
        let mut wanted = if reads { EventFlags::IN } else { EventFlags::empty() };
        if !self.unsent.is_empty() {
            wanted |= EventFlags::OUT;
        }
        let wanted = (!wanted.is_empty()).then_some(wanted);
        let before = mem::replace(&mut self.interest, wanted);
        let token = EventData::new_u64(number);
        match (before, wanted) {
            (None, Some(wanted)) => epoll::add(epoll, &self.socket, token, wanted),
            (Some(_), None) => epoll::delete(epoll, &self.socket),
            (Some(watched), Some(wanted)) if watched != wanted => {
                epoll::modify(epoll, &self.socket, token, wanted)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// The last byte of every connection.
    const END: u8 = 0xff;

    /// Encrypts by turning bits over.
    #[derive(Debug)]
    struct Mirror;

    impl Cipher for Mirror {
        fn open(&mut self, input: &mut [u8], plaintext: &mut Vec<u8>, _output: &mut Vec<u8>) -> bool {
            plaintext.extend(input.iter().map(|byte| !byte));
            !input.contains(&END)
        }

        fn seal(&mut self, plaintext: &[u8], output: &mut Vec<u8>) {
            output.extend(plaintext.iter().map(|byte| !byte));
        }

        fn close(&mut self, output: &mut Vec<u8>) {
            output.push(END);
        }
    }

    fn pair() -> (UnixStream, OwnedFd) {
        let (one, other) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        other.set_nonblocking(true).unwrap();
        (one, other.into())
    }

    /// Returns a set of one tunnel, with its peer and its session.
    fn tunnel(unsent: &[u8]) -> (Tunnels, UnixStream, UnixStream) {
        let mut tunnels = Tunnels::new().unwrap();
        let ((peer, own_peer), (session, own_session)) = (pair(), pair());
        tunnels.insert(own_peer, own_session, Box::new(Mirror), unsent.to_vec());
        (tunnels, peer, session)
    }

    /// Moves everything that can be moved.
    fn settle(tunnels: &mut Tunnels) {
        while tunnels.poll(0, 0).unwrap() > 0 {}
    }

    /// Returns what has arrived, and whether the stream has ended.
    fn arrived(socket: &mut UnixStream) -> (Vec<u8>, bool) {
        let mut bytes = Vec::new();
        match socket.read_to_end(&mut bytes) {
            Ok(_) => (bytes, true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => (bytes, false),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn bytes_go_through_in_both_directions() {
        let (mut tunnels, mut peer, mut session) = tunnel(b"rest");
        assert_eq!(arrived(&mut peer), (b"rest".to_vec(), false));
        for _ in 0..3 {
            peer.write_all(&[1, 2, 3]).unwrap();
            session.write_all(&[4, 5]).unwrap();
            settle(&mut tunnels);
            assert_eq!(arrived(&mut session), (vec![!1, !2, !3], false));
            assert_eq!(arrived(&mut peer), (vec![!4, !5], false));
        }
        assert_eq!((tunnels.len(), tunnels.held_bytes), (1, 0));
    }

    #[test]
    fn a_side_that_does_not_read_holds_the_other_one_up() {
        for peer_reads in [true, false] {
            let (mut tunnels, peer, session) = tunnel(b"");
            let (mut reader, mut writer) = if peer_reads { (peer, session) } else { (session, peer) };
            let (block, mut written) = ([7; 10_000], 0);
            loop {
                match writer.write(&block) {
                    Ok(accepted) => written += accepted,
                    // The rest fits nowhere.
                    Err(_) if tunnels.poll(0, 0).unwrap() == 0 => break,
                    Err(_) => {}
                }
                assert!(tunnels.held_bytes <= 2 * INPUT_BYTES_MAX, "{} bytes", tunnels.held_bytes);
                assert!(written < 16 << 20, "the writer is held up");
            }
            assert!(tunnels.held_bytes > 0);
            let mut received = 0;
            while received < written {
                let (bytes, _) = arrived(&mut reader);
                assert!(bytes.iter().all(|byte| *byte == !7));
                received += bytes.len();
                settle(&mut tunnels);
            }
            assert_eq!((received, tunnels.held_bytes), (written, 0));
        }
    }

    #[test]
    fn a_tunnel_that_is_ended_carries_the_last_words_of_the_session() {
        let (mut tunnels, mut peer, mut session) = tunnel(b"");
        peer.write_all(&[1]).unwrap();
        tunnels.end(1, 0);
        settle(&mut tunnels);
        assert_eq!(arrived(&mut session), (vec![!1], false));
        tunnels.end(0, 0);
        // The session does not get this any more.
        peer.write_all(&[2]).unwrap();
        settle(&mut tunnels);
        assert_eq!(arrived(&mut session), (vec![], true));
        session.write_all(&[9]).unwrap();
        drop(session);
        settle(&mut tunnels);
        assert_eq!(arrived(&mut peer), (vec![!9, END], true));
        assert_eq!(tunnels.len(), 1, "the peer may still send");
        peer.write_all(&[3]).unwrap();
        settle(&mut tunnels);
        drop(peer);
        settle(&mut tunnels);
        assert!(tunnels.is_empty());
    }

    #[test]
    fn the_end_of_the_peer_reaches_the_session() {
        for is_announced in [true, false] {
            let (mut tunnels, mut peer, mut session) = tunnel(b"");
            if is_announced {
                peer.write_all(&[1, END]).unwrap();
            } else {
                peer.write_all(&[1]).unwrap();
                peer.shutdown(std::net::Shutdown::Write).unwrap();
            }
            settle(&mut tunnels);
            let (bytes, has_ended) = arrived(&mut session);
            assert_eq!((bytes[0], has_ended), (!1, true));
            // It may still reply.
            session.write_all(&[5]).unwrap();
            drop(session);
            settle(&mut tunnels);
            assert_eq!(arrived(&mut peer), (vec![!5, END], true));
            assert!(tunnels.is_empty());
        }
    }

    #[test]
    fn a_peer_that_is_gone_ends_the_tunnel() {
        let (mut tunnels, peer, mut session) = tunnel(b"");
        drop(peer);
        session.write_all(&[5]).unwrap();
        settle(&mut tunnels);
        assert!(tunnels.is_empty() && arrived(&mut session).1);
    }

    #[test]
    fn a_peer_that_does_not_read_the_end_is_waited_for_and_not_forever() {
        let (mut tunnels, peer, mut session) = tunnel(b"");
        while session.write(&[5; 10_000]).is_ok() || tunnels.poll(0, 0).unwrap() > 0 {}
        // The last output of the session is in its socket, so its end is not seen before that is read.
        drop(session);
        settle(&mut tunnels);
        tunnels.end(0, 100);
        assert_eq!(tunnels.len(), 1);
        let mut peer = peer;
        while !arrived(&mut peer).1 {
            tunnels.poll(0, 100).unwrap();
        }
        tunnels.poll(0, 100 + END_MS_MAX - 1).unwrap();
        assert_eq!(tunnels.len(), 1);
        tunnels.poll(0, 100 + END_MS_MAX).unwrap();
        assert!(tunnels.is_empty() && tunnels.held_bytes == 0 && tunnels.open == 0);
    }
}
