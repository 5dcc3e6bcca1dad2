//! The status page, and what it reads: the statistics of each second as server-sent events, and the charts' history.
//!
//! The page is one document without any other resource. Its style and script are part of it, and its content security
//! policy permits exactly these two. It holds no figures, so it is served without a token; what it reads is not.

use std::io::Write;
use std::sync::{Arc, LazyLock};

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::Control;
use super::connections::Connection;
use super::problem::{JSON, Problem};
use super::snapshots::Snapshots;

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

/// Returns the route of the page.
pub(super) fn document() -> Router<Control> {
    Router::new().route("/", get(page))
}

/// Returns the routes of the figures that it shows.
pub(super) fn figures() -> Router<Control> {
    Router::new()
        .route("/status", get(stats))
        .route("/status/events", get(events))
        .route("/status/history", get(history))
}

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

async fn page(headers: HeaderMap) -> Response {
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

async fn stats(State(snapshots): State<Arc<Snapshots>>) -> Response {
    json(snapshots.stats())
}

async fn history(State(snapshots): State<Arc<Snapshots>>) -> Response {
    json(snapshots.history())
}

fn json(text: serde_json::Result<String>) -> Response {
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, JSON)], text + "\n").into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn events(
    State(snapshots): State<Arc<Snapshots>>,
    Extension(connection): Extension<Connection>,
) -> Result<Response, Problem> {
    connection.begin_stream()?;
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], Body::new(snapshots.watch())).into_response())
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
