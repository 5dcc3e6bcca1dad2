//! The control listener: HTTP for operators and their tools.
//!
//! It runs on the main thread, in a runtime of its own. It reads the counters of the workers and checks that they
//! respond, but takes no lock that a worker waits for, so that nothing it does can delay a reply to a client.
//! Every connection serves one request, in bounded time and memory. `guard` rejects requests from web pages of
//! other sites.

mod guard;
mod health;
mod metrics;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, middleware};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use shoal_config::HostName;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::access::ListControl;
pub(crate) use metrics::{Sources, WorkerSources};

/// Maximum number of concurrent connections. Further ones wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 256;

/// Maximum times for the head of a request, and for the whole connection.
const HEAD_TIME_MAX: Duration = Duration::from_secs(1);
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(15);

/// Maximum size of a request's head: hyper asks for at least 8 KiB.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Time within which a worker must respond.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time within which the lists must be read for a request. The reading goes on beyond it.
const LISTS_TIME_MAX: Duration = Duration::from_secs(12);

const JSON: &str = "application/json";

/// Pause after a failed accept, which mostly means that the process has run out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Minimum time between two log lines about failed accepts. A line states how many accepts failed without one.
const ACCEPT_LOG_EVERY: Duration = Duration::from_mins(1);

/// The page at `/`.
const INDEX: &str = "\
Shoal, a BitTorrent tracker

/health   200 if every worker answers, else 503
/metrics  metrics for Prometheus
/access   the sources of the lists, with their faults
";

/// Opens the listener.
pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!(
            "the control listener cannot bind TCP {address}; stop what uses it (`ss -ltnp` lists it) or set \
             control.listen to another address, or to \"\" to disable it"
        )
    })
}

/// Answers operators until it is dropped. Requests must name an IP address, localhost or one of `hosts`.
pub(crate) async fn serve(listener: TcpListener, sources: Arc<Sources>, hosts: Vec<HostName>) {
    let router = router(sources, hosts);
    let mut failed_accepts = FailedAccepts::default();
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(answer(stream, router.clone(), permit))),
            Err(error) => {
                if let Some(unlogged) = failed_accepts.note(Instant::now()) {
                    tracing::warn!(%error, unlogged, "the control listener could not accept a connection");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Failed accepts, of which only some are logged.
#[derive(Debug, Default)]
struct FailedAccepts {
    logged: Option<Instant>,
    /// The number of failures since the last one that was logged.
    unlogged: u64,
}

impl FailedAccepts {
    /// Records a failure. If it is to be logged, returns the number of unlogged failures before it.
    fn note(&mut self, now: Instant) -> Option<u64> {
        if self.logged.is_some_and(|logged| now < logged + ACCEPT_LOG_EVERY) {
            self.unlogged += 1;
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }
}

/// Serves one connection, which ends after its first request.
async fn answer(stream: TcpStream, router: Router, _permit: OwnedSemaphorePermit) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match tokio::time::timeout(CONNECTION_TIME_MAX, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a control connection failed"),
        Err(_) => tracing::debug!("a control connection took too long"),
    }
}

fn router(sources: Arc<Sources>, hosts: Vec<HostName>) -> Router {
    Router::new()
        .route("/", get(INDEX))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/access", get(access))
        .route("/access/reload", post(reload_access))
        .fallback(|| async { (StatusCode::NOT_FOUND, "no such page; / lists all pages\n") })
        .method_not_allowed_fallback(|| async {
            (StatusCode::METHOD_NOT_ALLOWED, "this page does not allow this method\n")
        })
        .with_state(sources)
        .layer(middleware::from_fn_with_state(Arc::from(hosts), guard::admit))
}

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

async fn metrics(State(sources): State<Arc<Sources>>) -> Response {
    match metrics::encode(&sources) {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn access(State(sources): State<Arc<Sources>>) -> Response {
    tell_of_lists(&sources, ListControl::status).await
}

/// Reads the lists again. A page of another site cannot send such a request: browsers ask first whether they may send
/// JSON, and get no permission.
async fn reload_access(State(sources): State<Arc<Sources>>, headers: HeaderMap) -> Response {
    if headers.get(header::CONTENT_TYPE).is_none_or(|kind| kind != JSON) {
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, "send the field Content-Type: application/json\n")
            .into_response();
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_accepts_are_logged_once_a_minute() {
        let mut failed = FailedAccepts::default();
        let start = Instant::now();
        assert_eq!(failed.note(start), Some(0));
        for ms in [0, 1, 59_999] {
            assert_eq!(failed.note(start + Duration::from_millis(ms)), None);
        }
        assert_eq!(failed.note(start + ACCEPT_LOG_EVERY), Some(3));
        assert_eq!(failed.note(start + 3 * ACCEPT_LOG_EVERY), Some(0));
    }
}
