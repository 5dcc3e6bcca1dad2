//! Reload of the configuration, as by SIGHUP.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::Serialize;
use utoipa::ToSchema;

use super::blocking;
use crate::auth::Caller;
use crate::problem::{Problem, ProblemBody};
use crate::{Control, audit};

/// The changes by a reload.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Reloaded {
    /// The keys whose new values apply.
    applied: Vec<&'static str>,
    /// The keys that keep their values until a restart.
    needs_restart: Vec<&'static str>,
}

/// Reads the configuration, certificates, lists and tokens again, as SIGHUP does: all of it is applied, or nothing.
#[utoipa::path(
    post, path = "/api/v1/reload", tag = "configuration", security(("token" = ["admin"])),
    responses(
        (status = 200, body = Reloaded),
        (status = 409, description = "The configuration stays as it was.", body = ProblemBody)
    )
)]
pub(super) async fn reload(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    // Empty, and read before the reply, after which a client could not send it any more.
    _body: Bytes,
) -> Result<Json<Reloaded>, Problem> {
    let operations = Arc::clone(&control.operations);
    let make = blocking(move || {
        operations.reload().map_err(|error| {
            Problem::new(StatusCode::CONFLICT, format!("the configuration stays as it was: {error}"))
        })
    });
    let differences = audit::change(&control, &caller, "reload", serde_json::json!({}), make).await?;
    Ok(Json(Reloaded { applied: differences.applied, needs_restart: differences.needs_restart }))
}
