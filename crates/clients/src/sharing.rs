//! The story that every test tells: somebody has files, others want them, and only the tracker can introduce them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::client::{Participant, Role};
use crate::network::Family;
use crate::payload::{Payload, Pieces};
use crate::stage::Stage;
use crate::tracker::Counts;
use crate::way::Way;

/// How long clients that have no tracker may look for each other. With one they need half of it.
const LONELINESS: Duration = Duration::from_secs(15);

/// One seeder, and leechers that get its files.
#[derive(Clone, Copy, Debug)]
pub struct Sharing<'a> {
    /// The client that has the files.
    pub seeder: Participant,
    /// The clients that want them.
    pub leechers: &'a [Participant],
    /// Who comes first, and so is handed to those that come later.
    pub first: Role,
    /// The only address family there is.
    pub family: Family,
    /// How the files are cut.
    pub pieces: Pieces,
    /// The `tracker-view` program.
    pub view: &'a Path,
}

impl Sharing<'_> {
    /// Plays the story from start to end: everyone joins, downloads, is counted and handed out, and leaves.
    ///
    /// # Errors
    /// Where anything goes otherwise than it should, with the output of all programs.
    pub fn run(&self) -> Result<()> {
        self.on_stage(|stage| {
            self.enter(stage)?;
            stage.wait_for_downloads()?;
            let seeders = u32::try_from(self.leechers.len())? + 1;
            let counts = Counts { seeders, completed: seeders - 1, leechers: 0 };
            stage.wait_for_counts(counts)?;
            stage.check_counts(counts)?;
            stage.check_protocols()?;
            stage.check_peers_handed_out()?;
            stage.check_metrics()?;
            stage.leave_one_by_one()?;
            stage.check_swarm_is_gone()?;
            stage.stop_tracker()
        })
    }

    /// Plays it without a tracker, to show that nobody finds anybody by other means.
    ///
    /// # Errors
    /// Where files arrive all the same.
    pub fn run_without_tracker(&self) -> Result<()> {
        self.on_stage(|stage| {
            stage.stop_tracker()?;
            stage.enter(self.seeder, Role::Seeder)?;
            self.enter_leechers(stage)?;
            std::thread::sleep(LONELINESS);
            ensure!(!stage.has_any_download(), "a leecher has files that it cannot have by the tracker");
            Ok(())
        })
    }

    fn on_stage(&self, play: impl FnOnce(&mut Stage) -> Result<()>) -> Result<()> {
        let payload = Payload::generate(&format!("from-{:?}", self.seeder.client), self.pieces);
        let all = self.leechers.iter().chain([&self.seeder]);
        let ways: Vec<Way> = all.map(|participant| participant.way).collect();
        let mut stage = Stage::new(self.family, payload, &ways, self.view)?;
        play(&mut stage).map_err(|error| error.context(stage.tails()))
    }

    fn enter(&self, stage: &mut Stage) -> Result<()> {
        match self.first {
            Role::Seeder => {
                stage.enter(self.seeder, Role::Seeder)?;
                stage.wait_for_counts(Counts { seeders: 1, completed: 0, leechers: 0 })?;
                self.enter_leechers(stage)
            }
            Role::Leecher => {
                self.enter_leechers(stage)?;
                let leechers = u32::try_from(self.leechers.len())?;
                stage.wait_for_counts(Counts { seeders: 0, completed: 0, leechers })?;
                stage.enter(self.seeder, Role::Seeder)
            }
        }
    }

    fn enter_leechers(&self, stage: &mut Stage) -> Result<()> {
        self.leechers.iter().try_for_each(|&leecher| stage.enter(leecher, Role::Leecher))
    }
}
