//! What is kept of a connection from one call to the next.

use crate::scrape::Delivery;
use crate::source::Source;

/// The state of a connection. One that idles over plain HTTP owns no memory beyond this.
#[derive(Debug)]
pub struct Session {
    /// What has come of the next request, or has come and not been looked at while an answer is under way.
    pub(crate) kept: Vec<u8>,
    /// None before the first bytes of a handshake.
    pub(crate) tls: Option<Box<shoal_tls::Session>>,
    /// The full scrape that is under way.
    pub(crate) delivery: Option<Box<Delivery>>,
    pub(crate) source: Source,
    /// Whether the source is a trusted proxy.
    pub(crate) is_trusted: bool,
    /// Whether it was accepted by a listener for TLS.
    pub(crate) is_tls: bool,
    pub(crate) stage: Stage,
    /// How much of the body of the last request is still to be read past.
    pub(crate) skip_bytes: u16,
}

/// What is expected on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The header of the PROXY protocol.
    Proxy,
    /// Requests, inside of TLS or not.
    Http,
    /// Nothing that is heard.
    Over,
}

impl Session {
    pub(crate) const fn new(stage: Stage, is_tls: bool, source: Source, is_trusted: bool) -> Self {
        Self { kept: Vec::new(), tls: None, delivery: None, source, is_trusted, is_tls, stage, skip_bytes: 0 }
    }

    /// Reads past what is left of the body of the last request.
    pub(crate) fn skip<'i>(&mut self, input: &'i [u8]) -> &'i [u8] {
        let skipped = input.len().min(self.skip_bytes.into());
        self.skip_bytes -= u16::try_from(skipped).expect("no more than a u16 are skipped");
        &input[skipped..]
    }

    /// How many bytes of what has come it holds, those inside of TLS not counted.
    #[must_use]
    pub const fn kept_bytes(&self) -> usize {
        self.kept.capacity()
    }

    /// Whether part of a request has come that was not answered. A body that is still to be read past is not one: its
    /// request has its answer, and a second one could be taken for that to the next.
    pub(crate) const fn is_half_asked(&self) -> bool {
        !self.kept.is_empty()
    }
}

// Ten thousand of these idle at the same time, and are to be small beside what the kernel keeps of a connection.
const _: () = assert!(size_of::<Session>() <= 64);
