//! Whether every worker answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::pulse::Pulse;

/// How often the answers are looked at. A worker is woken by nothing but traffic and its own timeout, so it takes
/// some tens of milliseconds to answer anyway.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The workers that gave no sign of life within `patience` of being asked, by their numbers.
pub(super) async fn silent(pulses: &[Arc<Pulse>], patience: Duration) -> Vec<usize> {
    let questions: Vec<u64> = pulses.iter().map(|pulse| pulse.ask()).collect();
    let deadline = Instant::now() + patience;
    loop {
        let silent: Vec<usize> =
            (0..pulses.len()).filter(|&worker| pulses[worker].answered() < questions[worker]).collect();
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
        let pulses = [Arc::new(Pulse::default()), Arc::new(Pulse::default()), Arc::new(Pulse::default())];
        let alive = async {
            loop {
                pulses[0].beat(1);
                pulses[2].beat(1);
                sleep(Duration::from_millis(1)).await;
            }
        };
        let silent = run(async {
            tokio::select! {
                silent = silent(&pulses, Duration::from_millis(50)) => silent,
                () = alive => unreachable!(),
            }
        });
        assert_eq!(silent, [1]);
    }

    #[test]
    fn a_beat_before_the_question_is_no_answer() {
        let pulses = [Arc::new(Pulse::default())];
        pulses[0].beat(1);
        assert_eq!(run(silent(&pulses, Duration::ZERO)), [0]);
    }

    #[test]
    fn nobody_is_silent_where_all_answer() {
        let pulse = Arc::new(Pulse::default());
        let asked = [Arc::clone(&pulse)];
        let beats = async {
            sleep(Duration::from_millis(10)).await;
            pulse.beat(1);
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
