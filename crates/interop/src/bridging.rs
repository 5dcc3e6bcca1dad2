//! The story of two worlds: somebody has files and knows nothing of WebTorrent, a browser wants them, and a client that
//! is in both swarms carries them over.

use std::path::Path;

use anyhow::Result;

use crate::client::{Participant, Role};
use crate::network::Family;
use crate::payload::{Payload, Pieces};
use crate::stage::Stage;
use crate::tracker::Counts;
use crate::way::{Swarm, Way};

/// Who plays.
#[derive(Clone, Copy, Debug)]
pub struct Bridging<'a> {
    /// Has the files, and can be dialled.
    pub seeder: Participant,
    /// Wants them, and is in both swarms.
    pub bridge: Participant,
    /// Wants them, and can only be introduced.
    pub leecher: Participant,
    /// The only address family there is.
    pub family: Family,
    /// The `tracker-view` program.
    pub view: &'a Path,
}

impl Bridging<'_> {
    /// Plays the story from start to end.
    ///
    /// # Errors
    /// Where anything goes otherwise than it should, with the output of all programs.
    pub fn run(&self) -> Result<()> {
        let payload = Payload::generate("bridged", Pieces::Many);
        let all = [self.seeder, self.bridge, self.leecher];
        let ways: Vec<Way> = all.into_iter().flat_map(Participant::ways).collect();
        let mut stage = Stage::new(self.family, payload, &ways, &[], self.view)?;
        self.play(&mut stage).map_err(|error| error.context(stage.tails()))
    }

    fn play(&self, stage: &mut Stage) -> Result<()> {
        stage.enter(self.leecher, Role::Leecher)?;
        stage.enter(self.seeder, Role::Seeder)?;
        for swarm in Swarm::ALL {
            let alone = u32::from(swarm == Swarm::Dialled);
            stage.wait_for_counts(swarm, Counts { seeders: alone, completed: 0, leechers: 1 - alone })?;
        }
        stage.enter(self.bridge, Role::Leecher)?;
        stage.wait_for_downloads()?;
        for (swarm, completed) in [(Swarm::Dialled, 1), (Swarm::Introduced, 2)] {
            let counts = Counts { seeders: 2, completed, leechers: 0 };
            stage.wait_for_counts(swarm, counts)?;
            stage.check_counts(swarm, counts)?;
        }
        stage.check_protocols()?;
        stage.check_metrics()?;
        stage.leave_one_by_one()?;
        stage.check_swarm_is_gone()?;
        stage.stop_tracker()
    }
}
