//! Whether every worker responds.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::heartbeat::Heartbeat;

/// How often the answers are polled. Only traffic and its own timeout wake a worker, so that it takes some tens
/// of milliseconds to answer anyway.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Returns the numbers of the workers that did not respond within `patience`.
pub(super) async fn silent(heartbeats: &[Arc<Heartbeat>], patience: Duration) -> Vec<usize> {
    let questions: Vec<u64> = heartbeats.iter().map(|heartbeat| heartbeat.ask()).collect();
    let deadline = Instant::now() + patience;
    loop {
        let silent: Vec<usize> = (0..heartbeats.len())
            .filter(|&worker| heartbeats[worker].answered() < questions[worker])
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
