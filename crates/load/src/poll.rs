//! Where a worker waits for its connections.
//!
//! Owns the one descriptor that the kernel tells events by. Which connection an event is about is said by slot and
//! generation, so that what is told of an earlier one in the same place can be passed over.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;

use crate::OpenError;

/// The connections of one worker, as the kernel watches them.
pub(crate) struct Poll {
    epoll: OwnedFd,
    events: Vec<Event>,
}

/// Something has happened on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Happening {
    pub(crate) slot: usize,
    /// How many connections there were in that place.
    pub(crate) generation: u32,
    pub(crate) flags: EventFlags,
}

/// Most events of one look.
const EVENTS_MAX: usize = 512;

impl Poll {
    pub(crate) fn open() -> Result<Self, OpenError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| OpenError::Host(format!("cannot wait for connections: {errno}")))?;
        Ok(Self { epoll, events: Vec::with_capacity(EVENTS_MAX) })
    }

    /// Has a socket watched until it is closed: edge-triggered, for all there is to wait for, so that it is registered
    /// once and never changed.
    pub(crate) fn watch(&self, socket: BorrowedFd<'_>, slot: usize, generation: u32) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64((slot as u64) << 32 | u64::from(generation));
        epoll::add(&self.epoll, socket, data, flags)
    }

    /// Has a socket watched no longer.
    pub(crate) fn forget(&self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        epoll::delete(&self.epoll, socket)
    }

    /// Waits for something to happen, for `wait_ns` at most. Returns how much has.
    pub(crate) fn wait(&mut self, wait_ns: u64) -> Result<usize, Errno> {
        let wait = Timespec::try_from(Duration::from_nanos(wait_ns)).unwrap_or_default();
        self.events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => Ok(self.events.len()),
            Err(errno) => Err(errno),
        }
    }

    /// What has happened, by its place in the last look.
    pub(crate) fn happening(&self, index: usize) -> Option<Happening> {
        let event = self.events.get(index)?;
        let (flags, data) = (event.flags, event.data.u64());
        let slot = usize::try_from(data >> 32).ok()?;
        let generation = u32::try_from(data & 0xffff_ffff).expect("it is masked");
        Some(Happening { slot, generation, flags })
    }
}
