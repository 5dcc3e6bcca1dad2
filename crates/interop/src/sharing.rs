//! The story that every test tells: somebody has files, others want them, and only the tracker can introduce them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::client::{Participant, Role};
use crate::network::Family;
use crate::payload::{Payload, Pieces};
use crate::stage::Stage;
use crate::tracker::{Counts, Setting};
use crate::way::{Swarm, Way};

/// How long clients that have no tracker may look for each other. With one they need half of it.
const LONELINESS: Duration = Duration::from_secs(15);

/// How many workers a tracker has in the story of several.
const WORKERS: usize = 2;

/// How many clients may enter until the kernel has given each worker one. It draws for each of them.
const NEWCOMERS_MAX: usize = 20;

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
    /// What the tracker is told in its environment.
    pub settings: &'a [Setting],
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
            self.check_and_leave(stage, self.leechers.len())
        })
    }

    /// Plays it with a tracker of two workers that serve by epoll, as `settings` has to say: leechers enter one by one,
    /// each as the next of `leechers` is, until both workers serve clients. So somebody got the files of those alone
    /// whom the other worker serves.
    ///
    /// # Errors
    /// Where anything goes otherwise than it should, with the output of all programs.
    pub fn run_across_workers(&self) -> Result<()> {
        self.on_stage(|stage| {
            stage.enter(self.seeder, Role::Seeder)?;
            stage.wait_for_counts(self.swarm(), self.counts(0))?;
            let newcomers = self.leechers.iter().cycle().take(NEWCOMERS_MAX).zip(1..);
            for (&leecher, leechers) in newcomers {
                stage.enter(leecher, Role::Leecher)?;
                stage.wait_for_downloads()?;
                stage.wait_for_counts(self.swarm(), self.counts(leechers))?;
                if stage.workers_in_use()? == WORKERS {
                    return self.check_and_leave(stage, leechers.try_into()?);
                }
            }
            bail!("the kernel gave all of {NEWCOMERS_MAX} clients to one worker")
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

    /// What is to be seen when all `leechers` have the files, and as everyone leaves.
    fn check_and_leave(&self, stage: &mut Stage, leechers: usize) -> Result<()> {
        let counts = self.counts(leechers.try_into()?);
        stage.wait_for_counts(self.swarm(), counts)?;
        stage.check_counts(self.swarm(), counts)?;
        stage.check_counts(self.swarm().other(), Counts::default())?;
        stage.check_protocols()?;
        stage.check_peers_handed_out()?;
        stage.check_metrics()?;
        stage.leave_one_by_one()?;
        stage.check_swarm_is_gone()?;
        stage.stop_tracker()
    }

    /// The one swarm of this story.
    fn swarm(&self) -> Swarm {
        self.seeder.way.protocol().swarm()
    }

    /// Its counts after `completed` leechers have all files.
    fn counts(&self, completed: u32) -> Counts {
        let boasts = u32::from(self.seeder.client.boasts());
        Counts { seeders: completed + 1, completed: completed + boasts, leechers: 0 }
    }

    fn on_stage(&self, play: impl FnOnce(&mut Stage) -> Result<()>) -> Result<()> {
        let payload = Payload::generate(&format!("from-{:?}", self.seeder.client), self.pieces);
        let all = [&self.seeder].into_iter().chain(self.leechers);
        let ways: Vec<Way> = all.map(|participant| participant.way).collect();
        let is_one_swarm = ways.iter().all(|way| way.protocol().swarm() == self.swarm());
        ensure!(is_one_swarm, "nobody can find everybody by {ways:?}");
        let mut stage = Stage::new(self.family, payload, &ways, self.settings, self.view)?;
        play(&mut stage).map_err(|error| error.context(stage.tails()))
    }

    fn enter(&self, stage: &mut Stage) -> Result<()> {
        match self.first {
            Role::Seeder => {
                stage.enter(self.seeder, Role::Seeder)?;
                stage.wait_for_counts(self.swarm(), self.counts(0))?;
                self.enter_leechers(stage)
            }
            Role::Leecher => {
                self.enter_leechers(stage)?;
                let leechers = u32::try_from(self.leechers.len())?;
                stage.wait_for_counts(self.swarm(), Counts { seeders: 0, completed: 0, leechers })?;
                stage.enter(self.seeder, Role::Seeder)
            }
        }
    }

    fn enter_leechers(&self, stage: &mut Stage) -> Result<()> {
        self.leechers.iter().try_for_each(|&leecher| stage.enter(leecher, Role::Leecher))
    }
}
