//! The lists of torrents.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{blocking, looking_up};
use crate::Control;
use crate::auth::Caller;
use crate::body::JsonBody;
use crate::extract::{Path, Query};
use crate::problem::{Problem, ProblemBody};
use shoal_runtime::failure::Failure;
use shoal_runtime::lists::operations::{self, Changed, NewDetails, SharedFailure, Which};
use shoal_runtime::lists::{ListControl, ListEntry, ListSources};

/// Maximum number of entries in a reply, and of torrents in a change.
const ENTRIES_MAX: usize = 1000;

/// The entries to search for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Search {
    text: Option<String>,
    info_hash: Option<String>,
    #[serde(default = "default_max")]
    max: usize,
}

const fn default_max() -> usize {
    100
}

/// The entries that were found.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Found {
    entries: Vec<ListEntry>,
    /// Whether there are more.
    has_more: bool,
}

/// Torrents to add to a list.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Addition {
    /// Info hashes (40 or 64 hexadecimal digits, or base32) or magnet links, up to 1000.
    torrents: Vec<String>,
    /// Why; clients show it to their users.
    reason: Option<String>,
    /// A reference for your records, such as the number of a case.
    reference: Option<String>,
    /// The date of the entry, as YYYY-MM-DD; today by default.
    date: Option<String>,
}

/// Torrents to remove from a list.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Removal {
    /// Info hashes or magnet links, up to 1000.
    torrents: Vec<String>,
}

/// The outcome of a change.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ListChange {
    /// The info hashes that were added or removed.
    changed: Vec<String>,
    /// Those that were there before, or were not.
    unchanged: Vec<String>,
    /// The file that was changed, or "cluster" for the list that all nodes of a cluster share.
    source: String,
    /// Entries of these torrents in other sources of the list, which stay as they are.
    others: Vec<ListEntry>,
}

impl From<SharedFailure> for Problem {
    fn from(failure: SharedFailure) -> Self {
        match failure {
            SharedFailure::Refused(failure) => failure.into(),
            SharedFailure::Shared(error) => error.into(),
        }
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let status = match failure {
            Failure::Configuration(_) => StatusCode::BAD_REQUEST,
            Failure::NotPermitted(_) | Failure::NothingFound(_) | Failure::Other(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        Self::new(status, failure.to_string())
    }
}

/// The sources of all lists, with the number of their entries and their faults.
#[utoipa::path(
    get, path = "/api/v1/lists", tag = "lists", security(("token" = ["read"])),
    responses((status = 200, body = ListSources))
)]
pub(super) async fn show(State(control): State<Control>) -> Result<Json<ListSources>, Problem> {
    let lists = control.sources.list_control.clone();
    looking_up(move || Ok(lists.status())).await.map(Json)
}

/// The entries of a list, as the tracker applies them.
#[utoipa::path(
    get, path = "/api/v1/lists/{list}/torrents", tag = "lists", security(("token" = ["read"])),
    params(
        ("list" = Which, Path),
        ("text" = Option<String>, Query, description = "A text that the reason or the reference contains, in any case."),
        ("info_hash" = Option<String>, Query, description = "An info hash: only its entry is returned."),
        ("max" = Option<u16>, Query, description = "Maximum number of entries: 1 to 1000, by default 100.")
    ),
    responses((status = 200, body = Found), (status = 400, body = ProblemBody))
)]
pub(super) async fn search(
    State(control): State<Control>,
    Path(list): Path<Which>,
    Query(search): Query<Search>,
) -> Result<Json<Found>, Problem> {
    if !(1..=ENTRIES_MAX).contains(&search.max) {
        return Err(Problem::new(StatusCode::BAD_REQUEST, format!("max must be from 1 to {ENTRIES_MAX}")));
    }
    let lists = control.sources.list_control.clone();
    let found = looking_up(move || match search.info_hash {
        Some(info_hash) => {
            let wanted = operations::parse_torrents(&[info_hash])?;
            let entries = wanted.iter().filter_map(|info_hash| lists.entry(list, info_hash)).collect();
            Ok(Found { entries, has_more: false })
        }
        None => {
            let (entries, has_more) = lists.search(list, search.text.as_deref(), search.max);
            Ok(Found { entries, has_more })
        }
    });
    found.await.map(Json)
}

/// Adds torrents to a list: to that of all nodes in a cluster, or to its first file. It applies before the reply, or for a file of more than 8 MiB, perhaps after it.
#[utoipa::path(
    post, path = "/api/v1/lists/{list}/add", tag = "lists", security(("token" = ["admin"])),
    params(("list" = Which, Path)), request_body = Addition,
    responses(
        (status = 200, body = ListChange),
        (status = 400, body = ProblemBody),
        (status = 409, description = "The list has no file, or is full.", body = ProblemBody),
        (status = 503, description = "The shared state of the cluster cannot be changed now.", body = ProblemBody)
    )
)]
pub(super) async fn add(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(list): Path<Which>,
    JsonBody(addition): JsonBody<Addition>,
) -> Result<Json<ListChange>, Problem> {
    let Addition { torrents, reason, reference, date } = addition;
    let details = NewDetails { date, reference, reason };
    change(&control, list, torrents, move |lists, wanted| {
        let (live, author) = (lists.publisher.live.latest(), caller.author());
        let config = live.policy.config();
        match lists.shared() {
            Some(shared) => Ok(operations::add_shared(config, (shared, list), wanted, &details, author)?),
            None => Ok(operations::add(config, (list, None), wanted, &details, author)?),
        }
    })
    .await
}

/// Removes torrents from a list: from that of all nodes in a cluster, or from its first file. It applies before the reply, or for a file of more than 8 MiB, after it.
#[utoipa::path(
    post, path = "/api/v1/lists/{list}/remove", tag = "lists", security(("token" = ["admin"])),
    params(("list" = Which, Path)), request_body = Removal,
    responses(
        (status = 200, body = ListChange),
        (status = 400, body = ProblemBody),
        (status = 409, description = "The list has no file, or is full.", body = ProblemBody),
        (status = 503, description = "The shared state of the cluster cannot be changed now.", body = ProblemBody)
    )
)]
pub(super) async fn remove(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(list): Path<Which>,
    JsonBody(removal): JsonBody<Removal>,
) -> Result<Json<ListChange>, Problem> {
    change(&control, list, removal.torrents, move |lists, wanted| {
        let (live, author) = (lists.publisher.live.latest(), caller.author());
        let config = live.policy.config();
        match lists.shared() {
            Some(shared) => Ok(operations::remove_shared(config, (shared, list), wanted, author)?),
            None => Ok(operations::remove(config, (list, None), wanted, author)?),
        }
    })
    .await
}

/// Changes a list, records the change, and applies it.
async fn change(
    control: &Control,
    which: Which,
    torrents: Vec<String>,
    change: impl FnOnce(&ListControl, &[shoal_base::InfoHash]) -> Result<Changed, Problem> + Send + 'static,
) -> Result<Json<ListChange>, Problem> {
    if torrents.is_empty() || torrents.len() > ENTRIES_MAX {
        let error = format!("torrents must name 1 to {ENTRIES_MAX} torrents");
        return Err(Problem::new(StatusCode::BAD_REQUEST, error));
    }
    let live = control.sources.live.latest();
    let config = live.policy.config();
    let is_shared = control.sources.list_control.shared().is_some();
    if !(is_shared && which.takes_shared(config) || !is_shared && which.has_file(config)) {
        let name = which.name();
        let error = format!(
            "access.torrents_{name} names no file to change: set it to a file that the tracker may write, and reload"
        );
        return Err(Problem::new(StatusCode::CONFLICT, error));
    }
    let lists = control.sources.list_control.clone();
    let changed = blocking(move || {
        let wanted = operations::parse_torrents(&torrents)?;
        let changed = change(&lists, &wanted)?;
        lists.follow_files();
        changed.record()?;
        let (did, did_not): (Vec<_>, Vec<_>) =
            wanted.iter().partition(|info_hash| changed.info_hashes.contains(info_hash));
        let shown = |info_hashes: Vec<&shoal_base::InfoHash>| {
            info_hashes.iter().map(|info_hash| format!("{info_hash:?}")).collect()
        };
        let source = changed.path.display().to_string();
        let entries = wanted.iter().filter_map(|info_hash| lists.entry(which, info_hash));
        let others = entries.filter(|entry| *entry.source() != source).collect();
        Ok(ListChange { changed: shown(did), unchanged: shown(did_not), source, others })
    });
    changed.await.map(Json)
}
