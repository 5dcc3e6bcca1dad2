//! Passes connections to another process that continues them.
//!
//! A connection can be passed if its service can describe its session in bytes ([`StreamService::detach`]). The other
//! process gets its socket, these bytes, and the output that the peer has not accepted yet. The peer notices nothing.
//! An encrypted connection stays as a tunnel, and the other process gets the tunnel's end.

use std::mem;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use shoal_base::transport::stream::{ConnectionKind, Detached, Handle, Next, Quota, StreamService};

use super::accept::Accepting;
use super::connection::Connection;
use super::lifecycle::{Outcome, try_send};
use super::table::Phase;
use super::tunnel::Tunnels;
use super::{EndReason, StreamIo};

/// A connection between two processes.
#[derive(Debug)]
pub struct DetachedConnection {
    /// The socket.
    pub socket: OwnedFd,
    /// The state of the session, as the service describes it.
    pub state: Vec<u8>,
    /// The quota that it counts towards.
    pub quota: Quota,
    /// Output that the peer has not accepted yet.
    pub unsent: Vec<u8>,
}

impl<S: StreamService> StreamIo<S> {
    /// Removes all connections that can be passed to another process now, and passes them to `each`; encrypted ones go
    /// to `tunnels`. Others may be passed later, or never.
    fn detach(&mut self, service: &mut S, tunnels: &mut Tunnels, mut each: impl FnMut(DetachedConnection)) {
        // Connections whose client may wait for a response come first.
        for phase in [Phase::Request, Phase::Idle, Phase::Send, Phase::Upgraded] {
            for handle in self.table.handles_in(phase) {
                if let Some(connection) = self.detach_one(handle, service, tunnels) {
                    each(connection);
                }
            }
        }
    }

    fn detach_one(
        &mut self,
        handle: Handle,
        service: &mut S,
        tunnels: &mut Tunnels,
    ) -> Option<DetachedConnection> {
        let Connection { session, unsent, sent, .. } = self.table.get_mut(handle)?;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let ends = if service.is_encrypted(session) {
            // Without descriptors, the connection stays until there are some.
            Some(socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?)
        } else {
            None
        };
        unsent.drain(..*sent);
        *sent = 0;
        let Detached { state, quota, cipher } = service.detach(session, unsent)?;
        let Connection { session, socket, unsent, .. } = self.table.remove(handle)?;
        service.close(session);
        // It fails if the socket is not in the set. Otherwise the set would watch it for as long as the other process
        // has it.
        let _ = epoll::delete(&self.epoll, &socket);
        let Some((cipher, (own, other))) = cipher.zip(ends) else {
            return Some(DetachedConnection { socket, state, quota, unsent });
        };
        tunnels.insert(socket, own, cipher, unsent);
        Some(DetachedConnection { socket: other, state, quota, unsent: Vec::new() })
    }

    /// Ends the work of this process: gives up the listeners, on which another process accepts, passes on all
    /// connections that can be passed, and ends every other one that neither is a WebSocket nor has output on its way.
    /// To be called after each poll round from then on.
    pub fn leave(&mut self, service: &mut S, tunnels: &mut Tunnels, each: impl FnMut(DetachedConnection)) {
        self.pause_accepting(Accepting::Stopped);
        self.listeners.listeners.clear();
        self.detach(service, tunnels, each);
        for phase in [Phase::Idle, Phase::Request, Phase::Send] {
            for handle in self.table.handles_in(phase) {
                let Some(connection) = self.table.get_mut(handle) else { continue };
                // The rest of such a response would need the store.
                let is_over = phase != Phase::Send || connection.next == Next::More;
                if is_over && !service.can_stay(&connection.session) {
                    self.close_with_message(handle, service, S::expire);
                }
            }
        }
    }

    /// Closes upgraded connections, with a message, until this many are left.
    pub fn close_upgraded(&mut self, service: &mut S, left: usize) {
        let upgraded = self.table.handles_in(Phase::Upgraded);
        for &handle in upgraded.iter().take(upgraded.len().saturating_sub(left)) {
            self.close_with_message(handle, service, S::expire);
        }
    }

    /// Continues a connection of another process; a WebSocket only from [`read_attached`](Self::read_attached) on.
    /// Closes it if there is no room, or if its state makes no sense.
    pub fn attach(&mut self, connection: DetachedConnection, now_ms: u64, service: &mut S) {
        let DetachedConnection { socket, state, quota, unsent } = connection;
        self.table.counters().accepted.increment();
        let admitted = self.admit(quota, service);
        let admitted = match admitted {
            Ok(admission) => match service.attach(self.table.next_handle(), &state) {
                Some(session) => Some((admission, session)),
                None => {
                    self.table.cancel(&admission);
                    self.table.counters().ended.of(EndReason::Failed).increment();
                    self.table.counters().closed.increment();
                    None
                }
            },
            Err(refused) => {
                self.count_refusal(refused);
                None
            }
        };
        let Some((admission, session)) = admitted else {
            // In the middle of other output, a message would make no sense.
            if unsent.is_empty() {
                let mut message = Vec::new();
                service.refuse_detached(quota.kind, &mut message);
                self.table.counters().add_write(try_send(&socket, &message));
            }
            return;
        };
        let has_unsent = !unsent.is_empty();
        let connection = Connection { unsent, ..Connection::new(session, socket) };
        let handle = self.table.insert(admission, connection, now_ms);
        if has_unsent {
            self.table.enter(handle, Phase::Send, now_ms);
            if quota.kind == ConnectionKind::WebSocket {
                self.report_backlog(handle, service);
            }
        }
        if quota.kind == ConnectionKind::WebSocket {
            self.attached.push(handle);
        } else {
            self.begin_input(handle, now_ms, service);
        }
    }

    /// Returns whether WebSockets wait for [`read_attached`](Self::read_attached).
    pub const fn has_attached(&self) -> bool {
        !self.attached.is_empty()
    }

    /// Begins to read from the attached WebSockets. Until then they wait, because messages for clients that another
    /// process still has would be lost.
    pub fn read_attached(&mut self, now_ms: u64, service: &mut S) {
        for handle in mem::take(&mut self.attached) {
            self.begin_input(handle, now_ms, service);
        }
    }

    /// Handles the input of a connection of another process.
    fn begin_input(&mut self, handle: Handle, now_ms: u64, service: &mut S) {
        // The state may contain a request.
        if self.serve_input(handle, 0, now_ms, service) == Outcome::Open
            && self.table.get_mut(handle).is_some_and(|connection| !connection.waits)
        {
            self.take_turn(handle, EventFlags::IN, now_ms, service);
        }
    }
}
