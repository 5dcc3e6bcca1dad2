//! Snapshots of the swarms, on request.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};

use crate::control::auth::Caller;
use crate::control::connections::Connection;
use crate::control::problem::{Problem, ProblemBody};
use crate::control::{Control, audit};
use crate::state::Saved;

/// Writes a snapshot of the swarms beside the traffic, and waits for its end, which may take minutes.
#[utoipa::path(
    post, path = "/api/v1/snapshot", tag = "state", security(("token" = ["admin"])),
    responses(
        (status = 200, body = Saved),
        (status = 409, description = "There is no place for snapshots (state.path).", body = ProblemBody),
        (status = 500, description = "It cannot be written; the one before stays.", body = ProblemBody)
    )
)]
pub(super) async fn snapshot(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Extension(connection): Extension<Connection>,
) -> Result<Json<Saved>, Problem> {
    let Some(requester) = control.sources.snapshot_requester.clone() else {
        let error = "state.path names no directory, so there is no place for a snapshot";
        return Err(Problem::new(StatusCode::CONFLICT, error));
    };
    // It takes longer than other requests may.
    connection.begin_stream()?;
    let make = async {
        requester.save().await.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error))
    };
    audit::change(&control, &caller, "snapshot", serde_json::json!({}), make).await.map(Json)
}
