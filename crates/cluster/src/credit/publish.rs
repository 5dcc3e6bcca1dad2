//! The task that publishes batches, one at a time: the next one follows once the stream has the last one.
//!
//! More concurrent batches would be faster over long distances. But a batch that failed among others would come after
//! them, and consumers could not record their progress as one number per run. Batches of 128 KiB make up for it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::super::jetstream::{Availability, Copies, Fault, JetStream, nanoseconds};
use super::{Batch, CreditLink};

/// Maximum size of the stream in bytes: the first one for which the account has room.
const STREAM_BYTES_MAX: [u64; 2] = [1 << 30, 128 << 20];

/// The age at which the stream removes records.
const STREAM_AGE_MAX: Duration = Duration::from_hours(7 * 24);

/// Time for which the stream ignores a repeated batch.
const DUPLICATE_WINDOW: Duration = Duration::from_mins(10);

/// Pauses after faults: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(4);

/// How often the task checks for NATS.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Publishes the batches of a node, forever.
pub(crate) async fn publish(credit: Arc<CreditLink>) {
    let (mut pause, mut copies) = (PAUSE_MIN, Copies::default());
    loop {
        let client = credit.link.client().filter(|_| credit.link.is_connected());
        let Some(client) = client else {
            sleep(LOOK_EVERY).await;
            continue;
        };
        let jetstream = JetStream::new(client, credit.domain.as_deref());
        let mut stored = 0;
        let fault = publish_until_fault(&credit, &jetstream, &mut copies, &mut stored).await;
        credit.note_fault(fault);
        pause = if stored > 0 { PAUSE_MIN } else { (2 * pause).min(PAUSE_MAX) };
        sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
    }
}

async fn publish_until_fault(
    credit: &CreditLink,
    jetstream: &JetStream,
    copies: &mut Copies,
    stored: &mut u64,
) -> Fault {
    if let Err(fault) = open(credit, jetstream, copies).await {
        return fault;
    }
    // The stream may exist and still refuse batches. Only an accepted batch proves that it takes them.
    if credit.offered().is_none() {
        credit.note_accepted();
    }
    loop {
        let Batch { run, sequence, payload } = credit.next().await;
        let id = format!("{run}.{sequence}");
        match jetstream.publish(&credit.subject, payload, &id, &credit.stream).await {
            Ok(()) => {
                *stored += 1;
                credit.note_stored();
                credit.note_accepted();
            }
            Err(fault) => return fault,
        }
    }
}

async fn open(credit: &CreditLink, jetstream: &JetStream, copies: &mut Copies) -> Result<(), Fault> {
    let config = |bytes_max: u64| {
        json!({
            "name": credit.stream, "subjects": [credit.subject], "description": "The announces of users of Shoal",
            "storage": "file", "retention": "limits", "discard": "old",
            "max_bytes": bytes_max, "max_age": nanoseconds(STREAM_AGE_MAX), "max_msgs": -1, "max_consumers": -1,
            "allow_direct": true, "duplicate_window": nanoseconds(DUPLICATE_WINDOW),
        })
    };
    let configs = STREAM_BYTES_MAX.into_iter().map(config).collect();
    match jetstream.open_stream(&credit.stream, configs, copies).await {
        Err(Fault::Full) => Err(Fault::Refused("JetStream has no room for the stream".to_owned())),
        opened => opened.map(drop),
    }
}

impl CreditLink {
    fn note_accepted(&self) {
        let before = core::mem::replace(&mut self.exchange.lock().phase, Availability::Used);
        if before != Availability::Used {
            tracing::info!(stream = self.stream, "the stream takes the credit of users");
        }
    }

    /// Records why the stream does not take batches, and logs the reason once.
    fn note_fault(&self, fault: Fault) {
        let fault = fault.explained(&self.link);
        let reason = match &fault {
            Fault::NoStream => "the stream does not exist".to_owned(),
            Fault::Full => "the stream is full".to_owned(),
            fault => fault.to_string(),
        };
        let is_refused = fault.is_lasting() || matches!(fault, Fault::Full | Fault::Refused(_));
        let phase = Availability::after(is_refused, reason.clone());
        let before = core::mem::replace(&mut self.exchange.lock().phase, phase.clone());
        if before != phase && self.link.is_connected() {
            tracing::warn!(
                stream = self.stream,
                reason,
                "the stream does not take the credit of users: it waits here, and this node tries again and again"
            );
        }
    }
}
