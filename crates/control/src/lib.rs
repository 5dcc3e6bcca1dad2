//! The control listener: HTTP for operators and their tools, over TCP and over a Unix socket for the users of this host.
//!
//! It runs on the main thread, in its own runtime. It reads the counters of the workers and checks that they respond,
//! without a lock. Only look-ups of torrents and peers lock a part of the store, each for as long as a worker's look-up
//! (see `insight`).
//!
//! A request passes `listener` (time and memory), `guard` (pages of other sites), and `auth` (tokens, roles,
//! rates), before the handler of its route runs. `api` declares the routes with what they need.

#![deny(unsafe_code)]

mod access;
mod api;
mod audit;
mod auth;
mod body;
pub mod carried;
pub mod cluster;
mod counters;
pub mod drain;
mod extract;
mod guard;
mod health;
pub mod insight;
pub mod last_day;
mod listener;
pub mod metrics;
pub mod operations;
mod page;
pub mod pause;
mod problem;
pub mod process;
pub mod public_statistics;
mod scrape;
pub mod stats;

use std::sync::Arc;

use axum::extract::FromRef;
use axum::http::StatusCode;
use axum::{Router, middleware};
use shoal_base::source::Holdings;
use shoal_config::HostName;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

pub use self::auth::tokens::{Role, TokenSet, Tokens, is_name as is_token_name, line as token_line};
use self::auth::{Auth, Need};
use self::drain::Drain;
pub use self::listener::bind;
use self::listener::connections::Connections;
pub use self::listener::local::{LocalSocket, candidates as local_candidates, path as local_path, reachable};
pub use self::metrics::{Sources, WorkerSources};
use self::operations::Operations;
use self::problem::Problem;
use self::stats::latest::LatestStats;
use shoal_runtime::log::LogFilter;

/// The state of the handlers. Clones share everything.
#[derive(Clone)]
pub struct Control {
    /// The sources of all pages.
    pub sources: Arc<Sources>,
    tokens: Arc<Tokens>,
    operations: Arc<dyn Operations>,
    pub(crate) drain: Drain,
    log: LogFilter,
    holdings: Option<Arc<Holdings>>,
    connections: Arc<Connections>,
    latest: Arc<LatestStats>,
}

/// How the listener is reached.
#[derive(Debug, Default)]
pub struct Access {
    /// The names that requests may use, in addition to IP addresses and localhost.
    pub hosts: Vec<HostName>,
    /// The certificate, if the listener serves HTTPS.
    pub tls: Option<shoal_session::tls::Server>,
}

impl Control {
    /// Creates the state. A reload changes the tokens and the filter of the log.
    pub fn new(
        sources: Arc<Sources>,
        operations: Arc<dyn Operations>,
        drain: Drain,
        (tokens, log): (Arc<Tokens>, LogFilter),
        holdings: Option<Arc<Holdings>>,
    ) -> Self {
        let latest = Arc::new(LatestStats::new(Arc::clone(&sources)));
        let connections = Arc::new(Connections::new(Arc::clone(&sources.control)));
        Self { sources, tokens, operations, drain, log, holdings, connections, latest }
    }
}

impl FromRef<Control> for Arc<LatestStats> {
    fn from_ref(control: &Control) -> Self {
        Self::clone(&control.latest)
    }
}

impl FromRef<Control> for Arc<Sources> {
    fn from_ref(control: &Control) -> Self {
        Self::clone(&control.sources)
    }
}

/// Answers operators until it is dropped.
pub async fn serve(
    (listener, local): (TcpListener, Option<Arc<LocalSocket>>),
    control: Control,
    access: Access,
) {
    let tls = access.tls.map(|server| TlsAcceptor::from(server.config()));
    let (connections, mut tokens) = (Arc::clone(&control.connections), control.tokens.subscribe());
    let collecting = Arc::clone(&control.latest).collect();
    let router = router(control, access.hosts);
    let local = listener::serve_local(local, Arc::clone(&connections), router.clone());
    let accepting = listener::serve(listener, tls, Arc::clone(&connections), router);
    let following = async {
        // Tokens that are no longer valid may have opened streams. Clients with valid tokens open theirs again.
        while tokens.changed().await.is_ok() {
            connections.end_streams();
        }
    };
    tokio::join!(accepting, local, following, collecting);
}

fn router(control: Control, hosts: Vec<HostName>) -> Router {
    let (auth, counters) = (Auth::new(Arc::clone(&control.tokens)), Arc::clone(&control.sources.control));
    let guard = middleware::from_fn_with_state((Arc::from(hosts), counters), guard::admit);
    routes(auth).with_state(control).layer(guard)
}

/// Returns all routes. `api` declares each endpoint, so that it has a description and a role.
fn routes(auth: Auth) -> Router<Control> {
    let auth = Arc::new(auth);
    let needing = |need: Need, routes: Router<Control>| match need {
        Need::Nothing => routes,
        need => routes.route_layer(middleware::from_fn_with_state((Arc::clone(&auth), need), auth::require)),
    };
    api::routes(&needing)
        .fallback(|| async { Problem::new(StatusCode::NOT_FOUND, "no such page; / is the status page") })
        .method_not_allowed_fallback(|| async {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this page does not allow this method")
        })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The router tells its paths only in its debug output.
    #[test]
    fn the_openapi_document_describes_every_route() {
        let shown = format!("{:?}", routes(Auth::new(Arc::new(Tokens::new(TokenSet::default())))));
        let mut paths: BTreeSet<&str> = shown.split('"').filter(|text| text.starts_with('/')).collect();
        paths.retain(|path| !path.contains("axum_fallback"));
        let count = |part: &str| shown.matches(part).count();
        let handlers = count(": BoxedHandler") - count("fallback: BoxedHandler");
        let document: serde_json::Value = serde_json::from_str(&api::document()).unwrap();
        let described = document["paths"].as_object().unwrap();
        assert_eq!(paths, described.keys().map(String::as_str).collect());
        let operations: usize = described.values().map(|methods| methods.as_object().unwrap().len()).sum();
        assert_eq!(handlers, operations);
    }
}
