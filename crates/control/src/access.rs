//! The lists, for `shoal access`: their state, and reading them again.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use super::Sources;
use super::problem::JSON;
use shoal_runtime::lists::{ListControl, ListSources};

/// Maximum time for a request that reads the lists. The reading continues beyond it.
const LISTS_TIME_MAX: Duration = Duration::from_secs(12);

/// The lists with their sources and faults, as `shoal access reload` prints them. Members may be added.
#[utoipa::path(
    get, path = "/access", tag = "lists", security(("token" = ["read"])),
    responses(
        (status = 200, description = "The lists.", body = serde_json::Value),
        (status = 503, description = "The lists are being read.", body = String, content_type = "text/plain")
    )
)]
pub(super) async fn show(State(sources): State<Arc<Sources>>) -> Response {
    tell_of_lists(&sources, ListControl::status).await
}

/// Reads the lists again, and tells the same. Without configured tokens it needs none, since the operator has written what
/// it applies into files.
#[utoipa::path(
    post, path = "/access/reload", tag = "lists", security(("token" = ["admin"])),
    request_body(content = serde_json::Value, description = "Nothing of it is used, but its type must be JSON."),
    responses(
        (status = 200, description = "The lists.", body = serde_json::Value),
        (status = 503, description = "The lists are being read.", body = String, content_type = "text/plain")
    )
)]
pub(super) async fn reload(State(sources): State<Arc<Sources>>) -> Response {
    tell_of_lists(&sources, ListControl::reload).await
}

/// Calls `ask` on a thread that may block. At most one such thread waits or works: a file system can hang.
async fn tell_of_lists(sources: &Sources, ask: fn(&ListControl) -> ListSources) -> Response {
    static ASKING: Semaphore = Semaphore::const_new(1);
    let busy =
        || (StatusCode::SERVICE_UNAVAILABLE, "the lists are being read; ask again later\n").into_response();
    let Ok(permit) = ASKING.try_acquire() else { return busy() };
    let lists = sources.list_control.clone();
    let asked = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        ask(&lists)
    });
    match tokio::time::timeout(LISTS_TIME_MAX, asked).await {
        Ok(Ok(told)) => {
            ([(header::CONTENT_TYPE, JSON)], format!("{}\n", serde_json::json!(told))).into_response()
        }
        Ok(Err(_)) | Err(_) => busy(),
    }
}
