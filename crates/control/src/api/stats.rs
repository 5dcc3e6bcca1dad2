//! The statistics of the tracker.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;

use crate::page::json;
use crate::stats::Stats;
use crate::stats::latest::LatestStats;

/// All statistics of this moment, at most a second old. Counts only grow while the tracker runs; a rate is the difference of
/// two replies, divided by that of `monotonic_ms`. Members may be added.
#[utoipa::path(
    get, path = "/api/v1/stats", tag = "figures", security(("token" = ["read"])), responses((status = 200, body = Stats))
)]
pub(super) async fn stats(State(latest): State<Arc<LatestStats>>) -> Response {
    json(latest.stats())
}
