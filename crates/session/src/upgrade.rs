//! Whether a connection becomes a WebSocket.
//!
//! This module owns which upgrade requests are declined, and with which error. It ignores the path: clients
//! request `/`, `/announce`, and any other path that a tracker is known by.

use std::net::IpAddr;

use shoal_wire::http::head::RequestHead;
use shoal_wire::http::response::Status;
use shoal_wire::websocket::handshake::{self, Accept, Asked};

use crate::answer;
use crate::counters::Upgraded;
use crate::settings::WebSocket;
use crate::source::NoClient;

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upgrade {
    /// The request does not ask for a WebSocket.
    Unasked,
    /// The upgrade is accepted, for the client at this address.
    Granted(Accept, IpAddr),
    /// The upgrade is declined for this reason, with this status and text.
    Declined(Upgraded, Status, &'static str),
    /// The upgrade is declined because a proxy does not name its client.
    Unnamed,
}

/// Decides about a request by `client`. Without settings, every upgrade is declined.
pub(crate) fn consider(
    settings: Option<&WebSocket>,
    request: &RequestHead<'_, '_>,
    client: impl FnOnce() -> Result<IpAddr, NoClient>,
) -> Upgrade {
    match (handshake::request(request), settings) {
        (Asked::No, _) => Upgrade::Unasked,
        (_, None) => Upgrade::Declined(Upgraded::NotServed, Status::NotFound, answer::NO_WEBTORRENT),
        (Asked::Malformed(text), _) => Upgrade::Declined(Upgraded::Malformed, Status::BadRequest, text),
        (Asked::Version, _) => {
            Upgrade::Declined(Upgraded::Version, Status::UpgradeRequired, answer::OTHER_VERSION)
        }
        (Asked::WebSocket(_), Some(settings)) if !settings.origins.admit(request.header("origin")) => {
            Upgrade::Declined(Upgraded::Origin, Status::Forbidden, answer::FOREIGN_ORIGIN)
        }
        (Asked::WebSocket(accept), _) => client().map_or(Upgrade::Unnamed, |ip| Upgrade::Granted(accept, ip)),
    }
}
