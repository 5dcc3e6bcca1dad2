//! The node, as the control listener sees it.

use core::fmt;
use std::sync::Arc;

use shoal_control::cluster::{Node, SharedValue, SharedValues};
use shoal_control::metrics::Page;
use shoal_control::stats::Cluster;
use shoal_runtime::lists::SharedError;

use crate::shared::{SharedState, Value};
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

impl SharedValues for SharedState {
    fn values(&self) -> Vec<(String, SharedValue)> {
        let values = Self::values(self).into_iter();
        values.map(|(key, Value { value, by })| (key, SharedValue { value, by })).collect()
    }

    fn set(&self, key: &str, value: &SharedValue) -> Result<(), SharedError> {
        let SharedValue { value, by } = value.clone();
        self.set_value(key, &Value { value, by })
    }

    fn unset(&self, key: &str) -> Result<bool, SharedError> {
        self.unset_value(key)
    }
}
