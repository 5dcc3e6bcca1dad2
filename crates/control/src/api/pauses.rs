//! Pauses: single protocols and address families are out of service for a time.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use shoal_engine::counter::Family;
use shoal_engine::policy::Protocol;
use shoal_engine::suspension::{Part, Pause};
use utoipa::ToSchema;

use super::blocking;
use crate::auth::Caller;
use crate::body::JsonBody;
use crate::pause::{self, PauseError, PausedPart};
use crate::problem::{Problem, ProblemBody};
use crate::{Control, audit};
use shoal_runtime::clock;
use shoal_runtime::lists::is_line;

/// Maximum length of a reason in bytes, as for the reasons of rules about clients.
const REASON_BYTES_MAX: usize = 200;

/// The least and the most seconds that clients are told to wait.
const RETRY_S_MIN: u32 = 60;
const RETRY_S_MAX: u32 = 86_400;

/// Everything that is paused.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PauseList {
    paused: Vec<PausedPart>,
}

/// Parts of the service.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Parts {
    /// `udp`, `http` and `webtorrent`, with or without TLS. All of them if there is none.
    #[serde(default)]
    #[schema(example = json!(["udp"]))]
    protocols: Vec<String>,
    /// `v4` and `v6`. Both if there is none.
    #[serde(default)]
    #[schema(example = json!(["v6"]))]
    families: Vec<String>,
}

/// A pause of some parts.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PauseRequest {
    /// As in `Parts`.
    #[serde(default)]
    protocols: Vec<String>,
    /// As in `Parts`.
    #[serde(default)]
    families: Vec<String>,
    /// Why. Clients see it.
    #[schema(max_length = 200)]
    reason: String,
    /// Seconds after which clients are told to try again, in whole minutes.
    #[serde(default = "default_retry_in_s")]
    #[schema(default = 1800, minimum = 60, maximum = 86_400)]
    retry_in_s: u32,
    /// Whether a restart keeps the pause.
    #[serde(default)]
    keep: bool,
}

const fn default_retry_in_s() -> u32 {
    1800
}

impl From<PauseError> for Problem {
    fn from(error: PauseError) -> Self {
        let status = match error {
            PauseError::NoState | PauseError::Upgrade => StatusCode::CONFLICT,
            PauseError::File(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

impl Parts {
    /// Returns the parts that are meant. The error says what is no part.
    fn read(&self) -> Result<Vec<Part>, Problem> {
        let protocols = named(&self.protocols, &Protocol::ALL, Protocol::name)?;
        let families = named(&self.families, &Family::ALL, Family::name)?;
        let is_meant = |part: &Part| protocols.contains(&part.protocol) && families.contains(&part.family);
        Ok(Part::all().filter(is_meant).collect())
    }
}

/// Returns the values with these names, or all values if there are no names.
fn named<T: Copy>(names: &[String], all: &[T], name: fn(T) -> &'static str) -> Result<Vec<T>, Problem> {
    if names.is_empty() {
        return Ok(all.to_vec());
    }
    let find = |wanted: &String| {
        all.iter().copied().find(|value| name(*value) == wanted).ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(|value| name(*value)).collect();
            refuse(format!("{wanted:?} is not one of {}", known.join(", ")))
        })
    };
    names.iter().map(find).collect()
}

fn refuse(error: String) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, error)
}

/// Everything that is paused, with the words for clients.
#[utoipa::path(
    get, path = "/api/v1/pauses", tag = "pauses", security(("token" = ["read"])),
    responses((status = 200, body = PauseList))
)]
pub(super) async fn list(State(control): State<Control>) -> Json<PauseList> {
    Json(PauseList { paused: pause::paused(&control.sources.live.latest().policy) })
}

/// Pauses protocols and address families, in place of their earlier pauses.
///
/// Their announces and scrapes are refused with the reason, and over HTTP with the time after which to try again. Clients that
/// leave are served. WebSockets stay open, and their offers are not relayed. An upgrade keeps a pause, a restart if it is to.
#[utoipa::path(
    post, path = "/api/v1/pauses", tag = "pauses", security(("token" = ["admin"])), request_body = PauseRequest,
    responses(
        (status = 200, body = PauseList),
        (status = 400, body = ProblemBody),
        (status = 409, description = "A restart cannot keep a pause without state.path, or an upgrade is in progress.", body = ProblemBody)
    )
)]
pub(super) async fn pause(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    JsonBody(wanted): JsonBody<PauseRequest>,
) -> Result<Json<PauseList>, Problem> {
    let PauseRequest { protocols, families, reason, retry_in_s, keep } = wanted;
    let details = serde_json::json!({
        "protocols": protocols, "families": families, "reason": reason, "retry_in_s": retry_in_s, "keep": keep
    });
    let parts = Parts { protocols, families }.read()?;
    if reason.trim().is_empty() || !is_line(&reason, REASON_BYTES_MAX) {
        return Err(refuse(format!("a reason has 1 to {REASON_BYTES_MAX} bytes and no control characters")));
    }
    if !(RETRY_S_MIN..=RETRY_S_MAX).contains(&retry_in_s) {
        return Err(refuse(format!("retry_in_s must be from {RETRY_S_MIN} to {RETRY_S_MAX}")));
    }
    let since = (caller.name.clone(), clock::unix_s());
    let pause = Pause::new(reason, retry_in_s.div_ceil(60), since, keep);
    change(&control, &caller, ("pause", details), parts, Some(pause)).await
}

/// Serves protocols and address families again.
#[utoipa::path(
    post, path = "/api/v1/pauses/resume", tag = "pauses", security(("token" = ["admin"])), request_body = Parts,
    responses(
        (status = 200, description = "Everything that is still paused.", body = PauseList),
        (status = 400, body = ProblemBody),
        (status = 409, description = "An upgrade is in progress.", body = ProblemBody)
    )
)]
pub(super) async fn resume(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    JsonBody(wanted): JsonBody<Parts>,
) -> Result<Json<PauseList>, Problem> {
    let parts = wanted.read()?;
    let details = serde_json::json!({ "protocols": wanted.protocols, "families": wanted.families });
    change(&control, &caller, ("resume", details), parts, None).await
}

async fn change(
    control: &Control,
    caller: &Caller,
    (change, details): (&'static str, serde_json::Value),
    parts: Vec<Part>,
    pause: Option<Pause>,
) -> Result<Json<PauseList>, Problem> {
    let lists = control.sources.list_control.clone();
    let make = blocking(move || pause::change(&lists, &parts, pause).map_err(Problem::from));
    let paused = audit::change(control, caller, change, details, make).await?;
    Ok(Json(PauseList { paused }))
}
