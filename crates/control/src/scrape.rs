//! The metrics in the format that a client reads.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::{Sources, metrics};

/// The metrics for Prometheus, as OpenMetrics 1.0, or for `Accept: text/plain` in the older text format.
#[utoipa::path(
    get, path = "/metrics", tag = "figures", security(("token" = ["read"])),
    responses((status = 200, description = "The metrics.", content(
        (String = "application/openmetrics-text"),
        (String = "text/plain")
    )))
)]
pub(super) async fn metrics(State(sources): State<Arc<Sources>>, headers: HeaderMap) -> Response {
    let accepts = |kind: &str| {
        headers
            .get_all(header::ACCEPT)
            .iter()
            .any(|accepted| accepted.to_str().is_ok_and(|accepted| accepted.contains(kind)))
    };
    match metrics::encode(&sources) {
        Ok(text) if accepts("text/plain") && !accepts("openmetrics") => {
            ([(header::CONTENT_TYPE, metrics::plain::CONTENT_TYPE)], metrics::plain::convert(&text))
                .into_response()
        }
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
