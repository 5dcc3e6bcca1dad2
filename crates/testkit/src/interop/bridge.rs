//! The scenario of two swarms: a seeder does not support WebTorrent, a browser wants its files, and a client in both
//! swarms passes them on.

use std::path::Path;

use anyhow::Result;

use crate::interop::client::{Participant, Role};
use crate::interop::network::Family;
use crate::interop::payload::{Payload, Pieces};
use crate::interop::route::{Route, Swarm};
use crate::interop::testbed::Testbed;
use crate::interop::tracker::Counts;

/// The participants of the scenario.
#[derive(Clone, Copy, Debug)]
pub struct BridgedTransfer<'a> {
    /// The client that has the files and accepts connections.
    pub seeder: Participant,
    /// The client that wants the files and is in both swarms.
    pub bridge: Participant,
    /// The client that wants the files and supports WebRTC only.
    pub leecher: Participant,
    /// The only address family of the network.
    pub family: Family,
    /// The `tracker-view` program.
    pub tracker_view: &'a Path,
}

impl BridgedTransfer<'_> {
    /// Runs the scenario from start to end.
    ///
    /// # Errors
    /// Returns an error, with the output of all programs, if a step fails.
    pub fn run(&self) -> Result<()> {
        let payload = Payload::generate("bridged", Pieces::Many);
        let all = [self.seeder, self.bridge, self.leecher];
        let routes: Vec<Route> = all.into_iter().flat_map(Participant::routes).collect();
        Testbed::new(self.family, payload, &routes, &[], self.tracker_view)?.run(|testbed| {
            testbed.start_client(self.leecher, Role::Leecher)?;
            testbed.start_client(self.seeder, Role::Seeder)?;
            for swarm in Swarm::ALL {
                let seeders = u32::from(swarm == Swarm::Dialable);
                testbed.wait_for_counts(swarm, Counts { seeders, completed: 0, leechers: 1 - seeders })?;
            }
            testbed.start_client(self.bridge, Role::Leecher)?;
            testbed.wait_for_downloads()?;
            for (swarm, completed) in [(Swarm::Dialable, 1), (Swarm::WebRtc, 2)] {
                let counts = Counts { seeders: 2, completed, leechers: 0 };
                testbed.wait_for_counts(swarm, counts)?;
                testbed.check_counts(swarm, counts)?;
            }
            testbed.check_protocols()?;
            testbed.check_metrics()?;
            testbed.stop_clients()?;
            testbed.check_swarm_is_gone()?;
            testbed.stop_tracker()
        })
    }
}
