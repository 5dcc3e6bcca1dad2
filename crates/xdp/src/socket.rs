//! AF_XDP sockets: frames in memory that the kernel and this process share, and four rings through which they pass.
//!
//! An [`XdpSocket`] owns the memory, the rings and the record of which frame belongs to whom. It neither reads nor writes
//! what is in a frame. Its user calls [`XdpSocket::receive`], reads [`XdpSocket::frames`], writes each reply into the frame of its
//! request, and passes them on by [`XdpSocket::answer`].
//!
//! [`XdpSocket::open`] needs privileges. After that, only `sendto`, `recvfrom`, `getsockopt` and `poll` are called.
//!
//! The kernel is not trusted with memory safety: each index, offset and length that it supplies is checked. A bad
//! descriptor is counted and its frame returned. A bad index makes a socket unusable ([`Failure`]).
//!
//! `unsafe` is only in `mapping` (memory shared with the kernel), `umem` (parts of frames) and `options` (system calls).

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

/// The types that `ring` is made of; the tests of its interleavings compile it with other types.
mod sync {
    #[cfg(test)]
    pub(crate) use core::sync::atomic::AtomicU64;
    pub(crate) use core::sync::atomic::{AtomicU32, Ordering};
}

/// The number of frames of a socket.
const FRAMES_MIN: u32 = 64;
const FRAMES_MAX: u32 = 1 << 16;

/// Maximum number of calls in one flush. Where the kernel copies frames, a call sends at least 32 of them; a driver whose queue
/// is full takes none for a while. The rest is sent by a later flush.
const WAKES_MAX: usize = 8;

/// Number of frames that a call sends where the kernel copies them (Linux 6.17): four full batches, which a worker sends
/// at once. With 32, as before 6.17, they take eight calls. No difference could be measured in the time of a reply.
const TRANSMIT_BUDGET: u32 = 256;

/// Memory of copied frames that are being sent. The default of 208 KiB may be less than a batch of long replies takes.
const SEND_BUFFER_BYTES: i32 = 4 << 20;

/// Whether frames are shared with the network card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// If the driver can.
    #[default]
    Auto,
    /// Always: without, the socket is not opened.
    On,
    /// Never: the kernel copies them.
    Off,
}

/// The settings of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketSettings {
    /// Number of frames of 4 KiB, a power of two. Half of them are for what arrives, the others for what is answered or
    /// being sent. A datagram that finds no frame goes through the ordinary socket, so the number decides how long a worker may be away
    /// before that happens: with 4096, some 2 ms at a million datagrams a second. No difference in the time of a reply could be
    /// measured between 512 and 16384.
    pub frames: u32,
    /// Whether frames are shared with the network card.
    pub zero_copy: ZeroCopy,
    /// Whether the network card is polled by system calls of this socket.
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
    /// The frames in service.
    taken: ArrayVec<Taken, BATCH_MAX>,
    is_zero_copy: bool,
    busy_poll: bool,
    faults: Faults,
}

/// The descriptors of a socket and its memory, with which another process can use it: [`XdpSocket::from_parts`].
#[derive(Debug)]
pub struct Parts {
    /// The socket.
    pub socket: OwnedFd,
    /// The memory file.
    pub memory: OwnedFd,
}

/// Counts of what should not happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Descriptors outside of the memory, or of frames that the kernel does not have.
    pub bad_descriptors: u64,
    /// Frames that were longer than any request.
    pub too_long: u64,
}

/// The outcome of the replies of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Replies that are in the transmit ring.
    pub sent: usize,
    /// Replies that were dropped, since the transmit ring was full.
    pub dropped: usize,
}

/// The error that a socket is of no use any more. The process goes on without it.
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
    /// Opens a socket, and binds it to a queue of an interface. All frames are made available.
    ///
    /// # Errors
    /// Returns what is missing.
    pub fn open(interface_index: u32, queue: u32, settings: &SocketSettings) -> Result<Self, OpenError> {
        let frames = settings.frames;
        if !frames.is_power_of_two() || !(FRAMES_MIN..=FRAMES_MAX).contains(&frames) {
            return Err(OpenError::Frames { frames });
        }
        let half = frames / 2;
        // The completion ring has room for all frames that may be sent at a time, so the kernel never waits for it.
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
        // Older kernels send 32 frames a call.
        let _ = options::set_transmit_budget(socket.as_fd(), half.min(TRANSMIT_BUDGET));
        let _ = options::set_send_buffer(socket.as_fd(), SEND_BUFFER_BYTES);
        Ok(socket)
    }

    /// Continues with a socket that another process has opened and uses no more once this one calls [`Self::recover`]. Whether the
    /// network card is polled is a property of the socket, so it changes at once, for both.
    ///
    /// # Errors
    /// Returns an error if that is none of this version, or is closed.
    pub fn from_parts(parts: Parts, busy_poll: bool) -> Result<Self, OpenError> {
        let (umem, sizes) = Umem::adopt(parts.memory).map_err(OpenError::HandedOver)?;
        let mut socket = Self::map(parts.socket, umem, sizes)?;
        socket.is_zero_copy = open::is_zero_copy(socket.as_fd())?;
        options::set_busy_poll(socket.as_fd(), busy_poll).map_err(OpenError::at("SO_BUSY_POLL"))?;
        socket.busy_poll = busy_poll;
        Ok(socket)
    }

    /// Returns copies of the descriptors, for another process. This one must not use the socket as long as that does.
    ///
    /// # Errors
    /// Fails if there are too many descriptors.
    pub fn parts(&self) -> io::Result<Parts> {
        let socket = self.socket.as_fd().try_clone_to_owned()?;
        Ok(Parts { socket, memory: self.umem.file().try_clone_to_owned()? })
    }

    /// Continues where the rings and the record of frames are, after another process has used the socket. Requests that it
    /// had in service are lost, and their frames are free.
    pub fn recover(&mut self) {
        self.taken.clear();
        self.fill.resume();
        self.completion.resume();
        self.receive.resume();
        self.transmit.resume();
        self.umem.recount();
    }

    /// Takes the frames that have arrived into service, at most [`BATCH_MAX`]. Returns how many have arrived, including those
    /// that are not served. Those of the last batch must have been answered.
    ///
    /// # Errors
    /// Returns an error if the socket is of no use any more.
    pub fn receive(&mut self) -> Result<usize, Failure> {
        if self.busy_poll {
            // The outcome shows in the ring.
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

    /// Passes the replies to the frames in service to the transmit ring, in their order: for each one where the reply starts
    /// in its space and how many bytes it has, or `None`. All frames are then out of service. The replies are sent by
    /// [`XdpSocket::flush`], and the frames freed by [`XdpSocket::recycle`].
    ///
    /// # Errors
    /// Returns an error if the socket is of no use any more.
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

    /// Makes the kernel send what is in the transmit ring, as far as it does so at present. Returns how many frames are left.
    ///
    /// # Errors
    /// Returns an error if the socket is of no use any more.
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
                // The interface is down. When it is up again, the frames are sent.
                Err(Errno::NETDOWN) => break,
                _ if left == before => break,
                _ => {}
            }
        }
        Ok(left)
    }

    /// Frees the frames that were sent, and gives the kernel frames to receive into.
    ///
    /// # Errors
    /// Returns an error if the socket is of no use any more.
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

    /// Returns whether frames have arrived that were not received yet.
    ///
    /// # Errors
    /// Returns an error if the socket is of no use any more.
    pub fn has_arrived(&mut self) -> Result<bool, Failure> {
        Ok(self.receive.available(1)? > 0)
    }

    /// Returns how many frames have arrived that were not received yet.
    ///
    /// # Errors
    /// Returns an error if the socket is of no use any more.
    pub fn arrived(&mut self) -> Result<u32, Failure> {
        Ok(self.receive.available(u32::MAX)?)
    }

    /// Returns how many frames each owner has.
    #[must_use]
    pub fn owned(&self) -> Owned {
        self.umem.owned()
    }

    /// Returns whether each frame has exactly one owner, by counts that are kept apart. It looks at every frame.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.umem.is_consistent()
    }

    /// Returns the number of frames.
    #[must_use]
    pub fn frames_total(&self) -> u32 {
        self.sizes.frames
    }

    /// Returns the maximum number of frames that can be on their way to this process.
    #[must_use]
    pub fn receiving_max(&self) -> u32 {
        self.sizes.receive
    }

    /// Returns whether the kernel shares the frames with the network card.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    /// Returns the index of the interface.
    #[must_use]
    pub fn interface_index(&self) -> u32 {
        self.sizes.interface_index
    }

    /// Returns the queue.
    #[must_use]
    pub fn queue(&self) -> u32 {
        self.sizes.queue
    }

    /// Returns counts of what should not happen.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.faults
    }

    /// Returns what the kernel has dropped at this socket since it was opened.
    ///
    /// # Errors
    /// Returns an error of the kernel.
    pub fn statistics(&self) -> io::Result<XdpStatistics> {
        Ok(sockopt::xdp_statistics(&self.socket)?)
    }

    /// Checks whether the interface still exists. When it vanishes, a wait ends, but the descriptor does not become readable.
    ///
    /// # Errors
    /// Returns an error if the socket is of no use any more.
    pub fn check(&self) -> Result<(), Failure> {
        match sockopt::socket_error(&self.socket) {
            Ok(Err(_errno)) => Err(Failure::InterfaceGone),
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }

    /// Returns the descriptor to wait at. It is readable when frames have arrived.
    #[must_use]
    pub fn descriptor(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.socket)
    }

    /// Gives the kernel as many frames as it may have to receive into.
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
