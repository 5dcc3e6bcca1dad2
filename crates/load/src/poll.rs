//! The events of the connections of a worker.
//!
//! Owns the epoll descriptor. An event names its connection by slot and generation, so that an event of an earlier
//! connection in the same slot can be ignored.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;

use crate::OpenError;

pub(crate) struct Poll {
    epoll: OwnedFd,
    events: Vec<Event>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionEvent {
    pub(crate) slot: usize,
    pub(crate) generation: u32,
    pub(crate) flags: EventFlags,
}

const EVENTS_MAX: usize = 512;

impl Poll {
    pub(crate) fn open() -> Result<Self, OpenError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| OpenError::Host(format!("cannot wait for connections: {errno}")))?;
        Ok(Self { epoll, events: Vec::with_capacity(EVENTS_MAX) })
    }

    /// Registers a socket until it is closed: edge-triggered and for all events, so that this never has to change.
    pub(crate) fn add(&self, socket: BorrowedFd<'_>, slot: usize, generation: u32) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64((slot as u64) << 32 | u64::from(generation));
        epoll::add(&self.epoll, socket, data, flags)
    }

    pub(crate) fn remove(&self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        epoll::delete(&self.epoll, socket)
    }

    pub(crate) fn wait(&mut self, wait_ns: u64) -> Result<usize, Errno> {
        let wait = Timespec::try_from(Duration::from_nanos(wait_ns)).unwrap_or_default();
        self.events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => Ok(self.events.len()),
            Err(errno) => Err(errno),
        }
    }

    pub(crate) fn event(&self, index: usize) -> Option<ConnectionEvent> {
        let event = self.events.get(index)?;
        let (flags, data) = (event.flags, event.data.u64());
        let slot = usize::try_from(data >> 32).ok()?;
        let generation = u32::try_from(data & 0xffff_ffff).expect("it is masked");
        Some(ConnectionEvent { slot, generation, flags })
    }
}
