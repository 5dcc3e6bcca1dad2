//! The JSON API of the control listener, version 1.
//!
//! Each endpoint is a function with its description beside it, from which the OpenAPI document is made. `endpoints!` names
//! each of them once, with its method, its path and what it needs; so no endpoint lacks a description or a role, which a
//! test compares with the description.

mod bans;
mod changes;
mod drain;
mod lists;
mod log;
mod reload;
mod sources;
mod torrents;

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{delete, get, post, put};
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};

use super::Control;
use super::auth::Need;
use super::problem::{JSON, Problem, ProblemBody};

/// Declares the endpoints: their routes, and the document that describes them.
macro_rules! endpoints {
    ($($need:ident: $method:ident $path:literal => $module:ident::$handler:ident,)+) => {
        #[derive(OpenApi)]
        #[openapi(
            info(
                title = "Shoal",
                description = "The API of the control listener of Shoal, a BitTorrent tracker.",
                version = "1",
                license(name = "Apache-2.0 OR MIT", identifier = "Apache-2.0 OR MIT")
            ),
            paths($($module::$handler,)+),
            components(schemas(ProblemBody)),
            modifiers(&Tokens)
        )]
        struct Document;

        /// Returns the routes of the endpoints by what they need.
        pub(super) fn routes(needing: &impl Fn(Need, Router<Control>) -> Router<Control>) -> Router<Control> {
            Router::new()
                .merge(needing(Need::Read, Router::new().route("/api/v1/openapi.json", get(openapi))))
                $(.merge(needing(Need::$need, Router::new().route($path, $method($module::$handler)))))+
        }
    };
}

endpoints! {
    Read: get "/api/v1/bans" => bans::list,
    Admin: post "/api/v1/bans" => bans::set,
    Admin: delete "/api/v1/bans/{network}" => bans::lift,
    Read: get "/api/v1/changes" => changes::changes,
    Read: get "/api/v1/drain" => drain::show,
    Admin: put "/api/v1/drain" => drain::begin,
    Admin: delete "/api/v1/drain" => drain::cancel,
    Read: get "/api/v1/lists" => lists::show,
    Read: get "/api/v1/lists/{list}/torrents" => lists::search,
    Admin: post "/api/v1/lists/{list}/add" => lists::add,
    Admin: post "/api/v1/lists/{list}/remove" => lists::remove,
    Read: get "/api/v1/log" => log::show,
    Admin: put "/api/v1/log" => log::set,
    Admin: post "/api/v1/reload" => reload::reload,
    Admin: get "/api/v1/sources/{address}" => sources::show,
    Read: get "/api/v1/top" => torrents::top,
    Read: post "/api/v1/torrents" => torrents::show_many,
    Read: get "/api/v1/torrents/{info_hash}" => torrents::show,
}

/// Adds how tokens are shown.
struct Tokens;

impl utoipa::Modify for Tokens {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some(
                "A token of the role that the endpoint names: read or admin. Without configured tokens, endpoints of \
                 the role read need none, and those of the role admin are refused.",
            ))
            .build();
        if let Some(components) = &mut document.components {
            components.add_security_scheme("token", SecurityScheme::Http(scheme));
        }
    }
}

/// Returns the OpenAPI document, as it is checked in.
pub(crate) fn document() -> String {
    let mut text = Document::openapi().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

async fn openapi() -> impl IntoResponse {
    ([(axum::http::header::CONTENT_TYPE, JSON)], document())
}

/// Runs something that may block for a time, such as a change of a file, on a thread of its own. At most one is in progress:
/// a file system can hang, and changes follow one another.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    use std::time::Duration;

    use tokio::sync::Semaphore;

    static CHANGES: Semaphore = Semaphore::const_new(1);
    /// Time to wait for the change before this one, and for this one.
    const TIME_MAX: Duration = Duration::from_secs(6);
    let busy = || {
        let error =
            "another change is in progress, or the file system hangs; look at the state before trying again";
        Problem::later(StatusCode::SERVICE_UNAVAILABLE, error, TIME_MAX)
    };
    let permit = tokio::time::timeout(TIME_MAX, CHANGES.acquire()).await.map_err(|_| busy())?;
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

    /// `SHOAL_BLESS=1 cargo test -p shoal --lib openapi` writes the file anew.
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
}
