//! The state of a connection between two calls.

use core::mem;

use shoal_base::transport::stream::{Handle, Held, Next};

use crate::delivery::Delivery;
use crate::partial::PartialInput;
use crate::source::ClientSource;
use crate::websocket::WebSocket;

/// The state of a connection. An idle one over plain HTTP owns no memory beyond this.
#[derive(Debug)]
pub struct Session {
    pub(crate) stage: Stage,
    /// The received part of the next request or frame, or input that is not read yet while a response is in progress.
    pub(crate) partial: PartialInput,
    /// `None` before the first bytes of a handshake.
    pub(crate) tls: Option<Box<crate::tls::Session>>,
    /// The back end's name for the connection.
    pub(crate) handle: Handle,
    pub(crate) source: ClientSource,
    /// Whether the source is a trusted proxy.
    pub(crate) is_trusted: bool,
    /// Whether a TLS listener accepted it.
    pub(crate) is_tls: bool,
    /// Whether its TLS session is in another process, which passes on the decrypted bytes.
    pub(crate) is_tunnelled: bool,
    /// Whether it counts towards another source or limit than the back end knows.
    pub(crate) quota_changed: bool,
    /// Number of remaining bytes to skip of the last request's body.
    pub(crate) skip_bytes: u16,
}

/// The stage of a connection: the next expected input.
#[derive(Debug)]
pub(crate) enum Stage {
    /// The header of the PROXY protocol.
    Proxy,
    /// Requests, inside of TLS or not.
    Http,
    /// The end of the full scrape in progress; then requests.
    Delivery(Box<Delivery>),
    /// Frames of a WebSocket, inside of TLS or not.
    WebSocket(Box<WebSocket>),
    /// Nothing: the session has ended.
    Over,
}

impl Session {
    pub(crate) const fn new(
        stage: Stage,
        is_tls: bool,
        source: ClientSource,
        is_trusted: bool,
        handle: Handle,
    ) -> Self {
        let partial = PartialInput::nothing();
        Self {
            stage,
            partial,
            tls: None,
            handle,
            source,
            is_trusted,
            is_tls,
            is_tunnelled: false,
            quota_changed: false,
            skip_bytes: 0,
        }
    }

    /// Skips the rest of the body of the last request.
    pub(crate) fn skip<'i>(&mut self, input: &'i [u8]) -> &'i [u8] {
        let skipped = input.len().min(self.skip_bytes.into());
        self.skip_bytes -= u16::try_from(skipped).expect("no more than a u16 are skipped");
        &input[skipped..]
    }

    /// Returns how many received bytes it holds, except inside of TLS.
    pub fn buffered_bytes(&self) -> usize {
        let within_message = match &self.stage {
            Stage::WebSocket(socket) => socket.buffered_bytes(),
            _ => 0,
        };
        self.partial.capacity_bytes() + within_message
    }

    /// Returns whether it has become a WebSocket.
    pub const fn is_websocket(&self) -> bool {
        matches!(self.stage, Stage::WebSocket(_))
    }

    /// Returns whether it has a TLS session.
    pub const fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns how much memory it holds in addition to itself.
    pub fn held(&self) -> Held {
        let (mut fixed, mut variable) = match &self.stage {
            Stage::WebSocket(socket) => {
                (size_of::<WebSocket>(), socket.buffered_bytes() + socket.member_bytes())
            }
            Stage::Delivery(delivery) => (0, delivery.held_bytes()),
            Stage::Proxy | Stage::Http | Stage::Over => (0, 0),
        };
        variable += self.partial.held_bytes();
        if let Some(tls) = &self.tls {
            fixed += tls.idle_bytes();
            variable += tls.pending_bytes();
        }
        Held { fixed, variable }
    }

    /// Returns what it waits for if it is a WebSocket. All other stages wait for nothing between two calls.
    pub(crate) fn awaits(&self) -> Next {
        let Stage::WebSocket(socket) = &self.stage else { return Next::Close };
        match &self.tls {
            Some(tls) if tls.is_closed() => Next::Close,
            Some(tls) if tls.is_within_record() => Next::Busy,
            _ => socket.awaits(&self.partial),
        }
    }

    /// Ends the session: no more input is read.
    pub(crate) const fn finish(&mut self) -> Stage {
        mem::replace(&mut self.stage, Stage::Over)
    }
}

// There may be a hundred thousand of these at the same time. They should be small compared with the kernel's state of a
// connection.
const _: () = assert!(size_of::<Session>() <= 64);
