//! The service of a worker: passes the requests of its back ends to the responders, together with the time.

use shoal_connection::{Service as Connections, Session};
use shoal_engine::udp::Responder;
use shoal_net::Service;
use shoal_net::stream::StreamService;
use shoal_wire::datagram::Exchange;
use shoal_wire::stream::{Claim, Handle, Held, Next, Origin};

use crate::clock;

/// The responders of a worker.
#[derive(Debug)]
pub(crate) struct WorkerService {
    pub(crate) datagrams: Responder,
    pub(crate) connections: Connections,
}

impl Service for WorkerService {
    fn serve(&mut self, batch: &mut [Exchange<'_>]) {
        self.datagrams.serve(batch, clock::now());
    }
}

impl StreamService for WorkerService {
    type Session = Session;

    fn open(&mut self, origin: &Origin, handle: Handle) -> Session {
        self.connections.open(origin, handle)
    }

    fn receive(&mut self, session: &mut Session, input: &mut [u8], output: &mut Vec<u8>) -> Next {
        self.connections.receive(session, input, output, clock::now())
    }

    fn claim(&mut self, session: &mut Session) -> Option<Claim> {
        self.connections.claim(session)
    }

    fn speaker(&mut self) -> Option<Handle> {
        self.connections.speaker()
    }

    fn suspect(&mut self) -> Option<Handle> {
        self.connections.suspect()
    }

    fn vouch(&mut self) {
        self.connections.vouch();
    }

    fn speak(&mut self, session: &mut Session, output: &mut Vec<u8>) -> Next {
        self.connections.speak(session, output)
    }

    fn backlog(&mut self, handle: Handle, unsent_bytes: usize) {
        self.connections.backlog(handle, unsent_bytes);
    }

    fn tend(&mut self, session: &mut Session, output: &mut Vec<u8>) -> Next {
        self.connections.tend(session, output)
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

    fn refuse(&mut self, origin: &Origin, output: &mut Vec<u8>) {
        self.connections.refuse(origin, output, clock::now());
    }

    fn close(&mut self, session: Session) {
        self.connections.close(session);
    }

    fn is_limited(&self, origin: &Origin) -> bool {
        self.connections.is_limited(origin)
    }
}
