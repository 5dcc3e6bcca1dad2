//! The HTTP responses that are not the tracker's own.

use shoal_engine::Now;
use shoal_wire::http::Version;
use shoal_wire::http::date::Date;
use shoal_wire::http::response::{Framing, PLAIN_TEXT, ResponseHead, Status};
use shoal_wire::websocket::handshake;

use crate::counters::SessionCounters;

/// The body for a path that is not served.
pub(crate) const NOT_FOUND: &str = "this is a BitTorrent tracker: ask for /announce or /scrape\n";

/// The body for a client that sends plain HTTP to a TLS listener.
pub(crate) const PLAIN_HTTP: &str = "this port speaks HTTPS\n";

/// The body for a client that exceeds the connection limits.
pub(crate) const BUSY: &str = "the tracker is busy, try again later\n";

/// The body for a request that exceeds the available memory.
pub(crate) const OUT_OF_MEMORY: &str = "the tracker has not enough memory, try again later\n";

/// The body for a WebSocket upgrade of a source that asks too often.
pub(crate) const TOO_OFTEN: &str = "there are too many requests from your address, try again later\n";

/// The body for a WebSocket upgrade of a source with its maximum number of them.
pub(crate) const TOO_MANY_WEBSOCKETS: &str =
    "there are too many WebSockets from your address, try again later\n";

/// The body for a request that is incomplete when its time is up or the tracker stops.
pub(crate) const TOO_SLOW: &str = "the request did not come to its end in time\n";

/// The body for a WebSocket upgrade if WebTorrent is not served.
pub(crate) const NO_WEBTORRENT: &str = "this tracker does not serve WebTorrent\n";

/// The body for a client that requests another version of WebSocket.
pub(crate) const OTHER_VERSION: &str = "this tracker speaks WebSocket in version 13\n";

/// The body for a page whose origin is not served.
pub(crate) const FOREIGN_ORIGIN: &str = "this tracker does not serve pages of this origin\n";

/// The body for a client without an origin, if only pages of some origins are served.
pub(crate) const NO_ORIGIN: &str =
    "this tracker serves WebSockets of certain origins only, and the request has no Origin\n";

/// Seconds after which a client that was refused for lack of capacity may retry.
const RETRY_AFTER_S: &str = "60";

/// The date of responses, formatted once per second.
#[derive(Debug)]
pub(crate) struct Dates {
    unix_s: u64,
    date: Date,
}

impl Dates {
    pub(crate) const fn new() -> Self {
        Self { unix_s: 0, date: Date::EPOCH }
    }

    pub(crate) fn at(&mut self, now: Now) -> &Date {
        if self.unix_s != now.unix_s {
            *self = Self { unix_s: now.unix_s, date: Date::from_unix_s(now.unix_s) };
        }
        &self.date
    }
}

/// Returns the header fields that a status requires.
pub(crate) const fn fields(status: Status) -> &'static [(&'static str, &'static str)] {
    match status {
        // RFC 9110, 15.5.6: the field is mandatory.
        Status::MethodNotAllowed => &[("Allow", "GET, HEAD")],
        Status::ServiceUnavailable | Status::TooManyRequests => &[("Retry-After", RETRY_AFTER_S)],
        Status::UpgradeRequired => &handshake::UPGRADE_REQUIRED_FIELDS,
        _ => &[],
    }
}

/// Writes and counts a response after which the connection ends.
pub(crate) fn write_last(
    counters: &SessionCounters,
    status: Status,
    text: &str,
    now: Now,
    out: &mut Vec<u8>,
) {
    counters.responses.of(status.into()).increment();
    let head = ResponseHead {
        status,
        version: Version::Http11,
        keep_alive: false,
        content_type: PLAIN_TEXT,
        framing: length(text.as_bytes()),
        date: &Date::from_unix_s(now.unix_s),
        fields: fields(status),
    };
    head.encode(out);
    out.extend_from_slice(text.as_bytes());
}

pub(crate) fn length(body: &[u8]) -> Framing {
    Framing::Length(u64::try_from(body.len()).expect("no body is that long"))
}
