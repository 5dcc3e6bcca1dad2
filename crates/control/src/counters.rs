//! Counts of the requests and connections of the control listener. Its thread is the only one that counts.
//!
//! Each response is counted by its outcome in `guard`, the outermost stage. The status tells the outcome. Where two
//! reasons have the same status, the refusal carries its own.

use axum::http::StatusCode;
use axum::response::Response;
use shoal_base::metrics::{counters, labels};

labels! {
    /// The outcome of a request.
    pub(crate) enum RequestOutcome {
        /// It was answered.
        Ok = "ok",
        /// It named a host that is not ours.
        OtherHost = "other_host",
        /// A page of another site has sent it.
        OtherPage = "other_page",
        /// It had no token, although it needs one.
        NoToken = "no_token",
        /// Its token was wrong.
        WrongToken = "wrong_token",
        /// It needs a token of another role.
        Role = "role",
        /// Its client asks too often.
        RateLimited = "rate_limited",
        /// It was not what it must be.
        Invalid = "invalid",
        /// There is no such page, torrent, ban or method.
        NotFound = "not_found",
        /// The configuration or the state of the tracker does not permit it.
        Conflict = "conflict",
        /// Its body was too large.
        LargeBody = "large_body",
        /// Its body did not arrive in time.
        SlowBody = "slow_body",
        /// Too much is in progress, or the tracker is not healthy or drains.
        Unavailable = "unavailable",
        /// The tracker has failed.
        Failed = "failed",
    }
}

labels! {
    /// Why a connection did not end after its response.
    pub(crate) enum ConnectionEnd {
        /// It was closed to make room for another.
        Evicted = "evicted",
        /// It took too long, or was a feed whose time was over.
        TimeOver = "time_over",
        /// Its TLS handshake failed or took too long.
        Handshake = "handshake",
        /// Its client has closed it, sent no valid head in time, or read nothing for too long.
        Failed = "failed",
    }
}

counters! {
    /// The counters of the control listener.
    pub struct ControlCounters {
        /// Requests to the control listener by outcome: ok, or the reason for the refusal.
        pub(crate) requests = "shoal_control_requests", by outcome: RequestOutcome;
        /// Connections to the control listener that did not end after their response, by reason.
        pub(crate) ended = "shoal_control_connections_ended", by reason: ConnectionEnd;
    }
}

impl ControlCounters {
    /// Counts a response. Where its status does not tell the reason, an extension does.
    pub(super) fn count(&self, response: &Response) {
        let told = response.extensions().get::<RequestOutcome>().copied();
        self.requests.of(told.unwrap_or_else(|| RequestOutcome::of(response.status()))).increment();
    }
}

impl RequestOutcome {
    fn of(status: StatusCode) -> Self {
        match status {
            StatusCode::UNAUTHORIZED => Self::NoToken,
            StatusCode::FORBIDDEN => Self::Role,
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Self::NotFound,
            StatusCode::REQUEST_TIMEOUT => Self::SlowBody,
            StatusCode::CONFLICT => Self::Conflict,
            StatusCode::PAYLOAD_TOO_LARGE => Self::LargeBody,
            StatusCode::MISDIRECTED_REQUEST => Self::OtherHost,
            StatusCode::TOO_MANY_REQUESTS => Self::RateLimited,
            StatusCode::SERVICE_UNAVAILABLE => Self::Unavailable,
            status if status.is_client_error() => Self::Invalid,
            status if status.is_server_error() => Self::Failed,
            _ => Self::Ok,
        }
    }
}
