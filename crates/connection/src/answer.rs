//! The answers of HTTP that are not the tracker's own.

use shoal_engine::Now;
use shoal_wire::http::Version;
use shoal_wire::http::date::Date;
use shoal_wire::http::response::{Framing, ResponseHead, Status};
use shoal_wire::websocket::handshake;

/// What a client is told that asks for nothing which is served.
pub(crate) const NOT_FOUND: &str = "this is a BitTorrent tracker: ask for /announce or /scrape\n";

/// What a client is told that speaks HTTP to a listener for TLS.
pub(crate) const PLAIN_HTTP: &str = "this port speaks HTTPS\n";

/// What a client is told for whom there is no room.
pub(crate) const BUSY: &str = "the tracker is busy, try again later\n";

/// What a client is told whose request takes more memory than there is.
pub(crate) const OUT_OF_MEMORY: &str = "the tracker has not enough memory, try again later\n";

/// What a client is told that asks for a WebSocket and has as many as it may have.
pub(crate) const TOO_MANY_WEBSOCKETS: &str =
    "there are too many WebSockets from your address, try again later\n";

/// What a client is told whose request has not come to its end when its time is up, or the tracker stops.
pub(crate) const TOO_SLOW: &str = "the request did not come to its end in time\n";

/// What a client is told that asks for a WebSocket where none are served.
pub(crate) const NO_WEBTORRENT: &str = "this tracker does not serve WebTorrent\n";

/// What a client is told that speaks another version of WebSocket.
pub(crate) const OTHER_VERSION: &str = "this tracker speaks WebSocket in version 13\n";

/// What a page is told whose site is not served.
pub(crate) const FOREIGN_ORIGIN: &str = "this tracker does not serve pages of this origin\n";

/// For how long somebody who comes at a bad time is asked to stay away, in seconds.
const RETRY_AFTER_S: &str = "60";

/// The date of responses, written once a second.
#[derive(Debug)]
pub(crate) struct Dates {
    unix_s: u64,
    date: Date,
}

impl Dates {
    /// Before any response.
    pub(crate) const fn new() -> Self {
        Self { unix_s: 0, date: Date::EPOCH }
    }

    /// The date of a response that is given now.
    pub(crate) fn at(&mut self, now: Now) -> &Date {
        if self.unix_s != now.unix_s {
            *self = Self { unix_s: now.unix_s, date: Date::from_unix_s(now.unix_s) };
        }
        &self.date
    }
}

/// What a status needs besides itself.
pub(crate) const fn fields(status: Status) -> &'static [(&'static str, &'static str)] {
    match status {
        // RFC 9110, 15.5.6: the field is a must.
        Status::MethodNotAllowed => &[("Allow", "GET, HEAD")],
        Status::ServiceUnavailable => &[("Retry-After", RETRY_AFTER_S)],
        Status::UpgradeRequired => &handshake::UPGRADE_REQUIRED_FIELDS,
        _ => &[],
    }
}

/// Writes an answer behind which the connection ends.
pub(crate) fn last(status: Status, words: &str, now: Now, out: &mut Vec<u8>) {
    let head = ResponseHead {
        status,
        version: Version::Http11,
        keep_alive: false,
        framing: length(words.as_bytes()),
        date: &Date::from_unix_s(now.unix_s),
        fields: fields(status),
    };
    head.encode(out);
    out.extend_from_slice(words.as_bytes());
}

/// The framing of a body that is all there.
pub(crate) fn length(body: &[u8]) -> Framing {
    Framing::Length(u64::try_from(body.len()).expect("no body is that long"))
}
