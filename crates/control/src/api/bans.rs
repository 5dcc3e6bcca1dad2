//! Bans of networks for a time.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{blocking, looking_up};
use crate::auth::Caller;
use crate::body::JsonBody;
use crate::extract::Path;
use crate::problem::{Problem, ProblemBody};
use crate::{Control, audit};
use shoal_runtime::clock;
use shoal_runtime::lists::bans::{self, Ban, BanError};
use shoal_runtime::lists::is_line;

/// All bans. Those by "automatic" were earned: their sources get no reply.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BanList {
    /// The bans of this tracker.
    bans: Vec<Ban>,
    /// Those of all nodes of the cluster, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    cluster: Vec<Ban>,
}

/// The number of bans that were lifted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LiftedBans {
    lifted: usize,
}

/// A ban to set.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BanRequest {
    /// An address, or a network in CIDR notation.
    #[schema(example = "192.0.2.0/24")]
    network: String,
    /// Why. Clients do not see it.
    #[schema(max_length = 200)]
    reason: String,
    /// Seconds until the ban ends; without it, the ban does not end.
    #[schema(minimum = 1)]
    duration_s: Option<u64>,
}

impl From<BanError> for Problem {
    fn from(error: BanError) -> Self {
        match error {
            BanError::NoFile => Self::new(
                StatusCode::CONFLICT,
                "there is no place for bans: set access.bans_file to a file that the tracker may write, such as \
                 \"/var/lib/shoal/bans\", and reload; or set state.path, and restart",
            ),
            BanError::Shared(error) => error.into(),
            BanError::File(error) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, error),
            BanError::TooMany => Self::new(
                StatusCode::CONFLICT,
                format!(
                    "there are {} bans, the maximum; lift some, or use access.networks_deny",
                    bans::BANS_MAX
                ),
            ),
        }
    }
}

/// All bans: those of this tracker in the order in which they were set, then those that sources have earned, and the bans of its cluster.
#[utoipa::path(
    get, path = "/api/v1/bans", tag = "bans", security(("token" = ["read"])),
    responses((status = 200, body = BanList))
)]
pub(super) async fn list(State(control): State<Control>) -> Result<Json<BanList>, Problem> {
    let lists = control.sources.list_control.clone();
    let (bans, cluster) = looking_up(move || Ok(lists.bans())).await?;
    Ok(Json(BanList { bans, cluster }))
}

/// Bans a network, in place of an earlier ban of the same network. It applies to all protocols before the reply, and within a
/// second at all other nodes of a cluster.
#[utoipa::path(
    post, path = "/api/v1/bans", tag = "bans", security(("token" = ["admin"])), request_body = BanRequest,
    responses(
        (status = 200, body = Ban),
        (status = 400, body = ProblemBody),
        (status = 409, description = "No more bans can be set.", body = ProblemBody),
        (status = 503, description = "The shared state of the cluster cannot be changed now.", body = ProblemBody)
    )
)]
pub(super) async fn set(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    JsonBody(wanted): JsonBody<BanRequest>,
) -> Result<Json<Ban>, Problem> {
    let refuse = |error: String| Problem::new(StatusCode::BAD_REQUEST, error);
    let network = bans::parse_network(&wanted.network).map_err(refuse)?;
    if !is_line(&wanted.reason, bans::REASON_BYTES_MAX) {
        return Err(refuse(format!(
            "a reason has up to {} bytes and no control characters",
            bans::REASON_BYTES_MAX
        )));
    }
    if wanted.duration_s == Some(0) {
        return Err(refuse("duration_s must be at least 1".to_owned()));
    }
    let since_unix_s = clock::unix_s();
    let until_unix_s = wanted.duration_s.map(|duration_s| since_unix_s.saturating_add(duration_s));
    let ban = Ban { network, reason: wanted.reason, by: caller.name.clone(), since_unix_s, until_unix_s };
    if ban.is_earned() {
        // The tracker tells bans apart by their author.
        return Err(Problem::new(
            StatusCode::CONFLICT,
            format!("bans by {:?} are those that sources earn; use a token with another name", ban.by),
        ));
    }
    let details =
        serde_json::json!({ "network": network, "reason": ban.reason, "until_unix_s": until_unix_s });
    let (lists, set) = (control.sources.list_control.clone(), ban.clone());
    let make = blocking(move || lists.ban(set).map_err(Problem::from));
    audit::change(&control, &caller, "ban", details, make).await?;
    Ok(Json(ban))
}

/// Lifts all bans that sources have earned, at all nodes of a cluster. Those of operators stay.
#[utoipa::path(
    delete, path = "/api/v1/bans", tag = "bans", security(("token" = ["admin"])),
    responses(
        (status = 200, body = LiftedBans),
        (status = 503, description = "The shared state of the cluster cannot be changed now.", body = ProblemBody)
    )
)]
pub(super) async fn lift_earned(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<LiftedBans>, Problem> {
    let lists = control.sources.list_control.clone();
    let make = blocking(move || Ok(LiftedBans { lifted: lists.lift_automatic_bans()? }));
    audit::change(&control, &caller, "earned bans lifted", serde_json::json!({}), make).await.map(Json)
}

/// Lifts the ban of a network, at all nodes of a cluster. An address lifts the ban that the source at it has earned as well.
#[utoipa::path(
    delete, path = "/api/v1/bans/{network}", tag = "bans", security(("token" = ["admin"])),
    params(("network" = String, Path, description = "The network, with %2F for the slash.", example = "192.0.2.0%2F24")),
    responses(
        (status = 200, description = "The ban that was lifted.", body = Ban),
        (status = 400, body = ProblemBody),
        (status = 404, description = "The network has no ban.", body = ProblemBody),
        (status = 503, description = "The shared state of the cluster cannot be changed now.", body = ProblemBody)
    )
)]
pub(super) async fn lift(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(network): Path<String>,
) -> Result<Json<Ban>, Problem> {
    let network =
        bans::parse_network(&network).map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error))?;
    let lists = control.sources.list_control.clone();
    let make = blocking(move || {
        lists.lift_ban(&network)?.ok_or_else(|| {
            Problem::new(StatusCode::NOT_FOUND, format!("{network} has no ban; GET /api/v1/bans lists all"))
        })
    });
    let details = serde_json::json!({ "network": network });
    audit::change(&control, &caller, "ban lifted", details, make).await.map(Json)
}
