//! The process as a node of a cluster: what the state that all nodes share changes here.

use shoal_cluster::shared::{ApplyValues, ConnectionKeys};

use crate::reload::Reloader;
use crate::state::StateKeys;

impl ApplyValues for Reloader {
    fn apply(&self, values: Vec<(String, String)>) -> Result<(), String> {
        self.apply_cluster(values).map(drop)
    }
}

impl ConnectionKeys for StateKeys {
    fn connections(&self) -> [u8; 16] {
        self.connections()
    }

    fn adopt_connections(&self, key: [u8; 16]) {
        self.adopt_connections(key);
    }
}
