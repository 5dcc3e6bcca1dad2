//! The service of a worker: passes the requests of its back ends to the responders, together with the time.

use std::sync::Arc;

use shoal_base::transport::datagram::{DatagramService, Exchange};
use shoal_base::transport::stream::{
    ConnectionKind, Detached, Handle, Held, Next, Quota, Remote, StreamService,
};
use shoal_engine::pace::Pace;
use shoal_engine::policy::Protocol;
use shoal_engine::udp::Responder;
use shoal_net::stream::StreamLimits;
use shoal_session::{Service as Connections, Session, Statistics};

use shoal_runtime::clock;
use shoal_runtime::live::Live;
use shoal_runtime::live::WorkerEndpoints;
use shoal_runtime::processing::Stopwatch;
use shoal_runtime::published::Subscription;

#[derive(Debug)]
pub(crate) struct WorkerService {
    pub(crate) datagrams: Responder,
    pub(crate) connections: Connections,
    pub(crate) live: Subscription<Live>,
    pub(crate) statistics: Subscription<Statistics>,
    /// The number of the worker, in the order of the wakers.
    pub(crate) number: usize,
    /// New limits that the I/O of connections has not adopted yet.
    pub(crate) new_limits: Option<StreamLimits>,
    /// New sockets and listeners that the worker has not adopted yet.
    pub(crate) new_endpoints: Option<WorkerEndpoints>,
    pub(crate) stopwatch: Stopwatch,
    /// Whether the last input came from a WebSocket.
    pub(crate) is_socket_input: bool,
}

impl WorkerService {
    /// Adopts the last reload and the latest statistics, if they have changed since the last call. Without a change,
    /// this loads two cache lines that no thread writes.
    pub(crate) fn follow_reload(&mut self) {
        if let Some(statistics) = self.statistics.update() {
            self.connections.set_statistics(statistics);
            self.statistics.acknowledge();
        }
        let Some(live) = self.live.update() else { return };
        self.datagrams.set_policy(Arc::clone(&live.policy));
        self.datagrams.set_connection_key(&live.connection_key, clock::unix_s());
        self.connections.reconfigure(Arc::clone(&live.sessions), &live.policy);
        self.new_limits = Some(live.stream_limits);
        if let Some(endpoints) = live.endpoints.take(self.number) {
            self.new_endpoints = Some(endpoints);
        }
        self.live.acknowledge();
    }
}

impl WorkerService {
    pub(crate) fn set_pace(&mut self, pace: Pace) {
        self.datagrams.set_pace(pace);
        self.connections.set_pace(pace);
    }
}

impl DatagramService for WorkerService {
    fn serve(&mut self, batch: &mut [Exchange<'_>]) {
        self.stopwatch.begin();
        self.stopwatch.note_size(batch.len());
        self.follow_reload();
        self.datagrams.serve(batch, clock::now());
    }

    fn sent(&mut self) {
        self.stopwatch.end(Protocol::Udp);
    }
}

impl StreamService for WorkerService {
    type Session = Session;

    fn open(&mut self, remote: &Remote, handle: Handle) -> Session {
        self.connections.open(remote, handle)
    }

    fn detach(&mut self, session: &mut Session, output: &mut Vec<u8>) -> Option<Detached> {
        self.connections.detach(session, output, clock::now())
    }

    fn is_encrypted(&self, session: &Session) -> bool {
        session.is_encrypted()
    }

    fn can_stay(&self, session: &Session) -> bool {
        session.is_websocket()
    }

    fn attach(&mut self, handle: Handle, state: &[u8]) -> Option<Session> {
        self.connections.attach(handle, state, clock::now())
    }

    fn refuse_detached(&mut self, kind: ConnectionKind, output: &mut Vec<u8>) {
        Connections::refuse_detached(kind, output);
    }

    fn end_input(&mut self, session: &mut Session, output: &mut Vec<u8>) {
        self.connections.end_input(session, output);
    }

    fn receive(&mut self, session: &mut Session, input: &mut [u8], output: &mut Vec<u8>) -> Next {
        // Without input, the connection continues with an earlier request.
        if !input.is_empty() {
            self.stopwatch.begin();
        }
        let next = self.connections.receive(session, input, output, clock::now());
        self.is_socket_input = session.is_websocket();
        next
    }

    fn replied(&mut self) {
        // Messages of WebSockets leave at the end of the poll round.
        if !self.is_socket_input {
            self.stopwatch.end(Protocol::Http);
        }
    }

    fn changed_quota(&mut self, session: &mut Session) -> Option<Quota> {
        self.connections.changed_quota(session)
    }

    fn is_established(&self, session: &Session) -> bool {
        self.connections.is_established(session)
    }

    fn next_to_write(&mut self) -> Option<Handle> {
        self.connections.next_to_write()
    }

    fn write(&mut self, session: &mut Session, output: &mut Vec<u8>) -> Next {
        self.connections.write(session, output)
    }

    fn set_backlog(&mut self, handle: Handle, unsent_bytes: usize) {
        self.connections.set_backlog(handle, unsent_bytes);
    }

    fn keep_alive(&mut self, session: &mut Session, output: &mut Vec<u8>) -> Next {
        self.connections.keep_alive(session, output)
    }

    fn expire(&mut self, session: &mut Session, output: &mut Vec<u8>) {
        self.connections.expire(session, output, clock::now());
    }

    fn shed(&mut self, session: &mut Session, output: &mut Vec<u8>) {
        self.connections.shed(session, output, clock::now());
    }

    fn held(&self, session: &Session) -> Held {
        self.connections.held(session)
    }

    fn refuse(&mut self, remote: &Remote, output: &mut Vec<u8>) {
        self.connections.refuse(remote, output, clock::now());
    }

    fn close(&mut self, session: Session) {
        self.connections.close(session);
    }

    fn may_connect(&mut self, remote: &Remote) -> bool {
        self.connections.may_connect(remote, clock::now())
    }

    fn is_limited(&self, remote: &Remote) -> bool {
        self.connections.is_limited(remote)
    }
}
