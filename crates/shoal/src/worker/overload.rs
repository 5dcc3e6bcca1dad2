//! Tells the operator when the tracker is overloaded. Workers log nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use shoal_runtime::heartbeat::Heartbeat;
use shoal_runtime::repeated::Repeated;

/// How often the stages of the workers are compared with the previous ones.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Logs the begin and end of each overload, until it is dropped.
pub(crate) async fn report(workers: Vec<Arc<Heartbeat>>) {
    let (mut is_overloaded, mut is_told, mut begins) = (false, false, Repeated::default());
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let overloaded = workers.iter().filter(|worker| worker.overload.read() > 0).count();
        let was_overloaded = std::mem::replace(&mut is_overloaded, overloaded > 0);
        match (was_overloaded, is_overloaded) {
            (false, true) => {
                let unlogged = begins.note(Instant::now());
                is_told = unlogged.is_some();
                if let Some(unlogged) = unlogged {
                    tracing::warn!(
                        overloaded,
                        workers = workers.len(),
                        unlogged,
                        "overloaded: more requests arrive than workers answer; intervals are longer, then scrapes are refused"
                    );
                }
            }
            (true, false) if is_told => tracing::info!("no longer overloaded"),
            _ => {}
        }
    }
}
