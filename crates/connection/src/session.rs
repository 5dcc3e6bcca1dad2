//! What is kept of a connection from one call to the next.

use core::mem;

use shoal_wire::stream::{Handle, Held, Next};

use crate::kept::Kept;
use crate::scrape::Delivery;
use crate::socket::Socket;
use crate::source::Source;

/// The state of a connection. One that idles over plain HTTP owns no memory beyond this.
#[derive(Debug)]
pub struct Session {
    pub(crate) stage: Stage,
    /// What has come of the next request or frame, or has come and not been looked at while an answer is under way.
    pub(crate) kept: Kept,
    /// None before the first bytes of a handshake.
    pub(crate) tls: Option<Box<shoal_tls::Session>>,
    /// How the back end calls it.
    pub(crate) handle: Handle,
    pub(crate) source: Source,
    /// Whether the source is a trusted proxy.
    pub(crate) is_trusted: bool,
    /// Whether it was accepted by a listener for TLS.
    pub(crate) is_tls: bool,
    /// Whether it counts towards another source or limit than the back end knows yet.
    pub(crate) has_claim: bool,
    /// How much of the body of the last request is still to be read past.
    pub(crate) skip_bytes: u16,
}

/// What is expected on a connection.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The header of the PROXY protocol.
    Proxy,
    /// Requests, inside of TLS or not.
    Http,
    /// That the answer under way is taken; then requests.
    Delivery(Box<Delivery>),
    /// Frames of a WebSocket, inside of TLS or not.
    Socket(Box<Socket>),
    /// Nothing that is heard.
    Over,
}

impl Session {
    pub(crate) const fn new(
        stage: Stage,
        is_tls: bool,
        source: Source,
        is_trusted: bool,
        handle: Handle,
    ) -> Self {
        let kept = Kept::nothing();
        Self { stage, kept, tls: None, handle, source, is_trusted, is_tls, has_claim: false, skip_bytes: 0 }
    }

    /// Reads past what is left of the body of the last request.
    pub(crate) fn skip<'i>(&mut self, input: &'i [u8]) -> &'i [u8] {
        let skipped = input.len().min(self.skip_bytes.into());
        self.skip_bytes -= u16::try_from(skipped).expect("no more than a u16 are skipped");
        &input[skipped..]
    }

    /// How many bytes of what has come it holds, those inside of TLS not counted.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        let within_message = match &self.stage {
            Stage::Socket(socket) => socket.kept_bytes(),
            _ => 0,
        };
        self.kept.capacity_bytes() + within_message
    }

    /// How much memory it holds beside itself.
    #[must_use]
    pub fn held(&self) -> Held {
        let (mut fixed, mut variable) = match &self.stage {
            Stage::Socket(socket) => (size_of::<Socket>(), socket.kept_bytes() + socket.list_bytes()),
            Stage::Delivery(delivery) => (0, delivery.held_bytes()),
            Stage::Proxy | Stage::Http | Stage::Over => (0, 0),
        };
        variable += self.kept.held_bytes();
        if let Some(tls) = &self.tls {
            fixed += tls.idle_bytes();
            variable += tls.pending_bytes();
        }
        Held { fixed, variable }
    }

    /// What it waits for, if it is a WebSocket. Everything else has nothing to wait for between two calls.
    pub(crate) fn stands(&self) -> Next {
        let Stage::Socket(socket) = &self.stage else { return Next::Close };
        match &self.tls {
            Some(tls) if tls.is_closed() => Next::Close,
            Some(tls) if tls.is_within_record() => Next::Busy,
            _ => socket.awaits(&self.kept),
        }
    }

    /// From now on nothing is heard.
    pub(crate) const fn finish(&mut self) -> Stage {
        mem::replace(&mut self.stage, Stage::Over)
    }
}

// A hundred thousand of these may stand at the same time, and are to be small beside what the kernel keeps of a
// connection.
const _: () = assert!(size_of::<Session>() <= 64);
