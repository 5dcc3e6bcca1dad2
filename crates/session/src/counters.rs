//! The counters of the sessions of a worker, with their metrics.

use crate::tls::FailureKind;
use shoal_base::metrics::{counters, labels};
use shoal_wire::http::response::Status;

labels! {
    /// The outcome of a TLS handshake.
    pub enum Handshake {
        /// It completed, with new keys and a certificate.
        Full = "full",
        /// It completed by resuming an earlier session.
        Resumed = "resumed",
        /// The client sent HTTP without TLS.
        PlainHttp = "plain_http",
        /// Client and server share no version, cipher, key exchange or application protocol.
        Incompatible = "incompatible",
        /// The client ended it with an alert, for example because it does not trust the certificate.
        Alert = "alert",
        /// The client violated the protocol.
        Malformed = "malformed",
        /// The connection ended before the handshake did: the client closed it, was too slow, or was evicted.
        Abandoned = "abandoned",
    }
}

labels! {
    /// The outcome of a request for an upgrade to a WebSocket.
    pub enum Upgraded {
        /// The connection is a WebSocket.
        Accepted = "accepted",
        /// Declined, because WebTorrent is not served.
        NotServed = "not_served",
        /// Declined, because the request violates RFC 6455.
        Malformed = "malformed",
        /// Declined, because the client wants another version of the protocol.
        Version = "version",
        /// Declined by the lists of origins.
        Origin = "origin",
        /// Declined, because a trusted proxy does not name its client.
        Unnamed = "unnamed",
        /// Declined, because the source has its maximum of WebSockets.
        Limit = "limit",
        /// Not answered, because a rule drops it.
        Dropped = "dropped",
        /// Declined, because the source asks too often.
        RateLimited = "rate_limited",
        /// Declined, because too many tokens of this source, or of all, need verification.
        TokenLimited = "token_limited",
    }
}

labels! {
    /// The status of a response.
    pub enum StatusLabel {
        /// An upgrade to a WebSocket.
        SwitchingProtocols = "101",
        /// Success, or a refusal that clients show to their users.
        Ok = "200",
        /// The client has what it asks for.
        NotModified = "304",
        /// Not HTTP, or ambiguous.
        BadRequest = "400",
        /// Not available to this client.
        Forbidden = "403",
        /// No such path.
        NotFound = "404",
        /// Neither GET nor HEAD.
        MethodNotAllowed = "405",
        /// The request did not arrive in time.
        RequestTimeout = "408",
        /// A body without a length.
        LengthRequired = "411",
        /// The body is too large.
        ContentTooLarge = "413",
        /// The request line is too long.
        UriTooLong = "414",
        /// Another version of WebSocket is required.
        UpgradeRequired = "426",
        /// The source asks too often.
        TooManyRequests = "429",
        /// The head is too large.
        HeaderFieldsTooLarge = "431",
        /// No capacity left.
        ServiceUnavailable = "503",
    }
}

counters! {
    /// The counters of the sessions of a worker.
    pub struct SessionCounters {
        /// TLS handshakes that began, by outcome: full and resumed ones completed, the others failed.
        pub handshakes = "shoal_tls_handshakes", by outcome: Handshake;
        /// HTTP responses by status, including those to requests that were not for the tracker.
        pub responses = "shoal_http_responses", by status: StatusLabel;
        /// Requests for an upgrade to a WebSocket, by outcome: accepted, or the reason for declining it.
        pub upgrades = "shoal_websocket_upgrades", by outcome: Upgraded;
    }
}

impl From<Status> for StatusLabel {
    fn from(status: Status) -> Self {
        match status {
            Status::Ok => Self::Ok,
            Status::NotModified => Self::NotModified,
            Status::BadRequest => Self::BadRequest,
            Status::Forbidden => Self::Forbidden,
            Status::NotFound => Self::NotFound,
            Status::MethodNotAllowed => Self::MethodNotAllowed,
            Status::RequestTimeout => Self::RequestTimeout,
            Status::LengthRequired => Self::LengthRequired,
            Status::ContentTooLarge => Self::ContentTooLarge,
            Status::UriTooLong => Self::UriTooLong,
            Status::UpgradeRequired => Self::UpgradeRequired,
            Status::TooManyRequests => Self::TooManyRequests,
            Status::HeaderFieldsTooLarge => Self::HeaderFieldsTooLarge,
            Status::ServiceUnavailable => Self::ServiceUnavailable,
        }
    }
}

impl From<FailureKind> for Handshake {
    fn from(kind: FailureKind) -> Self {
        match kind {
            FailureKind::PlainHttp => Self::PlainHttp,
            FailureKind::Incompatible => Self::Incompatible,
            FailureKind::Alert => Self::Alert,
            FailureKind::Violation => Self::Malformed,
        }
    }
}
