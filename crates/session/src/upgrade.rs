//! Whether a connection becomes a WebSocket.
//!
//! This module owns which upgrade requests are declined, and with which error. It ignores the path: clients request
//! `/`, `/announce`, and any other path that a tracker is known by.

use std::net::IpAddr;

use shoal_wire::http::head::RequestHead;
use shoal_wire::http::response::Status;
use shoal_wire::websocket::handshake::{self, Accept, Asked};

use crate::counters::Upgraded;
use crate::response;
use crate::settings::WebSocketSettings;
use crate::source::NoClient;

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upgrade {
    /// The request does not ask for a WebSocket.
    NotRequested,
    /// The upgrade is accepted, for the client at this address.
    Accepted(Accept, IpAddr),
    /// The upgrade is declined for this reason, with this status and text.
    Declined(Upgraded, Status, &'static str),
    /// The upgrade is declined because a proxy does not name its client.
    NoClient,
}

/// Decides about a request by `client`. Without settings, every upgrade is declined.
pub(crate) fn decide(
    settings: Option<&WebSocketSettings>,
    request: &RequestHead<'_, '_>,
    client: impl FnOnce() -> Result<IpAddr, NoClient>,
) -> Upgrade {
    match (handshake::request(request), settings) {
        (Asked::No, _) => Upgrade::NotRequested,
        (_, None) => Upgrade::Declined(Upgraded::NotServed, Status::NotFound, response::NO_WEBTORRENT),
        (Asked::Malformed(text), _) => Upgrade::Declined(Upgraded::Malformed, Status::BadRequest, text),
        (Asked::Version, _) => {
            Upgrade::Declined(Upgraded::Version, Status::UpgradeRequired, response::OTHER_VERSION)
        }
        (Asked::WebSocket(_), Some(settings)) if !settings.origins.admit(request.header("origin")) => {
            let has_origin = request.header("origin").next().is_some();
            let text = if has_origin { response::FOREIGN_ORIGIN } else { response::NO_ORIGIN };
            Upgrade::Declined(Upgraded::Origin, Status::Forbidden, text)
        }
        (Asked::WebSocket(accept), _) => {
            client().map_or(Upgrade::NoClient, |ip| Upgrade::Accepted(accept, ip))
        }
    }
}
