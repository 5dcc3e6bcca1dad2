//! Drain: the tracker leaves the ones behind a load balancer.

use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::blocking;
use crate::auth::Caller;
use crate::body::JsonBody;
use crate::drain::{Draining, WAIT_MAX};
use crate::problem::{Problem, ProblemBody};
use crate::{Control, audit};

/// The action when the tracker has drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Then {
    /// The process ends, with exit code 0.
    #[default]
    Exit,
    /// The tracker refuses announces until the drain is cancelled.
    Stay,
}

/// How to drain.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DrainRequest {
    /// Seconds until the tracker has drained: as long as the load balancer and the clients take to go elsewhere.
    #[serde(default = "default_wait_s")]
    #[schema(default = 60, minimum = 0, maximum = 86_400)]
    wait_s: u32,
    /// The action then.
    #[serde(default)]
    then: Then,
}

const fn default_wait_s() -> u32 {
    60
}

/// Whether the tracker accepts clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DrainState {
    /// It does.
    Serving,
    /// It refuses announces, and says so.
    Draining,
    /// The time is over.
    Drained,
}

/// Whether the tracker drains.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DrainStatus {
    state: DrainState,
    /// When it began, in seconds since 1970.
    since_unix_s: Option<u64>,
    /// Seconds until the tracker has drained.
    remaining_s: Option<u64>,
    /// The action then.
    then: Option<Then>,
}

impl From<Option<Draining>> for DrainStatus {
    fn from(draining: Option<Draining>) -> Self {
        let Some(draining) = draining else {
            return Self { state: DrainState::Serving, since_unix_s: None, remaining_s: None, then: None };
        };
        let remaining = draining.end.saturating_duration_since(Instant::now());
        let state = if remaining.is_zero() { DrainState::Drained } else { DrainState::Draining };
        Self {
            state,
            since_unix_s: Some(draining.since_unix_s),
            remaining_s: Some(remaining.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)),
            then: Some(if draining.exits { Then::Exit } else { Then::Stay }),
        }
    }
}

/// Whether the tracker drains, and for how long.
#[utoipa::path(
    get, path = "/api/v1/drain", tag = "drain", security(("token" = ["read"])),
    responses((status = 200, body = DrainStatus))
)]
pub(super) async fn show(State(control): State<Control>) -> Json<DrainStatus> {
    Json(control.drain.current().into())
}

/// Begins to drain, or changes when that ends.
///
/// /health/ready says 503 from now on, and announces are refused with a reason that tells clients to try again in a minute.
/// Peers that leave and scrapes are served as before. A WebSocket is closed after a refused announce.
#[utoipa::path(
    put, path = "/api/v1/drain", tag = "drain", security(("token" = ["admin"])), request_body = DrainRequest,
    responses((status = 200, body = DrainStatus), (status = 400, body = ProblemBody))
)]
pub(super) async fn begin(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    JsonBody(wanted): JsonBody<DrainRequest>,
) -> Result<Json<DrainStatus>, Problem> {
    let wait = Duration::from_secs(wanted.wait_s.into());
    if wait > WAIT_MAX {
        let error = format!("wait_s must be at most {}", WAIT_MAX.as_secs());
        return Err(Problem::new(axum::http::StatusCode::BAD_REQUEST, error));
    }
    let details = serde_json::json!({ "wait_s": wanted.wait_s, "then": wanted.then });
    let (drain, exits) = (control.drain.clone(), wanted.then == Then::Exit);
    let make = blocking(move || Ok(drain.begin(wait, exits)));
    let draining = audit::change(&control, &caller, "drain", details, make).await?;
    Ok(Json(Some(draining).into()))
}

/// Cancels a drain: announces are served again.
#[utoipa::path(
    delete, path = "/api/v1/drain", tag = "drain", security(("token" = ["admin"])),
    responses((status = 200, body = DrainStatus))
)]
pub(super) async fn cancel(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<DrainStatus>, Problem> {
    let drain = control.drain.clone();
    let make = blocking(move || Ok(drain.cancel()));
    audit::change(&control, &caller, "drain cancelled", serde_json::json!({}), make).await?;
    Ok(Json(None.into()))
}
