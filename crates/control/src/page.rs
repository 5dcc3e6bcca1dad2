//! The status page and its sources: the statistics of each second as server-sent events, and the charts' history.
//!
//! The page is one document without any other resource. Its style and script are part of it, and its content security
//! policy permits exactly their hashes. It holds no figures, so it is served without a token; its sources need one.
//!
//! The script creates elements and never parses text as HTML.

use std::io::Write;
use std::sync::{Arc, LazyLock};

use aws_lc_rs::digest::{SHA256, digest};
use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::listener::connections::Connection;
use super::problem::{JSON, Problem, ProblemBody};
use super::stats::latest::{LatestStats, StatusEvent};
use crate::stats::Stats;
use crate::stats::history::Shown;

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = concat!(
    "\"use strict\";\n",
    include_str!("page/format.js"),
    include_str!("page/chart.js"),
    include_str!("page/status.js")
);

/// The document, in the forms in which it is served.
struct Document {
    text: Bytes,
    compressed: Bytes,
    policy: String,
}

static DOCUMENT: LazyLock<Document> = LazyLock::new(Document::new);

impl Document {
    fn new() -> Self {
        let text = TEMPLATE.replace("/*style*/", STYLE).replace("/*script*/", SCRIPT);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        // Writing to memory does not fail.
        let compressed = gzip.write_all(text.as_bytes()).and_then(|()| gzip.finish()).unwrap_or_default();
        let hash = |part: &str| format!("'sha256-{}'", STANDARD.encode(digest(&SHA256, part.as_bytes())));
        let policy = format!(
            "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
            hash(SCRIPT),
            hash(STYLE)
        );
        Self { text: text.into(), compressed: compressed.into(), policy }
    }
}

/// The status page. It has no figures, so it needs no token; what it reads does.
#[utoipa::path(
    get, path = "/", tag = "figures", security(()),
    responses((status = 200, description = "The page.", body = String, content_type = "text/html"))
)]
pub(super) async fn page(headers: HeaderMap) -> Response {
    let encodings = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let takes_gzip = encodings.flat_map(|value| value.split(',')).any(|coding| coding.trim() == "gzip");
    let fields = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, &*DOCUMENT.policy),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::VARY, "accept-encoding"),
    ];
    if takes_gzip {
        (fields, [(header::CONTENT_ENCODING, "gzip")], DOCUMENT.compressed.clone()).into_response()
    } else {
        (fields, DOCUMENT.text.clone()).into_response()
    }
}

/// The statistics, as `/api/v1/stats` has them.
#[utoipa::path(
    get, path = "/status", tag = "figures", security(("token" = ["read"])), responses((status = 200, body = Stats))
)]
pub(super) async fn stats(State(latest): State<Arc<LatestStats>>) -> Response {
    json(latest.stats())
}

/// The samples of the charts: the last hour and the last day.
#[utoipa::path(
    get, path = "/status/history", tag = "figures", security(("token" = ["read"])),
    responses((status = 200, body = Shown))
)]
pub(super) async fn history(State(latest): State<Arc<LatestStats>>) -> Response {
    json(latest.history().map(Bytes::from))
}

pub(super) fn json(text: serde_json::Result<Bytes>) -> Response {
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, JSON)], text).into_response(),
        Err(error) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// The statistics and the newest samples of the charts, each second, as server-sent events. A stream ends after an hour, or
/// if its reader reads nothing for ten seconds.
#[utoipa::path(
    get, path = "/status/events", tag = "figures", security(("token" = ["read"])),
    responses(
        (status = 200, description = "An object for each event, as its data.", body = StatusEvent, content_type = "text/event-stream"),
        (status = 503, description = "Too many streams are open.", body = ProblemBody)
    )
)]
pub(super) async fn events(
    State(latest): State<Arc<LatestStats>>,
    Extension(connection): Extension<Connection>,
) -> Result<Response, Problem> {
    connection.begin_stream()?;
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], latest.watch()).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_whole_small_and_names_no_other_resource() {
        let text = std::str::from_utf8(&DOCUMENT.text).unwrap();
        assert!(text.len() <= 200 << 10, "{} bytes", text.len());
        assert!(!text.contains("/*style*/") && !text.contains("/*script*/"));
        for link in [" src=", "@import", "url(", "<link rel=\"stylesheet\"", "innerHTML", "eval("] {
            assert!(!text.contains(link), "{link}");
        }
    }
}
