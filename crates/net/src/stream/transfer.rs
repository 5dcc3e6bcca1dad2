//! Passing connections to another process that continues them.
//!
//! A connection can be passed while nothing is on its way to the peer, and if its service can describe its session in
//! bytes ([`StreamService::detach`]). The other process gets its socket and these bytes. To the peer, nothing happens.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventFlags};
use rustix::net::getpeername;
use shoal_transport::stream::{Next, Remote, StreamService};

use super::StreamIo;
use super::accept::{Accepting, canonical};
use super::connection::Connection;
use super::lifecycle::Outcome;
use super::table::Phase;

/// A connection between two processes.
#[derive(Debug)]
pub struct DetachedConnection {
    /// The socket.
    pub socket: OwnedFd,
    /// The state of the session, as the service describes it.
    pub state: Vec<u8>,
}

impl<S: StreamService> StreamIo<S> {
    /// Removes all connections that can be passed to another process now, and passes them to `each`. Others can be later,
    /// when their output has been sent, or never.
    pub fn detach(&mut self, service: &mut S, mut each: impl FnMut(DetachedConnection)) {
        let (idle, within_request) =
            (self.table.handles_in(Phase::Idle), self.table.handles_in(Phase::Request));
        for handle in idle.into_iter().chain(within_request) {
            let Some(connection) = self.table.get_mut(handle) else { continue };
            if connection.unsent_bytes() > 0 {
                continue;
            }
            let Some(state) = service.detach(&mut connection.session) else { continue };
            let Some(Connection { session, socket, .. }) = self.table.remove(handle) else { continue };
            service.close(session);
            // It fails if the socket is not in the set. Otherwise the set would watch it for as long as the other process
            // has it.
            let _ = epoll::delete(&self.epoll, &socket);
            each(DetachedConnection { socket, state });
        }
    }

    /// Ends the work of this process: gives up the listeners, on which another process accepts, and ends every connection that
    /// neither can be passed on nor is a WebSocket nor has output on its way. To be called after each poll round from then
    /// on.
    pub fn leave(&mut self, service: &mut S, each: impl FnMut(DetachedConnection)) {
        self.pause_accepting(Accepting::Stopped);
        self.listeners.listeners.clear();
        self.detach(service, each);
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

    /// Continues a connection of another process. If there is no room for it, or its state makes no sense, it is closed.
    pub fn attach(&mut self, connection: DetachedConnection, now_ms: u64, service: &mut S) {
        let DetachedConnection { socket, state } = connection;
        let peer = getpeername(&socket).ok().flatten().and_then(|peer| SocketAddr::try_from(peer).ok());
        let remote = Remote { listener: 0, peer: peer.map(canonical) };
        let admitted = self.admit(&remote, service);
        let Some(handle) = self.insert_or_refuse(admitted, socket, &remote, now_ms, service) else { return };
        let Some(connection) = self.table.get_mut(handle) else { return };
        if !service.attach(&mut connection.session, &state) {
            self.fail(handle, service);
            return;
        }
        // The state may contain a request.
        if self.serve_input(handle, 0, now_ms, service) == Outcome::Open {
            self.handle_event(handle, EventFlags::IN, now_ms, service);
        }
    }
}
