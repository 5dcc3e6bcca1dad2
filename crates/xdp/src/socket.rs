//! AF_XDP sockets: frames in memory that the kernel and this process share, and four rings that carry them.
//!
//! An [`XdpSocket`] owns the memory, the rings and the record of each frame's owner. It neither reads nor writes the
//! contents of a frame. Its user calls [`XdpSocket::receive`], reads [`XdpSocket::frames`], writes each reply into the
//! frame of its request, and passes the replies to [`XdpSocket::answer`].
//!
//! [`XdpSocket::open`] needs privileges. Afterwards, only `sendto`, `recvfrom`, `getsockopt` and `poll` are called.
//!
//! The kernel is not trusted with memory safety: each index, offset and length that it supplies is checked. A bad
//! descriptor is counted and its frame returned. A bad index makes a socket unusable ([`Failure`]).
//!
//! Only `mapping` (memory shared with the kernel), `umem` (parts of frames) and `options` (system calls) contain
//! `unsafe`.

mod error;
mod mapping;
mod open;
mod options;
#[cfg(test)]
mod plain_ring;
mod ring;
#[cfg(test)]
mod tests;
mod umem;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use arrayvec::ArrayVec;
use rustix::io::Errno;
use rustix::net::xdp::{
    XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING,
    XdpStatistics,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use shoal_base::transport::datagram::BATCH_MAX;

pub use error::OpenError;
use mapping::{Descriptor, RingMapping};
use ring::{Consumer, Corrupt, Producer};
pub use umem::{CHUNK_BYTES, Frame, Owned, REPLY_SPACE_BYTES};
use umem::{Sizes, Taken, Umem, Unusable};

/// The types that `ring` uses. The tests of its interleavings compile it with other types.
mod sync {
    #[cfg(test)]
    pub(crate) use core::sync::atomic::AtomicU64;
    pub(crate) use core::sync::atomic::{AtomicU32, Ordering};
}

/// The number of frames of a socket.
const FRAMES_MIN: u32 = 64;
const FRAMES_MAX: u32 = 1 << 16;

/// Maximum number of calls in one flush. If the kernel copies frames, each call sends at least 32. A driver with a full
/// queue takes none for a while. A later flush sends the rest.
const WAKES_MAX: usize = 8;

/// Number of frames per call if the kernel copies them (Linux 6.17): four full batches, the most that a worker sends at
/// once. With 32, the limit before 6.17, they take eight calls. The time of a reply did not differ measurably.
const TRANSMIT_BUDGET: u32 = 256;

/// Memory for copied frames that are being sent. The default of 208 KiB may be too little for a batch of long replies.
const SEND_BUFFER_BYTES: i32 = 4 << 20;

/// Whether the network card accesses frames directly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// If the driver supports it.
    #[default]
    Auto,
    /// Always: without it, the socket is not opened.
    On,
    /// Never: the kernel copies them.
    Off,
}

/// The settings of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketSettings {
    /// Number of frames of 4 KiB, a power of two. Half of them receive; the others are being answered or sent. A
    /// datagram that finds no frame goes through the ordinary socket. So the number decides how long a worker may be
    /// away before that happens: with 4096, about 2 ms at a million datagrams a second. The time of a reply did not
    /// differ measurably between 512 and 16384.
    pub frames: u32,
    /// Whether the network card accesses frames directly.
    pub zero_copy: ZeroCopy,
    /// Whether system calls on this socket poll the network card.
    pub busy_poll: bool,
}

/// An AF_XDP socket of one queue of an interface.
#[derive(Debug)]
pub struct XdpSocket {
    socket: Arc<OwnedFd>,
    fill: Producer<RingMapping<u64>>,
    completion: Consumer<RingMapping<u64>>,
    receive: Consumer<RingMapping<Descriptor>>,
    transmit: Producer<RingMapping<Descriptor>>,
    umem: Umem,
    sizes: Sizes,
    taken: ArrayVec<Taken, BATCH_MAX>,
    is_zero_copy: bool,
    busy_poll: bool,
    faults: Faults,
}

/// The descriptors of a socket and its memory. Another process can use the socket with them: [`XdpSocket::from_parts`].
#[derive(Debug)]
pub struct Parts {
    /// The socket.
    pub socket: OwnedFd,
    /// The memory file.
    pub memory: OwnedFd,
}

/// Counts of faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Descriptors outside the memory, or of frames that the kernel does not own.
    pub bad_descriptors: u64,
    /// Frames that were longer than any request.
    pub too_long: u64,
}

/// The outcome of the replies of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Replies in the transmit ring.
    pub sent: usize,
    /// Replies dropped because the transmit ring was full.
    pub dropped: usize,
}

/// The reason why a socket has become useless. The process continues without it.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The kernel has moved an index out of range.
    #[error("the kernel has moved the index of a ring out of range")]
    Corrupt,
    /// The interface has vanished.
    #[error("the interface has vanished")]
    InterfaceGone,
}

impl From<Corrupt> for Failure {
    fn from(_corrupt: Corrupt) -> Self {
        Self::Corrupt
    }
}

impl Default for SocketSettings {
    fn default() -> Self {
        Self { frames: 4096, zero_copy: ZeroCopy::Auto, busy_poll: false }
    }
}

impl XdpSocket {
    /// Opens a socket, binds it to a queue of an interface, and makes all frames available. The error says what is
    /// missing.
    pub fn open(interface_index: u32, queue: u32, settings: &SocketSettings) -> Result<Self, OpenError> {
        let frames = settings.frames;
        if !frames.is_power_of_two() || !(FRAMES_MIN..=FRAMES_MAX).contains(&frames) {
            return Err(OpenError::Frames { frames });
        }
        let half = frames / 2;
        // The completion ring has room for all frames that may be in transmission, so the kernel never waits for it.
        let sizes = Sizes {
            frames,
            fill: half,
            completion: frames,
            receive: half,
            transmit: half,
            interface_index,
            queue,
        };
        let socket = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
            .map_err(OpenError::of_socket)?;
        let umem = Umem::create(&sizes).map_err(OpenError::at("memfd_create"))?;
        open::configure(socket.as_fd(), &umem, &sizes)?;
        let mut socket = Self::map(socket, umem, sizes)?;
        if settings.busy_poll {
            options::set_busy_poll(socket.as_fd(), true).map_err(OpenError::at("SO_BUSY_POLL"))?;
            socket.busy_poll = true;
        }
        // The socket is bound with frames to receive into: a driver may want them at once.
        socket.refill().map_err(|_| OpenError::at("XDP_UMEM_FILL_RING")(Errno::IO))?;
        open::bind_to_queue(socket.as_fd(), &sizes, settings.zero_copy)?;
        socket.is_zero_copy = open::is_zero_copy(socket.as_fd())?;
        // Older kernels send 32 frames per call.
        let _ = options::set_transmit_budget(socket.as_fd(), half.min(TRANSMIT_BUDGET));
        let _ = options::set_send_buffer(socket.as_fd(), SEND_BUFFER_BYTES);
        Ok(socket)
    }

    /// Continues with a socket that another process has opened. That process must not use it after this one calls
    /// [`Self::recover`]. Busy polling is a property of the socket, so it changes for both at once. Fails if the parts
    /// belong to another version or do not fit each other.
    pub fn from_parts(parts: Parts, busy_poll: bool) -> Result<Self, OpenError> {
        let (umem, sizes) = Umem::adopt(parts.memory).map_err(OpenError::HandedOver)?;
        let mut socket = Self::map(parts.socket, umem, sizes)?;
        socket.is_zero_copy = open::is_zero_copy(socket.as_fd())?;
        options::set_busy_poll(socket.as_fd(), busy_poll).map_err(OpenError::at("SO_BUSY_POLL"))?;
        socket.busy_poll = busy_poll;
        Ok(socket)
    }

    /// Returns copies of the descriptors, for another process. This one must not use the socket while the other does.
    /// Fails if there are too many descriptors.
    pub fn parts(&self) -> io::Result<Parts> {
        let socket = self.socket.as_fd().try_clone_to_owned()?;
        Ok(Parts { socket, memory: self.umem.file().try_clone_to_owned()? })
    }

    /// Continues from the state of the rings and of the record of owners, after another process has used the socket.
    /// Its requests in service are lost, and their frames are free.
    pub fn recover(&mut self) {
        self.taken.clear();
        self.fill.resume();
        self.completion.resume();
        self.receive.resume();
        self.transmit.resume();
        self.umem.recount();
    }

    /// Takes arrived frames into service, at most [`BATCH_MAX`]. Returns how many were taken from the ring, including
    /// those that are not served. The last batch must have been answered. Fails if the socket has become useless.
    pub fn receive(&mut self) -> Result<usize, Failure> {
        if self.busy_poll {
            // The ring shows the outcome.
            let _ = options::wake_receive(self.socket.as_fd());
        }
        let available = self.receive.available(1)?;
        let mut arrived = 0;
        while arrived < BATCH_MAX.min(available as usize)
            && let Some(descriptor) = self.receive.pop()
        {
            arrived += 1;
            match self.umem.take(descriptor) {
                Ok(taken) => match self.taken.try_push(taken) {
                    Ok(()) => {}
                    Err(unanswered) => self.umem.release(unanswered.element()),
                },
                Err(Unusable::Bad) => self.faults.bad_descriptors += 1,
                Err(Unusable::TooLong) => self.faults.too_long += 1,
            }
        }
        if arrived > 0 {
            self.receive.release();
        }
        Ok(arrived)
    }

    /// Returns the frames in service, in the order of their arrival.
    pub fn frames(&mut self) -> impl Iterator<Item = Frame<'_>> {
        self.umem.frames(&self.taken)
    }

    /// Puts the replies to the frames in service into the transmit ring, in the order of the frames. Each item is the
    /// offset of the reply in its space and its length, or `None`. All frames are then out of service.
    /// [`XdpSocket::flush`] sends the replies, and [`XdpSocket::recycle`] frees the frames. Fails if the socket has
    /// become useless.
    pub fn answer(
        &mut self,
        replies: impl IntoIterator<Item = Option<(usize, usize)>>,
    ) -> Result<Answered, Failure> {
        let mut answered = Answered::default();
        let mut replies = replies.into_iter();
        let mut room = self.transmit.room(u32::try_from(self.taken.len()).unwrap_or(u32::MAX))?;
        for taken in self.taken.drain(..) {
            match replies.next().flatten() {
                None => self.umem.release(taken),
                Some(_) if room == 0 => {
                    answered.dropped += 1;
                    self.umem.release(taken);
                }
                Some((start, bytes)) => {
                    let descriptor = self.umem.give_to_transmit(taken, start, bytes);
                    self.transmit.push(descriptor);
                    room -= 1;
                    answered.sent += 1;
                }
            }
        }
        if answered.sent > 0 {
            self.transmit.publish();
        }
        Ok(answered)
    }

    /// Makes the kernel send the frames in the transmit ring, as many as it accepts now. Returns how many are left.
    /// Fails if the socket has become useless.
    pub fn flush(&mut self) -> Result<u32, Failure> {
        let mut left = self.transmit.pending()?;
        for _ in 0..WAKES_MAX {
            if left == 0 || !self.transmit.needs_wakeup() {
                break;
            }
            let woken = options::wake_transmit(self.socket.as_fd());
            let before = std::mem::replace(&mut left, self.transmit.pending()?);
            match woken {
                Err(Errno::NXIO | Errno::NODEV | Errno::BADF) => return Err(Failure::InterfaceGone),
                // The interface is down. The frames are sent when it is up again.
                Err(Errno::NETDOWN) => break,
                _ if left == before => break,
                _ => {}
            }
        }
        Ok(left)
    }

    /// Frees the frames that were sent, and gives the kernel frames to receive into. Fails if the socket has become
    /// useless.
    pub fn recycle(&mut self) -> Result<(), Failure> {
        if self.completion.available(u32::MAX)? > 0 {
            while let Some(address) = self.completion.pop() {
                if !self.umem.complete(address) {
                    self.faults.bad_descriptors += 1;
                }
            }
            self.completion.release();
        }
        self.refill()?;
        if self.fill.needs_wakeup() {
            let _ = options::wake_receive(self.socket.as_fd());
        }
        Ok(())
    }

    /// Returns whether arrived frames wait to be received. Fails if the socket has become useless.
    pub fn has_arrived(&mut self) -> Result<bool, Failure> {
        Ok(self.receive.available(1)? > 0)
    }

    /// Returns how many arrived frames wait to be received. Fails if the socket has become useless.
    pub fn arrived(&mut self) -> Result<u32, Failure> {
        Ok(self.receive.available(u32::MAX)?)
    }

    /// Returns how many frames each owner has.
    pub fn owned(&self) -> Owned {
        self.umem.owned()
    }

    /// Returns whether each frame has exactly one owner, according to separate counts. It looks at every frame.
    pub fn is_consistent(&self) -> bool {
        self.umem.is_consistent()
    }

    /// Returns the number of frames.
    pub fn frames_total(&self) -> u32 {
        self.sizes.frames
    }

    /// Returns the maximum number of frames on their way to this process.
    pub fn receiving_max(&self) -> u32 {
        self.sizes.receive
    }

    /// Returns whether the network card accesses the frames directly.
    pub fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    /// Returns the index of the interface.
    pub fn interface_index(&self) -> u32 {
        self.sizes.interface_index
    }

    /// Returns the queue.
    pub fn queue(&self) -> u32 {
        self.sizes.queue
    }

    /// Returns the counts of faults.
    pub fn faults(&self) -> Faults {
        self.faults
    }

    /// Returns what the kernel has dropped at this socket since it was opened. Fails with the error of the kernel.
    pub fn statistics(&self) -> io::Result<XdpStatistics> {
        Ok(sockopt::xdp_statistics(&self.socket)?)
    }

    /// Checks whether the interface still exists. When it vanishes, a wait ends, but the descriptor does not become
    /// readable. Fails if the socket has become useless.
    pub fn check(&self) -> Result<(), Failure> {
        match sockopt::socket_error(&self.socket) {
            Ok(Err(_errno)) => Err(Failure::InterfaceGone),
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }

    /// Returns the descriptor to wait for. It is readable when frames have arrived.
    pub fn descriptor(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.socket)
    }

    /// Gives the kernel the maximum number of frames to receive into.
    fn refill(&mut self) -> Result<(), Corrupt> {
        let missing = self.sizes.receive.saturating_sub(self.umem.owned().receiving);
        if missing == 0 {
            return Ok(());
        }
        let room = self.fill.room(missing)?;
        let mut given = 0;
        while given < missing.min(room)
            && let Some(address) = self.umem.give_to_receive()
        {
            self.fill.push(address);
            given += 1;
        }
        if given > 0 {
            self.fill.publish();
        }
        Ok(())
    }

    fn map(socket: OwnedFd, umem: Umem, sizes: Sizes) -> Result<Self, OpenError> {
        let offsets = sockopt::xdp_mmap_offsets(&socket).map_err(OpenError::at("XDP_MMAP_OFFSETS"))?;
        let fd = socket.as_fd();
        let failed = || OpenError::at::<io::Error>("mmap");
        let fill =
            RingMapping::new(fd, XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, sizes.fill).map_err(failed())?;
        let completion = RingMapping::new(fd, XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, sizes.completion)
            .map_err(failed())?;
        let receive = RingMapping::new(fd, XDP_PGOFF_RX_RING, &offsets.rx, sizes.receive).map_err(failed())?;
        let transmit =
            RingMapping::new(fd, XDP_PGOFF_TX_RING, &offsets.tx, sizes.transmit).map_err(failed())?;
        Ok(Self {
            fill: Producer::new(fill),
            completion: Consumer::new(completion),
            receive: Consumer::new(receive),
            transmit: Producer::new(transmit),
            socket: Arc::new(socket),
            umem,
            sizes,
            taken: ArrayVec::new(),
            is_zero_copy: false,
            busy_poll: false,
            faults: Faults::default(),
        })
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
