//! Refusals of the control listener: a status, and a text that says what to do.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::counters::RequestOutcome;
use shoal_runtime::lists::SharedError;

/// Maximum length of a text. It may quote what the client has sent.
const ERROR_BYTES_MAX: usize = 600;

pub(crate) const JSON: &str = "application/json";

/// A refused request. Its response is `{"error": TEXT}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) error: String,
    retry_after: Option<Duration>,
    /// The counted reason, if the status does not determine it.
    outcome: Option<RequestOutcome>,
}

/// The document of a refusal.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProblemBody {
    /// The fault, and what to do.
    error: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        let mut error = error.into();
        error.truncate(error.floor_char_boundary(ERROR_BYTES_MAX));
        Self { status, error, retry_after: None, outcome: None }
    }

    /// Returns the refusal of a request that may be sent again later.
    pub(crate) fn later(status: StatusCode, error: impl Into<String>, after: Duration) -> Self {
        Self { retry_after: Some(after), ..Self::new(status, error) }
    }

    /// Counts the refusal for this reason instead of its status's.
    pub(super) fn counted_as(self, outcome: RequestOutcome) -> Self {
        Self { outcome: Some(outcome), ..self }
    }
}

impl From<SharedError> for Problem {
    fn from(error: SharedError) -> Self {
        match error {
            SharedError::TooMany(error) => Self::new(StatusCode::CONFLICT, error),
            SharedError::Unavailable(error) => Self::new(StatusCode::SERVICE_UNAVAILABLE, error),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::json!(ProblemBody { error: self.error });
        let mut response = (self.status, [(header::CONTENT_TYPE, JSON)], format!("{body}\n")).into_response();
        if let Some(outcome) = self.outcome {
            response.extensions_mut().insert(outcome);
        }
        let headers = response.headers_mut();
        if let Some(after) = self.retry_after {
            let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, seconds.max(1).into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
