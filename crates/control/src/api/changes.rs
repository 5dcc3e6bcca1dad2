//! The feed of torrents whose counts have changed.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use shoal_engine::insight::Cursor;
use utoipa::ToSchema;

use super::torrents::TorrentStatus;
use crate::Control;
use crate::extract::Query;
use crate::insight::{ChangedTorrents, Insight};
use crate::listener::connections::Connection;
use crate::problem::{Problem, ProblemBody};

/// Maximum number of torrents in a reply or an event, and the default. With all connections and streams, they take some
/// tens of MiB.
const TORRENTS_MAX: usize = 1000;

/// Maximum time in seconds that a request waits for a change: less than a connection may last.
const WAIT_S_MAX: u64 = 10;

/// Pause between two events of a stream. A torrent that changes repeatedly meanwhile is reported once.
const EVENTS_EVERY: Duration = Duration::from_millis(200);

/// How often a stream without changes shows that it is open.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);

/// The changes to tell of.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    cursor: Option<String>,
    #[serde(default = "default_max")]
    max: usize,
    #[serde(default)]
    wait_s: u64,
}

const fn default_max() -> usize {
    TORRENTS_MAX
}

/// Torrents that have changed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChangedCounts {
    /// The cursor for the next request.
    cursor: String,
    /// Whether the reader has missed changes, or has just begun. It then reads the counts of all torrents that it knows, and
    /// follows from this cursor.
    start_over: bool,
    /// Whether there are more changes behind this cursor.
    has_more: bool,
    /// The torrents, each with its counts of now.
    torrents: Vec<TorrentStatus>,
}

impl ChangedCounts {
    fn new(changes: &ChangedTorrents) -> Self {
        let &ChangedTorrents { cursor, start_over, has_more, ref torrents } = changes;
        let torrents = torrents.iter().map(TorrentStatus::from).collect();
        Self { cursor: cursor.to_string(), start_over, has_more, torrents }
    }
}

/// The torrents whose counts have changed since a cursor, each once, with its counts of now.
///
/// A first request has no cursor. Its reply says `start_over`, with the cursor from which to follow: read the counts of all
/// torrents that you know, then ask with that cursor. A reader that falls behind is told to start over in the same way.
/// With `wait_s`, the reply waits until something changes. With `Accept: text/event-stream`, the reply is a stream of such
/// documents as server-sent events, whose ids are the cursors, and which may begin with the field `Last-Event-ID`.
#[utoipa::path(
    get, path = "/api/v1/changes", tag = "torrents", security(("token" = ["read"])),
    params(
        ("cursor" = Option<String>, Query, description = "The cursor of the last reply."),
        ("max" = Option<u16>, Query, description = "Maximum number of torrents: 1 to 1000, by default 1000."),
        ("wait_s" = Option<u16>, Query, description = "Seconds to wait for a change: 0 to 10, by default 0."),
        ("Last-Event-ID" = Option<String>, Header, description = "The cursor, as browsers send it.")
    ),
    responses(
        (status = 200, body = ChangedCounts),
        (status = 400, body = ProblemBody),
        (status = 503, description = "Too many feeds are open, or there can be none now.", body = ProblemBody)
    )
)]
pub(super) async fn changes(
    State(control): State<Control>,
    Extension(connection): Extension<Connection>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let refuse = |error: String| Problem::new(StatusCode::BAD_REQUEST, error);
    if !(1..=TORRENTS_MAX).contains(&wanted.max) || wanted.wait_s > WAIT_S_MAX {
        return Err(refuse(format!("max must be from 1 to {TORRENTS_MAX}, and wait_s at most {WAIT_S_MAX}")));
    }
    let last_event = headers.get("last-event-id").and_then(|id| id.to_str().ok().map(str::to_owned));
    let cursor = last_event.or(wanted.cursor).map(|text| text.parse::<Cursor>());
    let cursor = cursor.transpose().map_err(|error| refuse(format!("cursor: {error}")))?;
    let insight = Arc::clone(&control.sources.insight);
    let accepts = headers.get(header::ACCEPT).and_then(|kinds| kinds.to_str().ok()).unwrap_or_default();
    if accepts.contains("text/event-stream") {
        // The reader learns now if there is no feed.
        insight.changes(cursor, 1)?;
        connection.begin_stream()?;
        return Ok(events(insight, cursor, wanted.max).into_response());
    }
    let wait = Duration::from_secs(wanted.wait_s);
    if let Some(cursor) = cursor
        && !wait.is_zero()
        && insight.changes(Some(cursor), 1)?.is_empty()
    {
        // Without a change in that time, the reply is empty.
        let _ = tokio::time::timeout(wait, insight.wait_for_changes(cursor)).await;
    }
    Ok(Json(ChangedCounts::new(&insight.changes(cursor, wanted.max)?)).into_response())
}

/// Returns a stream of events. Each is made when the previous one was sent, so a stalled reader costs no memory.
fn events(insight: Arc<Insight>, cursor: Option<Cursor>, max: usize) -> impl IntoResponse {
    let events = stream::unfold((insight, cursor, false), move |(insight, cursor, has_more)| async move {
        if let Some(cursor) = cursor
            && !has_more
        {
            tokio::time::sleep(EVENTS_EVERY).await;
            insight.wait_for_changes(cursor).await;
        }
        let changes = insight.changes(cursor, max).ok()?;
        let (next, has_more) = (changes.cursor, changes.has_more);
        let event = Event::default().id(next.to_string()).json_data(ChangedCounts::new(&changes)).ok()?;
        Some((Ok::<_, Infallible>(event), (insight, Some(next), has_more)))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_EVERY))
}
