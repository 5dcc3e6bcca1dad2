//! The operations of the process that the control listener asks for.

use std::sync::Arc;

use shoal_config::Differences;
use shoal_control::operations::{Handed, Operations, Pending, UpgradeError};
use shoal_runtime::counters::Saved;

use crate::hand_over::{HandOver, HandOverError};
use crate::reload::Reloader;
use crate::state::Requester;

pub(crate) struct Process {
    pub(crate) reloader: Arc<Reloader>,
    pub(crate) hand_over: Arc<HandOver>,
    /// Asks for snapshots, if they have a place.
    pub(crate) snapshots: Option<Requester>,
}

impl Operations for Process {
    fn reload(&self) -> Result<Differences, String> {
        self.reloader.reload()
    }

    fn check_values(&self, values: &[(String, String)]) -> Result<(), String> {
        self.reloader.check_cluster(values)
    }

    fn save(&self) -> Option<Pending<Result<Saved, String>>> {
        let requester = self.snapshots.clone()?;
        Some(Box::pin(async move { requester.save().await }))
    }

    fn upgrade(&self) -> Pending<Result<Handed, UpgradeError>> {
        let hand_over = Arc::clone(&self.hand_over);
        Box::pin(async move {
            hand_over.begin().await.map_err(|error| UpgradeError {
                is_conflict: matches!(error, HandOverError::InProgress | HandOverError::Stopping),
                reason: error.to_string(),
            })
        })
    }
}
