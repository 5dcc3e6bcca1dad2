//! Whether a connection becomes a WebSocket.
//!
//! Owns which requests for one are declined, and in which words. The path is not looked at: clients ask for `/`,
//! `/announce`, and whatever else a tracker is known by.

use std::net::IpAddr;

use shoal_engine::refusal::Refusal;
use shoal_wire::http::head::RequestHead;
use shoal_wire::http::response::Status;
use shoal_wire::websocket::handshake::{self, Accept, Asked};

use crate::answer;
use crate::settings::WebSocket;
use crate::source::NoClient;

/// Why a connection stays what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Declined {
    pub(crate) status: Status,
    /// What the client is told.
    pub(crate) words: &'static str,
}

/// What a request for a WebSocket by `client` is answered, where it is one. Without settings none are served.
pub(crate) fn consider(
    settings: Option<&WebSocket>,
    request: &RequestHead<'_, '_>,
    client: impl FnOnce() -> Result<IpAddr, NoClient>,
) -> Option<Result<(Accept, IpAddr), Declined>> {
    let declined = |status, words| Some(Err(Declined { status, words }));
    let asked = handshake::request(request);
    if asked == Asked::No {
        return None;
    }
    let Some(settings) = settings else {
        return declined(Status::NotFound, answer::NO_WEBTORRENT);
    };
    match asked {
        Asked::No => None,
        Asked::Malformed(words) => declined(Status::BadRequest, words),
        Asked::Version => declined(Status::UpgradeRequired, answer::OTHER_VERSION),
        Asked::WebSocket(_) if !settings.origins.admit(request.header("origin")) => {
            declined(Status::Forbidden, answer::FOREIGN_ORIGIN)
        }
        Asked::WebSocket(accept) => match client() {
            Ok(ip) => Some(Ok((accept, ip))),
            Err(NoClient) => declined(Status::BadRequest, Refusal::ProxyWithoutClient.message()),
        },
    }
}
