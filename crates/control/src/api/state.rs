//! Snapshots of the swarms, and the hand-over to a new process, on request.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};

use crate::auth::Caller;
use crate::listener::connections::Connection;
use crate::operations::Handed;
use crate::problem::{Problem, ProblemBody};
use crate::{Control, audit};
use shoal_runtime::counters::Saved;

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
    // Empty, and read before the reply, after which a client could not send it any more.
    _body: Bytes,
) -> Result<Json<Saved>, Problem> {
    let Some(saved) = control.operations.save() else {
        let error = "state.path names no directory, so there is no place for a snapshot";
        return Err(Problem::new(StatusCode::CONFLICT, error));
    };
    // It takes longer than other requests may.
    connection.begin_stream()?;
    let make = async { saved.await.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error)) };
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
    // Empty, and read before the reply, after which a client could not send it any more.
    _body: Bytes,
) -> Result<Json<Handed>, Problem> {
    // It takes longer than other requests may.
    connection.begin_stream()?;
    let make = async {
        control.operations.upgrade().await.map_err(|error| {
            let status =
                if error.is_conflict { StatusCode::CONFLICT } else { StatusCode::INTERNAL_SERVER_ERROR };
            Problem::new(status, error.reason)
        })
    };
    audit::change(&control, &caller, "upgrade", serde_json::json!({}), make).await.map(Json)
}
