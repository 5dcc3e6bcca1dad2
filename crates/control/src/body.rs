//! Reads the bodies of requests, in bounded time and memory.
//!
//! Small bodies are read as they come. Of large bodies, for many torrents at once, only a few are read at a time, and
//! fewer of one source. So slow ones take bounded memory and hold up no small one.

use std::time::Duration;

use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::LengthLimitError;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use super::listener::connections::{Connection, Source};
use super::problem::{JSON, Problem};

const BODY_TIME_MAX: Duration = Duration::from_secs(5);

/// Maximum size of a body. With the maximum number of connections, all bodies together take 8 MiB.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Maximum size of a large body, and how many are read at a time, of all sources and of one.
const LARGE_BODY_BYTES_MAX: usize = 1 << 20;
const LARGE_BODIES_MAX: usize = 4;
const LARGE_BODIES_PER_SOURCE_MAX: usize = 2;

static LARGE_BODIES: Mutex<Vec<Source>> = Mutex::new(Vec::new());

/// A large body that is being read, until it is dropped.
struct LargeBody(Source);

/// The document in the body of a request.
pub(super) struct JsonBody<T>(pub(super) T);

impl<S: Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        read(request, BODY_BYTES_MAX).await.map(Self)
    }
}

impl LargeBody {
    /// Counts a body of `source`, unless there are too many.
    fn begin(source: Source) -> Option<Self> {
        let mut bodies = LARGE_BODIES.lock();
        let own = bodies.iter().filter(|other| **other == source).count();
        if bodies.len() >= LARGE_BODIES_MAX || own >= LARGE_BODIES_PER_SOURCE_MAX {
            return None;
        }
        bodies.push(source);
        Some(Self(source))
    }
}

impl Drop for LargeBody {
    fn drop(&mut self) {
        let mut bodies = LARGE_BODIES.lock();
        if let Some(index) = bodies.iter().position(|source| *source == self.0) {
            bodies.swap_remove(index);
        }
    }
}

/// Reads a body that may be large. One that declares to be small does not wait for large ones.
pub(super) async fn read_large<T: DeserializeOwned>(
    request: Request,
    connection: &Connection,
) -> Result<T, Problem> {
    if declared_bytes(&request).is_some_and(|bytes| bytes <= BODY_BYTES_MAX) {
        return read(request, BODY_BYTES_MAX).await;
    }
    let _body = LargeBody::begin(Source::of(connection.peer.ip())).ok_or_else(|| {
        let error = "too many large requests at a time; send fewer than 1000 torrents at once, or try again";
        Problem::later(StatusCode::SERVICE_UNAVAILABLE, error, Duration::from_secs(1))
    })?;
    read(request, LARGE_BODY_BYTES_MAX).await
}

pub(super) const NOT_JSON: &str = "send the field Content-Type: application/json";

/// Returns whether a request declares its body to be JSON, perhaps with a character set (RFC 9110, 8.3.1).
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(JSON)
}

/// Returns the size that a request declares for its body.
fn declared_bytes(request: &Request) -> Option<usize> {
    request.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Reads a body of at most `bytes_max` bytes. The parser limits the depth of a document, and the type limits its
/// content.
async fn read<T: DeserializeOwned>(request: Request, bytes_max: usize) -> Result<T, Problem> {
    if !is_json(request.headers()) {
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, NOT_JSON));
    }
    let too_large = || {
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("a body may have {bytes_max} bytes; send less at once"),
        )
    };
    if declared_bytes(&request).is_some_and(|bytes| bytes > bytes_max) {
        return Err(too_large());
    }
    let body = axum::body::to_bytes(request.into_body(), bytes_max);
    let bytes = tokio::time::timeout(BODY_TIME_MAX, body)
        .await
        .map_err(|_| Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"))?
        .map_err(|error| {
            let is_too_large = error.into_inner().is::<LengthLimitError>();
            if is_too_large {
                too_large()
            } else {
                Problem::new(StatusCode::BAD_REQUEST, "the body has no end")
            }
        })?;
    serde_json::from_slice(&bytes).map_err(|error| {
        Problem::new(StatusCode::BAD_REQUEST, format!("the body is not what it must be: {error}"))
    })
}
