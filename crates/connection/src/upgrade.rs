//! Whether a connection becomes a WebSocket.
//!
//! Owns which requests for one are declined, and in which words. The path is not looked at: clients ask for `/`,
//! `/announce`, and whatever else a tracker is known by.

use std::net::IpAddr;

use shoal_wire::http::head::RequestHead;
use shoal_wire::http::response::Status;
use shoal_wire::websocket::handshake::{self, Accept, Asked};

use crate::answer;
use crate::settings::WebSocket;
use crate::source::NoClient;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upgrade {
    /// It asks for no WebSocket.
    Unasked,
    /// It gets a WebSocket, for the client at this address.
    Granted(Accept, IpAddr),
    /// It gets this status, and these words.
    Declined(Status, &'static str),
    /// It gets no WebSocket, because a proxy does not tell for whom it asks.
    Unnamed,
}

/// What becomes of a request by `client`. Without settings nobody gets a WebSocket.
pub(crate) fn consider(
    settings: Option<&WebSocket>,
    request: &RequestHead<'_, '_>,
    client: impl FnOnce() -> Result<IpAddr, NoClient>,
) -> Upgrade {
    match (handshake::request(request), settings) {
        (Asked::No, _) => Upgrade::Unasked,
        (_, None) => Upgrade::Declined(Status::NotFound, answer::NO_WEBTORRENT),
        (Asked::Malformed(words), _) => Upgrade::Declined(Status::BadRequest, words),
        (Asked::Version, _) => Upgrade::Declined(Status::UpgradeRequired, answer::OTHER_VERSION),
        (Asked::WebSocket(_), Some(settings)) if !settings.origins.admit(request.header("origin")) => {
            Upgrade::Declined(Status::Forbidden, answer::FOREIGN_ORIGIN)
        }
        (Asked::WebSocket(accept), _) => client().map_or(Upgrade::Unnamed, |ip| Upgrade::Granted(accept, ip)),
    }
}
