//! The values of the configuration that all nodes of a cluster share.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::blocking;
use crate::auth::Caller;
use crate::body::JsonBody;
use crate::cluster::{SharedValue, SharedValues};
use crate::extract::Path;
use crate::problem::{Problem, ProblemBody};
use crate::{Control, audit};
use shoal_runtime::lists::is_line;

const VALUE_BYTES_MAX: usize = 1000;

/// The values that all nodes share.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClusterValues {
    values: Vec<ClusterValue>,
}

/// A value that all nodes share.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClusterValue {
    /// The key of the configuration.
    #[schema(example = "announce.interval_s")]
    key: String,
    /// The value, as an environment variable would have it.
    value: String,
    /// The name of the token that set it.
    by: String,
}

/// A value to set.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewValue {
    /// The value, as an environment variable would have it.
    #[schema(example = "1800")]
    value: String,
}

/// The values of the configuration that all nodes of the cluster share. They override the file and the environment of each node.
#[utoipa::path(
    get, path = "/api/v1/cluster/values", tag = "cluster", security(("token" = ["read"])),
    responses(
        (status = 200, body = ClusterValues),
        (status = 409, description = "The tracker shares no state with others.", body = ProblemBody)
    )
)]
pub(super) async fn show(State(control): State<Control>) -> Result<Json<ClusterValues>, Problem> {
    let values = shared(&control)?.values().into_iter();
    let values = values.map(|(key, SharedValue { value, by })| ClusterValue { key, value, by });
    Ok(Json(ClusterValues { values: values.collect() }))
}

/// Sets a key of the configuration at all nodes of the cluster: one of the section limits or an interval of announces. This
/// node checks the value as if it came from its file, and applies it before the reply.
#[utoipa::path(
    put, path = "/api/v1/cluster/values/{key}", tag = "cluster", security(("token" = ["admin"])),
    params(("key" = String, Path, example = "announce.interval_s")), request_body = NewValue,
    responses(
        (status = 200, body = ClusterValue),
        (status = 400, description = "There is no such key, or it does not accept the value.", body = ProblemBody),
        (status = 409, description = "The tracker shares no state with others.", body = ProblemBody),
        (status = 503, description = "The shared state of the cluster cannot be changed now.", body = ProblemBody)
    )
)]
pub(super) async fn set(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(key): Path<String>,
    JsonBody(NewValue { value }): JsonBody<NewValue>,
) -> Result<Json<ClusterValue>, Problem> {
    let state = shared(&control)?;
    if !is_line(&value, VALUE_BYTES_MAX) {
        let error = format!("a value has up to {VALUE_BYTES_MAX} bytes and no control characters");
        return Err(Problem::new(StatusCode::BAD_REQUEST, error));
    }
    let details = serde_json::json!({ "key": key, "value": value });
    let (operations, set) = (Arc::clone(&control.operations), SharedValue { value, by: caller.name.clone() });
    let (stored_key, stored) = (key.clone(), set.clone());
    let make = blocking(move || {
        let others = state.values().into_iter().filter(|(other, _)| *other != stored_key);
        let values = others.map(|(key, SharedValue { value, .. })| (key, value));
        let values: Vec<_> = values.chain([(stored_key.clone(), stored.value.clone())]).collect();
        let refuse = |error: String| Problem::new(StatusCode::BAD_REQUEST, error);
        operations.check_values(&values).map_err(refuse)?;
        Ok(state.set(&stored_key, &stored)?)
    });
    audit::change(&control, &caller, "cluster value", details, make).await?;
    Ok(Json(ClusterValue { key, value: set.value, by: set.by }))
}

/// Lets each node of the cluster have its own value of a key again.
#[utoipa::path(
    delete, path = "/api/v1/cluster/values/{key}", tag = "cluster", security(("token" = ["admin"])),
    params(("key" = String, Path, example = "announce.interval_s")),
    responses(
        (status = 200, description = "The values that are left.", body = ClusterValues),
        (status = 404, description = "The cluster has no value of this key.", body = ProblemBody),
        (status = 409, description = "The tracker shares no state with others.", body = ProblemBody),
        (status = 503, description = "The shared state of the cluster cannot be changed now.", body = ProblemBody)
    )
)]
pub(super) async fn unset(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(key): Path<String>,
) -> Result<Json<ClusterValues>, Problem> {
    let state = shared(&control)?;
    let details = serde_json::json!({ "key": key });
    let make = blocking(move || match state.unset(&key)? {
        true => Ok(()),
        false => {
            let error = format!("the cluster has no value of {key}; GET /api/v1/cluster/values lists all");
            Err(Problem::new(StatusCode::NOT_FOUND, error))
        }
    });
    audit::change(&control, &caller, "cluster value unset", details, make).await?;
    show(State(control)).await
}

fn shared(control: &Control) -> Result<Arc<dyn SharedValues>, Problem> {
    let shared = control.sources.cluster.as_ref().and_then(|cluster| cluster.values());
    shared.ok_or_else(|| {
        let error = "the tracker shares no state with others: cluster.servers is [], or cluster.shared_state is false";
        Problem::new(StatusCode::CONFLICT, error)
    })
}
