//! The endpoints of the control listener: version 1 of the JSON API, and older endpoints.
//!
//! Each endpoint is a function with its description beside it, from which the OpenAPI document is made. `endpoints!`
//! names each of them once, with its method, its path and what it needs, so no endpoint lacks a description or a role.
//! Tests compare the description with the router, and with the replies to each kind of token.

mod bans;
mod changes;
mod cluster;
#[cfg(test)]
mod document;
mod drain;
mod lists;
mod log;
mod pauses;
mod reload;
mod sources;
mod state;
mod stats;
mod torrents;

use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{delete, get, post, put};
use tokio::sync::Semaphore;
#[cfg(test)]
use utoipa::OpenApi;

#[cfg(test)]
pub(crate) use self::document::document;
#[cfg(test)]
use self::document::{Names, Refusals, Statistics, Tokens};
use super::auth::Need;
#[cfg(test)]
use super::problem::ProblemBody;
use super::problem::{JSON, Problem};
use super::{Control, access, health, page, scrape};

/// Declares the endpoints: their routes, and the document that describes them.
macro_rules! endpoints {
    ($($need:ident: $method:ident $path:literal => $module:ident::$handler:ident,)+) => {
        #[cfg(test)]
        #[derive(OpenApi)]
        #[openapi(
            info(
                title = "Shoal",
                description = "The control listener of Shoal, a BitTorrent tracker: its API, and its pages and figures.",
                version = "1",
                license(name = "Apache-2.0 OR MIT", identifier = "Apache-2.0 OR MIT")
            ),
            paths($($module::$handler,)+),
            components(schemas(ProblemBody)),
            modifiers(&Tokens, &Names, &Refusals, &Statistics)
        )]
        struct Document;

        /// Returns the routes of the endpoints, grouped by what they need.
        pub(super) fn routes(needing: &impl Fn(Need, Router<Control>) -> Router<Control>) -> Router<Control> {
            Router::new()$(.merge(needing(Need::$need, Router::new().route($path, $method($module::$handler)))))+
        }
    };
}

endpoints! {
    Nothing: get "/" => page::page,
    Nothing: get "/health" => health::health,
    Nothing: get "/health/live" => health::live,
    Nothing: get "/health/ready" => health::ready,
    Read: get "/metrics" => scrape::metrics,
    Read: get "/status" => page::stats,
    Read: get "/status/events" => page::events,
    Read: get "/status/history" => page::history,
    Read: get "/access" => access::show,
    Reload: post "/access/reload" => access::reload,
    Read: get "/api/v1/bans" => bans::list,
    Admin: post "/api/v1/bans" => bans::set,
    Admin: delete "/api/v1/bans" => bans::lift_earned,
    Admin: delete "/api/v1/bans/{network}" => bans::lift,
    Read: get "/api/v1/changes" => changes::changes,
    Read: get "/api/v1/cluster/values" => cluster::show,
    Admin: put "/api/v1/cluster/values/{key}" => cluster::set,
    Admin: delete "/api/v1/cluster/values/{key}" => cluster::unset,
    Read: get "/api/v1/drain" => drain::show,
    Admin: put "/api/v1/drain" => drain::begin,
    Admin: delete "/api/v1/drain" => drain::cancel,
    Read: get "/api/v1/lists" => lists::show,
    Read: get "/api/v1/lists/{list}/torrents" => lists::search,
    Admin: post "/api/v1/lists/{list}/add" => lists::add,
    Admin: post "/api/v1/lists/{list}/remove" => lists::remove,
    Read: get "/api/v1/log" => log::show,
    Admin: put "/api/v1/log" => log::set,
    Read: get "/api/v1/openapi.json" => self::openapi,
    Read: get "/api/v1/pauses" => pauses::list,
    Admin: post "/api/v1/pauses" => pauses::pause,
    Admin: post "/api/v1/pauses/resume" => pauses::resume,
    Admin: post "/api/v1/reload" => reload::reload,
    Admin: post "/api/v1/snapshot" => state::snapshot,
    Admin: get "/api/v1/sources/{address}" => sources::show,
    Read: get "/api/v1/stats" => stats::stats,
    Read: get "/api/v1/top" => torrents::top,
    Read: post "/api/v1/torrents" => torrents::show_many,
    Read: get "/api/v1/torrents/{info_hash}" => torrents::show,
    Admin: post "/api/v1/upgrade" => state::upgrade,
}

/// The document that describes the endpoints. A test makes it from the code: the code that makes it is larger than the
/// document, and no part of the program.
const DOCUMENT: &str = include_str!("../../../docs/openapi.json");

/// This document.
#[utoipa::path(
    get, path = "/api/v1/openapi.json", tag = "figures", security(("token" = ["read"])),
    responses((status = 200, description = "The document.", body = serde_json::Value))
)]
async fn openapi() -> impl IntoResponse {
    ([(axum::http::header::CONTENT_TYPE, JSON)], DOCUMENT)
}

/// Runs a change that may block for some time, such as one of a file, on a separate thread. At most one is in progress:
/// a file system can hang, and changes follow one another.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    static CHANGES: Semaphore = Semaphore::const_new(1);
    const BUSY: &str =
        "another change is in progress, or the file system hangs; look at the state before trying again";
    taking_turns(&CHANGES, BUSY, work).await
}

/// Runs a look-up that may block for some time likewise, without holding up a change.
async fn looking_up<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    static LOOK_UPS: Semaphore = Semaphore::const_new(1);
    taking_turns(&LOOK_UPS, "another look-up is in progress; try again", work).await
}

/// Runs work on a separate thread when it has a permit.
async fn taking_turns<T: Send + 'static>(
    permits: &'static Semaphore,
    busy: &str,
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    /// Maximum wait for earlier work and for this one.
    const TIME_MAX: Duration = Duration::from_secs(6);
    let busy = || Problem::later(StatusCode::SERVICE_UNAVAILABLE, busy, TIME_MAX);
    let permit = tokio::time::timeout(TIME_MAX, permits.acquire()).await.map_err(|_| busy())?;
    let permit = permit.map_err(|_| busy())?;
    let done = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work()
    });
    match tokio::time::timeout(TIME_MAX, done).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => {
            Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "a thread has failed; the log tells why"))
        }
        Err(_) => Err(busy()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `SHOAL_BLESS=1 cargo test -p shoal-control --lib openapi` writes the file anew.
    #[test]
    fn the_openapi_document_is_checked_in() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        if std::env::var_os("SHOAL_BLESS").is_some() {
            std::fs::write(&path, document()).unwrap();
        }
        assert!(
            std::fs::read_to_string(&path).unwrap_or_default() == document(),
            "docs/openapi.json is not what the code says; SHOAL_BLESS=1 writes it anew"
        );
    }

    /// The lines around the table of endpoints in docs/control.md.
    const TABLE: [&str; 2] = [
        "<!-- generated by `SHOAL_BLESS=1 cargo test -p shoal-control --lib openapi` -->\n\n",
        "\n<!-- end -->",
    ];

    #[test]
    fn the_page_has_every_endpoint_of_the_openapi_document() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/control.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let (before, rest) = page.split_once(TABLE[0]).unwrap();
        let (table, after) = rest.split_once(TABLE[1]).unwrap();
        if std::env::var_os("SHOAL_BLESS").is_some() {
            let page = [before, TABLE[0], &endpoints(), TABLE[1], after].concat();
            std::fs::write(&path, page).unwrap();
        } else {
            assert!(
                table == endpoints(),
                "docs/control.md is not what the code says; SHOAL_BLESS=1 writes it anew"
            );
        }
    }

    /// Returns a row for each endpoint: the request, the role that it takes, and the first sentence of its description.
    fn endpoints() -> String {
        let document: serde_json::Value = serde_json::from_str(&document()).unwrap();
        let mut rows = Vec::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let role = operation["security"][0]["token"][0].as_str().unwrap_or("none");
                let summary = operation["summary"].as_str().unwrap().replace('\n', " ");
                let sentence = summary.split(". ").next().unwrap().trim_end_matches('.');
                let row = format!("| `{} {path}` | {role} | {sentence} |\n", method.to_uppercase());
                rows.push((path.clone(), method.clone(), row));
            }
        }
        // The order of members in JSON depends on the features of a library.
        rows.sort();
        let rows: String = rows.iter().map(|(.., row)| row.as_str()).collect();
        format!("| Request | Role | |\n|---|---|---|\n{rows}")
    }
}
