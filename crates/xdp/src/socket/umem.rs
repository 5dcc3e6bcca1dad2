//! The memory of frames (`struct xdp_umem_reg`), and the owner of each frame.
//!
//! It is a memory file of this layout:
//!
//! | Part | Bytes |
//! |---|---|
//! | frames | 4096 each |
//! | the owner of each frame | 1 each |
//! | unused | up to the last page |
//! | the sizes of everything | 4096, the end of the file |
//!
//! Only the frames are registered with the kernel. Another process that receives the file and the socket finds the
//! owners in the file. It could not find them in the rings alone: a frame that the driver or the other process holds is
//! in no ring.
//!
//! A frame has one owner at a time. It passes from `Free` to `Receiving`, `InService`, `Transmitting` and back. A frame
//! without a reply goes from `InService` to `Free`.
#![allow(unsafe_code, reason = "frames are parts of memory that is shared with the kernel")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use shoal_base::transport::datagram::REPLY_BYTES_MAX;

use super::mapping::{Descriptor, Mapping, SharedBytes};
use crate::frame::REPLY_HEAD_BYTES_MAX;

/// The size of the memory of one frame. Drivers support the size of a page.
pub const CHUNK_BYTES: u32 = 4096;
/// `CHUNK_BYTES` as the size of an array.
const CHUNK_LEN: usize = CHUNK_BYTES as usize;

/// The end of a frame, in which its reply is built: all headers, and the payload.
pub const REPLY_SPACE_BYTES: usize = REPLY_HEAD_BYTES_MAX + REPLY_BYTES_MAX;

/// The end of the part of a frame that a received frame may fill. The kernel leaves 256 bytes before it
/// (`XDP_PACKET_HEADROOM`, `linux/bpf.h`), so frames of up to 2322 bytes fit.
const RECEIVED_END_MAX: usize = CHUNK_LEN - REPLY_SPACE_BYTES;

const _: () = assert!(RECEIVED_END_MAX >= 256 + 2304);

/// The page with the sizes: its first words, and its version.
const MAGIC: u32 = u32::from_ne_bytes(*b"xdpm");
const VERSION: u32 = 1;
const HEADER_WORDS: usize = 9;
const HEADER_BYTES: usize = 4096;

/// The length of a huge page. A file of huge pages has a multiple of it.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The numbers of frames and ring entries, and the queue to which the socket is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) frames: u32,
    /// The entries of the four rings, powers of two.
    pub(super) fill: u32,
    pub(super) completion: u32,
    pub(super) receive: u32,
    pub(super) transmit: u32,
    /// The interface and its queue.
    pub(super) interface_index: u32,
    pub(super) queue: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Owner {
    /// This process: the frame is unused.
    Free = 0,
    /// The kernel, to receive into: in the fill ring, in the driver, or in the receive ring.
    Receiving = 1,
    /// This process, which answers the contents.
    InService = 2,
    /// The kernel, to send: in the transmit ring, in the driver, or in the completion ring.
    Transmitting = 3,
}

/// How many frames each owner has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owned {
    /// Unused frames.
    pub free: u32,
    /// Frames that the kernel receives into, or has received into.
    pub receiving: u32,
    /// Frames that are being answered.
    pub in_service: u32,
    /// Frames that the kernel sends, or has sent.
    pub transmitting: u32,
}

/// A frame in service. At most one `Taken` exists for each frame.
#[derive(Debug)]
pub(super) struct Taken {
    frame: u32,
    /// The range of the received bytes in the frame. It ends before the space for the reply.
    start: usize,
    end: usize,
}

/// A received frame, and the space for its reply.
#[derive(Debug)]
pub struct Frame<'a> {
    /// The frame from its Ethernet header on.
    pub received: &'a [u8],
    /// The space for the reply, whose payload begins after [`REPLY_HEAD_BYTES_MAX`] bytes.
    pub reply: &'a mut [u8; REPLY_SPACE_BYTES],
}

/// The reason why a received descriptor is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// It lies outside the memory, or in a frame that the kernel does not own.
    Bad,
    /// The frame is longer than any request.
    TooLong,
}

/// The memory of frames and the record of their owners.
#[derive(Debug)]
pub(super) struct Umem {
    mapping: Arc<Mapping>,
    file: OwnedFd,
    frames: u32,
    owners: SharedBytes,
    owned: Owned,
    free: Vec<u32>,
}

impl Umem {
    /// Creates the memory, in huge pages if there are some. All frames are free.
    pub(super) fn create(sizes: &Sizes) -> io::Result<Self> {
        let (file, mapping) = match map_new(sizes, HUGE_PAGE_BYTES, MemfdFlags::HUGETLB) {
            Ok(mapped) => mapped,
            Err(_none_reserved) => map_new(sizes, HEADER_BYTES, MemfdFlags::empty())?,
        };
        sizes.write(&mapping).ok_or(io::ErrorKind::InvalidInput)?;
        Self::new(file, mapping, sizes)
    }

    /// Maps the memory that another process has created.
    pub(super) fn adopt(file: OwnedFd) -> io::Result<(Self, Sizes)> {
        let refuse = || io::Error::new(io::ErrorKind::InvalidData, "no memory of frames of this version");
        let bytes = usize::try_from(fstat(&file)?.st_size).map_err(|_| refuse())?;
        let mapping = Mapping::with_huge_pages(file.as_fd(), bytes)?;
        let sizes = Sizes::read(&mapping).ok_or_else(refuse)?;
        Ok((Self::new(file, mapping, &sizes)?, sizes))
    }

    fn new(file: OwnedFd, mapping: Mapping, sizes: &Sizes) -> io::Result<Self> {
        let mapping = Arc::new(mapping);
        let count = sizes.frames as usize;
        let owners = SharedBytes::new(&mapping, count * CHUNK_LEN, count);
        let owners = owners.ok_or(io::ErrorKind::InvalidData)?;
        let free = Vec::with_capacity(count);
        let mut umem = Self { mapping, file, frames: sizes.frames, owners, owned: Owned::default(), free };
        umem.count();
        Ok(umem)
    }

    /// Finds the owners anew, after another process has used the memory. Frames that it had in service are free.
    pub(super) fn recount(&mut self) {
        self.count();
        for frame in &self.free {
            self.set_owner(*frame, Owner::Free);
        }
    }

    /// Counts the frames of each owner. Frames in service count as free, but stay recorded: another process may still
    /// answer them.
    fn count(&mut self) {
        self.free.clear();
        self.owned = Owned::default();
        // The last frame in the list is used first.
        for frame in (0..self.frames).rev() {
            if matches!(self.owner(frame), Some(Owner::Receiving | Owner::Transmitting)) {
                *self.owned.count(self.owner(frame)) += 1;
            } else {
                self.owned.free += 1;
                self.free.push(frame);
            }
        }
    }

    pub(super) fn owned(&self) -> Owned {
        self.owned
    }

    /// Returns whether the record of owners agrees with the separate counts.
    pub(super) fn is_consistent(&self) -> bool {
        let mut counted = Owned::default();
        for frame in 0..self.frames {
            *counted.count(self.owner(frame)) += 1;
        }
        counted == self.owned && self.free.len() == self.owned.free as usize
    }

    /// Returns the address and length of the part with the frames.
    pub(super) fn registered(&self) -> (u64, u64) {
        (self.mapping.address(), u64::from(self.frames) * u64::from(CHUNK_BYTES))
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Gives a free frame to the kernel to receive into. Returns its address.
    pub(super) fn give_to_receive(&mut self) -> Option<u64> {
        let frame = self.free.pop()?;
        self.pass(frame, Owner::Free, Owner::Receiving);
        Some(u64::from(frame) * u64::from(CHUNK_BYTES))
    }

    /// Takes a frame that the kernel has received into service. A frame that is too long is free again.
    pub(super) fn take(&mut self, received: Descriptor) -> Result<Taken, Unusable> {
        let (frame, start) = self.place(received.address).ok_or(Unusable::Bad)?;
        if self.owner(frame) != Some(Owner::Receiving) {
            return Err(Unusable::Bad);
        }
        match start.checked_add(received.bytes as usize) {
            Some(end) if end <= RECEIVED_END_MAX => {
                self.pass(frame, Owner::Receiving, Owner::InService);
                Ok(Taken { frame, start, end })
            }
            end => {
                self.pass(frame, Owner::Receiving, Owner::Free);
                self.free.push(frame);
                Err(if end.is_some_and(|end| end <= CHUNK_LEN) { Unusable::TooLong } else { Unusable::Bad })
            }
        }
    }

    /// Returns the frames in service, and the space for their replies.
    pub(super) fn frames<'a>(&'a mut self, taken: &'a [Taken]) -> impl Iterator<Item = Frame<'a>> {
        let mapping = &self.mapping;
        taken.iter().map(|taken| {
            let chunk = mapping.pointer::<u8>(taken.frame as usize * CHUNK_LEN, CHUNK_LEN);
            frame(chunk.expect("a frame in service is within the memory"), taken)
        })
    }

    /// Gives a frame in service to the kernel, to send `bytes` bytes from `start` in its reply space.
    pub(super) fn give_to_transmit(&mut self, taken: Taken, start: usize, bytes: usize) -> Descriptor {
        let is_within = start.checked_add(bytes).is_some_and(|end| end <= REPLY_SPACE_BYTES);
        assert!(is_within, "a reply of {bytes} bytes at {start} does not fit its space");
        self.pass(taken.frame, Owner::InService, Owner::Transmitting);
        let start = (taken.frame as usize * CHUNK_LEN + RECEIVED_END_MAX + start) as u64;
        Descriptor { address: start, bytes: u32::try_from(bytes).unwrap_or(0), options: 0 }
    }

    /// Frees a frame in service.
    pub(super) fn release(&mut self, taken: Taken) {
        self.pass(taken.frame, Owner::InService, Owner::Free);
        self.free.push(taken.frame);
    }

    /// Frees the frame at an address, which the kernel has sent. Returns whether the kernel had it to send.
    pub(super) fn complete(&mut self, address: u64) -> bool {
        match self.place(address) {
            Some((frame, _)) if self.owner(frame) == Some(Owner::Transmitting) => {
                self.pass(frame, Owner::Transmitting, Owner::Free);
                self.free.push(frame);
                true
            }
            _ => false,
        }
    }

    /// Returns the number of the frame at an address, and the offset in it.
    fn place(&self, address: u64) -> Option<(u32, usize)> {
        let frame = u32::try_from(address / u64::from(CHUNK_BYTES)).ok()?;
        let offset = usize::try_from(address % u64::from(CHUNK_BYTES)).ok()?;
        (frame < self.frames).then_some((frame, offset))
    }

    fn pass(&mut self, frame: u32, from: Owner, to: Owner) {
        self.set_owner(frame, to);
        *self.owned.count(Some(from)) -= 1;
        *self.owned.count(Some(to)) += 1;
    }

    fn owner(&self, frame: u32) -> Option<Owner> {
        let number = self.owners.as_slice().get(frame as usize)?.load(Ordering::Relaxed);
        [Owner::Free, Owner::Receiving, Owner::InService, Owner::Transmitting]
            .get(usize::from(number))
            .copied()
    }

    fn set_owner(&self, frame: u32, owner: Owner) {
        if let Some(record) = self.owners.as_slice().get(frame as usize) {
            record.store(owner as u8, Ordering::Relaxed);
        }
    }
}

impl Owned {
    /// Returns the number of all frames.
    pub fn total(&self) -> u32 {
        self.free + self.receiving + self.in_service + self.transmitting
    }

    fn count(&mut self, owner: Option<Owner>) -> &mut u32 {
        match owner {
            None | Some(Owner::Free) => &mut self.free,
            Some(Owner::Receiving) => &mut self.receiving,
            Some(Owner::InService) => &mut self.in_service,
            Some(Owner::Transmitting) => &mut self.transmitting,
        }
    }
}

impl Sizes {
    fn write(&self, mapping: &Mapping) -> Option<()> {
        let words = mapping.atomic_words(mapping.bytes().checked_sub(HEADER_BYTES)?, HEADER_WORDS)?;
        words.iter().zip(self.words()).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        Some(())
    }

    /// Reads the sizes of a mapping, if they are possible.
    fn read(mapping: &Mapping) -> Option<Self> {
        let words = mapping.atomic_words(mapping.bytes().checked_sub(HEADER_BYTES)?, HEADER_WORDS)?;
        let mut values = [0; HEADER_WORDS];
        values.iter_mut().zip(words).for_each(|(value, word)| *value = word.load(Ordering::Relaxed));
        let [magic, version, frames, fill, completion, receive, transmit, interface_index, queue] = values;
        let rings = [fill, completion, receive, transmit];
        let is_valid =
            magic == MAGIC && version == VERSION && rings.iter().all(|entries| entries.is_power_of_two());
        is_valid.then_some(Self { frames, fill, completion, receive, transmit, interface_index, queue })
    }

    fn words(&self) -> [u32; HEADER_WORDS] {
        [
            MAGIC,
            VERSION,
            self.frames,
            self.fill,
            self.completion,
            self.receive,
            self.transmit,
            self.interface_index,
            self.queue,
        ]
    }
}

/// Creates and maps a memory file with pages of this size.
fn map_new(sizes: &Sizes, page_bytes: usize, flags: MemfdFlags) -> io::Result<(OwnedFd, Mapping)> {
    let used = sizes.frames as usize * (CHUNK_LEN + 1) + HEADER_BYTES;
    let bytes = used.next_multiple_of(page_bytes);
    let file = memfd_create("shoal-frames", flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, bytes as u64)?;
    // A process that maps it can rely on its length.
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    let mapping = Mapping::with_huge_pages(file.as_fd(), bytes)?;
    Ok((file, mapping))
}

/// Returns the parts of a frame, whose memory starts at `chunk`.
fn frame<'a>(chunk: NonNull<u8>, taken: &Taken) -> Frame<'a> {
    let received = chunk.as_ptr().wrapping_add(taken.start);
    // SAFETY: `take` has checked that the range lies before the space for the reply. The kernel has given the frame up,
    // so nothing writes it until it is passed on, which needs the `Umem` that `'a` borrows.
    let received = unsafe { slice::from_raw_parts(received, taken.end - taken.start) };
    let reply = chunk.as_ptr().wrapping_add(RECEIVED_END_MAX).cast::<[u8; REPLY_SPACE_BYTES]>();
    // SAFETY: this is the rest of the frame. It overlaps neither the received bytes nor another frame, and only one
    // `Taken` of this frame exists.
    let reply = unsafe { &mut *reply };
    Frame { received, reply }
}
