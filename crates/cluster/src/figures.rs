//! The node, as the control listener sees it.

use core::fmt;
use std::sync::Arc;

use shoal_control::cluster::{Node, SharedValues};
use shoal_control::metrics::Page;
use shoal_control::stats::Cluster;

use crate::{Observed, metrics, stats};

impl Node for Observed {
    fn is_ready(&self) -> bool {
        self.status.latest().is_ready
    }

    fn stats(&self) -> Cluster {
        stats::collect(self)
    }

    fn encode(&self, page: &mut Page<'_>) -> fmt::Result {
        metrics::encode(self, page)
    }

    fn values(&self) -> Option<Arc<dyn SharedValues>> {
        self.shared.clone().map(|state| state as Arc<dyn SharedValues>)
    }
}
