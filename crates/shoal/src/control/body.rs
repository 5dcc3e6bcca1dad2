//! Reads the bodies of requests, in bounded time and memory.

use std::time::Duration;

use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use serde::de::DeserializeOwned;

use super::problem::{JSON, Problem};

/// Maximum time for a body to arrive.
const BODY_TIME_MAX: Duration = Duration::from_secs(5);

/// Maximum size of a body. With the maximum number of connections, all bodies together take 4 MiB.
const BODY_BYTES_MAX: usize = 64 << 10;

/// The document in the body of a request.
pub(super) struct JsonBody<T>(pub(super) T);

impl<S: Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        read(request, BODY_BYTES_MAX).await.map(Self)
    }
}

/// Reads a body of at most `bytes_max` bytes. The parser limits the depth of a document, and the type what it may contain.
pub(super) async fn read<T: DeserializeOwned>(request: Request, bytes_max: usize) -> Result<T, Problem> {
    if request.headers().get(header::CONTENT_TYPE).is_none_or(|kind| kind != JSON) {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send the field Content-Type: application/json",
        ));
    }
    let declared = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let too_large = || {
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("a body may have {bytes_max} bytes; send less at once"),
        )
    };
    if declared.and_then(|length| length.parse::<usize>().ok()).is_some_and(|length| length > bytes_max) {
        return Err(too_large());
    }
    let body = axum::body::to_bytes(request.into_body(), bytes_max);
    let bytes = tokio::time::timeout(BODY_TIME_MAX, body)
        .await
        .map_err(|_| Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"))?
        .map_err(|_| too_large())?;
    serde_json::from_slice(&bytes).map_err(|error| {
        Problem::new(StatusCode::BAD_REQUEST, format!("the body is not what it must be: {error}"))
    })
}
