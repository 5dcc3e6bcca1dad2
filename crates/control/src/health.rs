//! Whether every worker and every reader of files responds, and whether new clients may come.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::time::{Instant, sleep};
use utoipa::ToSchema;

use super::problem::JSON;
use super::{Control, Sources};
use crate::pause;
use shoal_runtime::clock;
use shoal_runtime::heartbeat::Heartbeat;

/// Time within which a worker must respond.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often the answers are polled. Only traffic and its own timeout wake a worker, so an answer takes some tens of
/// milliseconds anyway.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The health of the tracker.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// Whether every worker responds.
    healthy: bool,
    /// The number of workers.
    workers: usize,
    /// The numbers of the workers that do not respond.
    silent_workers: Vec<usize>,
    /// The threads that have been reading files of the operator for more than a minute: "lists", "token-keys". Clients are served
    /// meanwhile, and a new process would read the same files, so the tracker stays healthy. Changes of these files wait.
    silent_readers: Vec<&'static str>,
    /// The protocols and address families that the operator has paused, such as "udp v6".
    paused: Vec<String>,
}

/// Why no new clients may come.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NotReady {
    /// Always false.
    ready: bool,
    /// Whether the tracker drains.
    draining: bool,
    /// Whether it joins a cluster, and fetches the swarms of another node.
    joining: bool,
}

/// Whether every worker responds within a second.
#[utoipa::path(
    get, path = "/health", tag = "health", security(()),
    responses((status = 200, body = Health), (status = 503, description = "A worker does not respond.", body = Health))
)]
pub(super) async fn health(State(sources): State<Arc<Sources>>) -> Response {
    told(&sources).await
}

/// The same as `/health`, under the name that orchestrators use.
#[utoipa::path(
    get, path = "/health/live", tag = "health", security(()),
    responses((status = 200, body = Health), (status = 503, description = "A worker does not respond.", body = Health))
)]
pub(super) async fn live(State(sources): State<Arc<Sources>>) -> Response {
    told(&sources).await
}

/// The same as `/health`, but 503 while the tracker drains, or joins a cluster: whether new clients may come.
#[utoipa::path(
    get, path = "/health/ready", tag = "health", security(()),
    responses(
        (status = 200, body = Health),
        (
            status = 503, body = NotReady,
            description = "The tracker drains or joins a cluster, or a worker does not respond (then as `/health`)."
        )
    )
)]
pub(super) async fn ready(State(control): State<Control>) -> Response {
    let draining = control.drain.current().is_some();
    let joining = control.sources.cluster.as_ref().is_some_and(|cluster| !cluster.is_ready());
    if draining || joining {
        return json(StatusCode::SERVICE_UNAVAILABLE, &NotReady { ready: false, draining, joining });
    }
    told(&control.sources).await
}

async fn told(sources: &Sources) -> Response {
    let heartbeats: Vec<_> = sources.workers.iter().map(|worker| Arc::clone(&worker.heartbeat)).collect();
    let silent_workers = silent(&heartbeats, PATIENCE).await;
    let healthy = silent_workers.is_empty();
    let status = if healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let now_ms = clock::monotonic_ms();
    let readers = [("lists", &sources.lists.heartbeat), ("token-keys", &sources.token_keys.heartbeat)];
    let silent_readers =
        readers.into_iter().filter(|(_, reader)| reader.is_silent(now_ms)).map(|(name, _)| name);
    let silent_readers = silent_readers.collect();
    let paused = pause::names(&sources.live.latest().policy);
    json(status, &Health { healthy, workers: heartbeats.len(), silent_workers, silent_readers, paused })
}

fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let body = serde_json::json!(body);
    (status, [(header::CONTENT_TYPE, JSON)], format!("{body}\n")).into_response()
}

/// Returns the numbers of the workers that did not respond within `patience`.
async fn silent(heartbeats: &[Arc<Heartbeat>], patience: Duration) -> Vec<usize> {
    let questions: Vec<u64> = heartbeats.iter().map(|heartbeat| heartbeat.ask()).collect();
    let deadline = Instant::now() + patience;
    loop {
        let silent: Vec<usize> = (0..heartbeats.len())
            .filter(|&worker| heartbeats[worker].answered.read() < questions[worker])
            .collect();
        if silent.is_empty() || Instant::now() >= deadline {
            return silent;
        }
        sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    #[test]
    fn a_worker_that_does_not_answer_is_named() {
        let heartbeats =
            [Arc::new(Heartbeat::default()), Arc::new(Heartbeat::default()), Arc::new(Heartbeat::default())];
        let alive = async {
            loop {
                heartbeats[0].beat(1);
                heartbeats[2].beat(1);
                sleep(Duration::from_millis(1)).await;
            }
        };
        let silent = run(async {
            tokio::select! {
                silent = silent(&heartbeats, Duration::from_millis(50)) => silent,
                () = alive => unreachable!(),
            }
        });
        assert_eq!(silent, [1]);
    }

    #[test]
    fn a_beat_before_the_question_is_no_answer() {
        let heartbeats = [Arc::new(Heartbeat::default())];
        heartbeats[0].beat(1);
        assert_eq!(run(silent(&heartbeats, Duration::ZERO)), [0]);
    }

    #[test]
    fn no_worker_is_silent_if_all_answer() {
        let heartbeat = Arc::new(Heartbeat::default());
        let asked = [Arc::clone(&heartbeat)];
        let beats = async {
            sleep(Duration::from_millis(10)).await;
            heartbeat.beat(1);
            std::future::pending::<()>().await;
        };
        let silent = run(async {
            tokio::select! {
                silent = silent(&asked, Duration::from_secs(60)) => silent,
                () = beats => unreachable!(),
            }
        });
        assert!(silent.is_empty());
    }
}
