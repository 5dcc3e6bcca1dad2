//! Counts of the requests and connections of the control listener. Only its thread counts.
//!
//! `guard`, the outermost stage, counts each response by its outcome, which follows from the status. If two reasons
//! have the same status, the refusal carries its own.

use axum::http::StatusCode;
use axum::response::Response;
use shoal_base::metrics::{counters, labels};

labels! {
    /// The outcome of a request.
    pub(crate) enum RequestOutcome {
        /// The request was answered.
        Ok = "ok",
        /// The request named a host that is not ours.
        OtherHost = "other_host",
        /// A page of another site has sent the request.
        OtherPage = "other_page",
        /// The request lacked a necessary token.
        NoToken = "no_token",
        /// The token was wrong.
        WrongToken = "wrong_token",
        /// The request needs a token of another role.
        Role = "role",
        /// The client asks too often.
        RateLimited = "rate_limited",
        /// The request was invalid.
        Invalid = "invalid",
        /// There is no such page, torrent, ban or method.
        NotFound = "not_found",
        /// The configuration or the state of the tracker does not permit the request.
        Conflict = "conflict",
        /// The body was too large.
        LargeBody = "large_body",
        /// The body did not arrive in time.
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
        /// The connection made room for another.
        Evicted = "evicted",
        /// The connection took too long, or was a feed whose time was over.
        TimeOver = "time_over",
        /// The TLS handshake failed or took too long.
        Handshake = "handshake",
        /// The client closed the connection, sent no valid head in time, or read nothing for too long.
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
    /// Counts a response. If its status does not determine the outcome, an extension does.
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
