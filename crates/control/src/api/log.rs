//! The level of the log.

use axum::extract::State;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use tracing::level_filters::LevelFilter;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::body::JsonBody;
use crate::problem::{Problem, ProblemBody};
use crate::{Control, audit};

/// The minimum level of the messages that are logged.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// Things that are broken.
    Error,
    /// Things that need a look.
    Warn,
    /// Events in the life of the tracker.
    Info,
    /// Events of the connections of operators.
    Debug,
    /// Everything.
    Trace,
}

/// The level of the log.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogStatus {
    level: Level,
}

impl From<Level> for LevelFilter {
    fn from(level: Level) -> Self {
        match level {
            Level::Error => Self::ERROR,
            Level::Warn => Self::WARN,
            Level::Info => Self::INFO,
            Level::Debug => Self::DEBUG,
            Level::Trace => Self::TRACE,
        }
    }
}

impl From<LevelFilter> for Level {
    fn from(filter: LevelFilter) -> Self {
        let levels = [Self::Error, Self::Warn, Self::Info, Self::Debug];
        levels.into_iter().find(|level| LevelFilter::from(*level) == filter).unwrap_or(Self::Trace)
    }
}

/// The level of the log.
#[utoipa::path(
    get, path = "/api/v1/log", tag = "log", security(("token" = ["read"])),
    responses((status = 200, body = LogStatus))
)]
pub(super) async fn show(State(control): State<Control>) -> Json<LogStatus> {
    Json(LogStatus { level: control.log.level().into() })
}

/// Sets the level of the log, until a reload or a restart.
#[utoipa::path(
    put, path = "/api/v1/log", tag = "log", security(("token" = ["admin"])), request_body = LogStatus,
    responses((status = 200, body = LogStatus), (status = 400, body = ProblemBody))
)]
pub(super) async fn set(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    JsonBody(wanted): JsonBody<LogStatus>,
) -> Result<Json<LogStatus>, Problem> {
    audit::record(&control, &caller, "log level", &serde_json::json!(wanted)).await?;
    control.log.set_filter(wanted.level.into());
    Ok(Json(wanted))
}
