//! The control listener: HTTP for operators and their tools.
//!
//! It runs on the main thread, in a runtime of its own. It reads the counters of the workers and checks that they
//! respond, but takes no lock that a worker waits for, so that nothing it does can delay a reply to a client.
//!
//! A request passes `listener` (time and memory, by `connections`), `guard` (pages of other sites), and `auth` (tokens, roles,
//! rates), before the handler of its route runs. [`router`] lists the routes by what they need.

mod api;
mod audit;
mod auth;
mod body;
mod connections;
mod guard;
mod health;
mod listener;
pub(crate) mod metrics;
mod page;
mod problem;
mod rate;
mod snapshots;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRef, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, middleware};
use shoal_config::HostName;
use shoal_source::Holdings;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use self::auth::{Auth, Need};
use self::connections::Connections;
pub(crate) use self::listener::bind;
pub(crate) use self::metrics::{Sources, WorkerSources};
use self::problem::{JSON, Problem};
use self::snapshots::Snapshots;
pub(crate) use self::tokens::{Role, TokenSet, Tokens, is_name as is_token_name, line as token_line};
use crate::access::ListControl;
use crate::drain::Drain;
use crate::log::LogFilter;
use crate::reload::Reloader;

/// Time within which a worker must respond.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time within which the lists must be read for a request. The reading goes on beyond it.
const LISTS_TIME_MAX: Duration = Duration::from_secs(12);

/// The state of the handlers. Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    pub(crate) sources: Arc<Sources>,
    tokens: Arc<Tokens>,
    reloader: Arc<Reloader>,
    pub(crate) drain: Drain,
    log: LogFilter,
    /// How much the sources hold, if that is limited.
    holdings: Option<Arc<Holdings>>,
    connections: Arc<Connections>,
    snapshots: Arc<Snapshots>,
}

/// How the listener is reached.
#[derive(Debug, Default)]
pub(crate) struct Access {
    /// The names that requests may use, in addition to IP addresses and localhost.
    pub(crate) hosts: Vec<HostName>,
    /// The certificate, if the listener serves HTTPS.
    pub(crate) tls: Option<shoal_tls::Server>,
}

impl Control {
    pub(crate) fn new(
        sources: Sources,
        reloader: Arc<Reloader>,
        drain: Drain,
        holdings: Option<Arc<Holdings>>,
    ) -> Self {
        let (tokens, log) = (Arc::clone(&reloader.control_tokens), reloader.log.clone());
        let sources = Arc::new(sources);
        let snapshots = Arc::new(Snapshots::new(Arc::clone(&sources)));
        Self { sources, tokens, reloader, drain, log, holdings, connections: Arc::default(), snapshots }
    }
}

impl FromRef<Control> for Arc<Snapshots> {
    fn from_ref(control: &Control) -> Self {
        Self::clone(&control.snapshots)
    }
}

impl FromRef<Control> for Arc<Sources> {
    fn from_ref(control: &Control) -> Self {
        Self::clone(&control.sources)
    }
}

/// Answers operators until it is dropped.
pub(crate) async fn serve(listener: TcpListener, control: Control, access: Access) {
    let tls = access.tls.map(|server| TlsAcceptor::from(server.config()));
    let (connections, mut tokens) = (Arc::clone(&control.connections), control.tokens.subscribe());
    let collecting = Arc::clone(&control.snapshots).collect();
    let accepting = listener::serve(listener, tls, Arc::clone(&connections), router(control, access.hosts));
    let following = async {
        // Tokens that are no longer valid may have opened streams. The clients of the others open them again.
        while tokens.changed().await.is_ok() {
            connections.end_streams();
        }
    };
    tokio::join!(accepting, following, collecting);
}

fn router(control: Control, hosts: Vec<HostName>) -> Router {
    let auth = Arc::new(Auth::new(Arc::clone(&control.tokens)));
    let needing = |need: Need, routes: Router<Control>| {
        routes.route_layer(middleware::from_fn_with_state((Arc::clone(&auth), need), auth::require))
    };
    // These reveal nothing but the health of the tracker.
    let open = Router::new()
        .route("/health", get(health))
        .route("/health/live", get(health))
        .route("/health/ready", get(ready))
        .merge(page::document());
    let reading = Router::new().route("/metrics", get(metrics)).route("/access", get(access));
    let reading = reading.merge(page::figures());
    let reloading = Router::new().route("/access/reload", post(reload_access));
    open.merge(api::routes(&needing))
        .merge(needing(Need::Read, reading))
        .merge(needing(Need::Reload, reloading))
        .fallback(|| async { Problem::new(StatusCode::NOT_FOUND, "no such page; / is the status page") })
        .method_not_allowed_fallback(|| async {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this page does not allow this method")
        })
        .with_state(control)
        .layer(middleware::from_fn_with_state(Arc::from(hosts), guard::admit))
}

/// Answers whether every worker responds.
async fn health(State(sources): State<Arc<Sources>>) -> Response {
    let heartbeats: Vec<_> = sources.workers.iter().map(|worker| Arc::clone(&worker.heartbeat)).collect();
    let silent = health::silent(&heartbeats, PATIENCE).await;
    let status = if silent.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = serde_json::json!({
        "healthy": silent.is_empty(),
        "workers": heartbeats.len(),
        "silent_workers": silent,
    });
    (status, [(header::CONTENT_TYPE, JSON)], format!("{body}\n")).into_response()
}

/// Whether new clients may come: the health, unless the tracker drains.
async fn ready(State(control): State<Control>) -> Response {
    if control.drain.current().is_none() {
        return health(State(control.sources)).await;
    }
    let body = serde_json::json!({ "ready": false, "draining": true });
    (StatusCode::SERVICE_UNAVAILABLE, [(header::CONTENT_TYPE, JSON)], format!("{body}\n")).into_response()
}

async fn metrics(State(sources): State<Arc<Sources>>, headers: HeaderMap) -> Response {
    let accepts = |kind: &str| {
        headers
            .get_all(header::ACCEPT)
            .iter()
            .any(|accepted| accepted.to_str().is_ok_and(|accepted| accepted.contains(kind)))
    };
    match metrics::encode(&sources) {
        Ok(text) if accepts("text/plain") && !accepts("openmetrics") => {
            ([(header::CONTENT_TYPE, metrics::plain::CONTENT_TYPE)], metrics::plain::convert(&text))
                .into_response()
        }
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn access(State(sources): State<Arc<Sources>>) -> Response {
    tell_of_lists(&sources, ListControl::status).await
}

/// Reads the lists again.
async fn reload_access(State(sources): State<Arc<Sources>>) -> Response {
    tell_of_lists(&sources, ListControl::reload).await
}

/// Calls `ask` on a thread that may block. At most one such thread waits or works: a file system can hang.
async fn tell_of_lists(sources: &Sources, ask: fn(&ListControl) -> serde_json::Value) -> Response {
    static ASKING: Semaphore = Semaphore::const_new(1);
    let busy =
        || (StatusCode::SERVICE_UNAVAILABLE, "the lists are being read; ask again later\n").into_response();
    let Ok(permit) = ASKING.try_acquire() else { return busy() };
    let lists = sources.list_control.clone();
    let asked = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        ask(&lists)
    });
    match tokio::time::timeout(LISTS_TIME_MAX, asked).await {
        Ok(Ok(told)) => ([(header::CONTENT_TYPE, JSON)], format!("{told}\n")).into_response(),
        Ok(Err(_)) | Err(_) => busy(),
    }
}
