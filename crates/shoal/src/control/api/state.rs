//! Snapshots of the swarms, and the hand-over to a new process, on request.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};

use crate::control::auth::Caller;
use crate::control::connections::Connection;
use crate::control::problem::{Problem, ProblemBody};
use crate::control::{Control, audit};
use crate::hand_over::{HandOverError, Handed};
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

/// Starts the installed program, which may be another version, and hands over to it. Answers when the new process serves, or
/// when the attempt has failed; then this process serves as before.
#[utoipa::path(
    post, path = "/api/v1/upgrade", tag = "state", security(("token" = ["admin"])),
    responses(
        (status = 200, body = Handed),
        (status = 409, description = "Another upgrade is in progress.", body = ProblemBody),
        (status = 500, description = "The new process cannot take over.", body = ProblemBody)
    )
)]
pub(super) async fn upgrade(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Extension(connection): Extension<Connection>,
) -> Result<Json<Handed>, Problem> {
    // It takes longer than other requests may.
    connection.begin_stream()?;
    let make = async {
        control.hand_over.begin().await.map_err(|error| {
            let status = match error {
                HandOverError::InProgress | HandOverError::Stopping => StatusCode::CONFLICT,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            Problem::new(status, error.to_string())
        })
    };
    audit::change(&control, &caller, "upgrade", serde_json::json!({}), make).await.map(Json)
}
