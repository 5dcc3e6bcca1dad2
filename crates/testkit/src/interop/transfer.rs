//! The scenario of most tests: a seeder has files, leechers want them, and only the tracker can bring them together.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::interop::client::{Participant, Role};
use crate::interop::network::Family;
use crate::interop::payload::{Payload, Pieces};
use crate::interop::route::{Route, Swarm};
use crate::interop::testbed::Testbed;
use crate::interop::tracker::{Counts, Setting};

/// How long clients without a tracker may look for each other. With a tracker they need half of it.
const NO_TRACKER_WAIT: Duration = Duration::from_secs(15);

/// The number of workers in [`Transfer::run_across_workers`].
const WORKERS: usize = 2;

/// Most leechers that are started until each worker serves a client. The kernel chooses the worker at random.
const LEECHERS_MAX: usize = 20;

/// A seeder, and leechers that download its files.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'a> {
    /// The client that has the files.
    pub seeder: Participant,
    /// The clients that want them.
    pub leechers: &'a [Participant],
    /// The role that starts first. Its clients are handed out to those that start later.
    pub first: Role,
    /// The only address family of the network.
    pub family: Family,
    /// How the files are split into pieces.
    pub pieces: Pieces,
    /// Settings of the tracker, passed in its environment.
    pub settings: &'a [Setting],
    /// The `tracker-view` program.
    pub tracker_view: &'a Path,
}

impl Transfer<'_> {
    /// Runs the whole scenario: every client joins, downloads, is counted and handed out, and leaves.
    ///
    /// # Errors
    /// Returns an error, with the output of all programs, if a step fails.
    pub fn run(&self) -> Result<()> {
        self.with_testbed(|testbed| {
            self.join_and_download(testbed)?;
            self.check_and_stop(testbed, self.leechers.len())
        })
    }

    /// Starts all clients, and waits until every one has the files.
    fn join_and_download(&self, testbed: &mut Testbed) -> Result<()> {
        match self.first {
            Role::Seeder => {
                testbed.start_client(self.seeder, Role::Seeder)?;
                testbed.wait_for_counts(self.swarm(), self.counts(0))?;
                self.start_leechers(testbed)?;
            }
            Role::Leecher => {
                self.start_leechers(testbed)?;
                let leechers = u32::try_from(self.leechers.len())?;
                testbed.wait_for_counts(self.swarm(), Counts { seeders: 0, completed: 0, leechers })?;
                testbed.start_client(self.seeder, Role::Seeder)?;
            }
        }
        testbed.wait_for_downloads()
    }

    /// Runs the scenario with a tracker of two workers that use epoll, as `settings` has to say. Leechers start one by
    /// one, cycling through `leechers`, until both workers serve clients. So at least one client got its files only
    /// from clients that the other worker serves.
    ///
    /// # Errors
    /// Returns an error, with the output of all programs, if a step fails.
    pub fn run_across_workers(&self) -> Result<()> {
        self.with_testbed(|testbed| {
            testbed.start_client(self.seeder, Role::Seeder)?;
            testbed.wait_for_counts(self.swarm(), self.counts(0))?;
            let numbered = self.leechers.iter().cycle().take(LEECHERS_MAX).zip(1..);
            for (&leecher, leechers) in numbered {
                testbed.start_client(leecher, Role::Leecher)?;
                testbed.wait_for_downloads()?;
                testbed.wait_for_counts(self.swarm(), self.counts(leechers))?;
                if testbed.workers_in_use()? == WORKERS {
                    return self.check_and_stop(testbed, leechers.try_into()?);
                }
            }
            bail!("the kernel gave all of {LEECHERS_MAX} clients to one worker")
        })
    }

    /// Runs the scenario without a tracker, to show that clients do not find each other by other means.
    ///
    /// # Errors
    /// Returns an error if files arrive.
    pub fn run_without_tracker(&self) -> Result<()> {
        self.with_testbed(|testbed| {
            testbed.stop_tracker()?;
            testbed.start_client(self.seeder, Role::Seeder)?;
            self.start_leechers(testbed)?;
            std::thread::sleep(NO_TRACKER_WAIT);
            ensure!(!testbed.has_any_download(), "a leecher has the files without the tracker");
            Ok(())
        })
    }

    /// Runs the scenario with clients that all have the files from the start. Pages whose torrent is only a meeting place
    /// depend on it that browsers get each other's offers nevertheless.
    ///
    /// # Errors
    /// Returns an error, with the output of all programs, if two browsers do not connect, or another step fails.
    pub fn run_among_seeders(&self) -> Result<()> {
        self.with_testbed(|testbed| {
            testbed.start_client(self.seeder, Role::Seeder)?;
            self.leechers.iter().try_for_each(|&other| testbed.start_client(other, Role::Seeder))?;
            testbed.wait_for_browsers_to_meet()?;
            testbed.wait_for_remaining_seeders()?;
            testbed.stop_clients()?;
            testbed.check_swarm_is_gone()?;
            testbed.stop_tracker()
        })
    }

    /// Checks the tracker when all `leechers` have the files, and stops the clients one by one.
    fn check_and_stop(&self, testbed: &mut Testbed, leechers: usize) -> Result<()> {
        let counts = self.counts(leechers.try_into()?);
        testbed.wait_for_counts(self.swarm(), counts)?;
        testbed.check_counts(self.swarm(), counts)?;
        testbed.check_counts(self.swarm().other(), Counts::default())?;
        testbed.check_protocols()?;
        testbed.check_peers_handed_out()?;
        testbed.check_metrics()?;
        testbed.stop_clients()?;
        testbed.check_swarm_is_gone()?;
        testbed.stop_tracker()
    }

    /// Returns the only swarm of the scenario.
    fn swarm(&self) -> Swarm {
        self.seeder.route.protocol().swarm()
    }

    /// Runs the whole scenario with a tracker that has an XDP data path, as `settings` has to say, and checks that its clients
    /// were served through that.
    ///
    /// # Errors
    /// Returns an error, with the output of all programs, if a step fails.
    pub fn run_over_xdp(&self, is_tagged: bool) -> Result<()> {
        self.with_testbed(|testbed| {
            if is_tagged {
                testbed.tag_datagrams()?;
            }
            self.join_and_download(testbed)?;
            let metrics = testbed.metrics()?;
            for path in ["answered", "worker"] {
                let is_path = |labels: &str| labels.contains(&format!("path=\"{path}\""));
                let packets = metrics.sum("shoal_xdp_packets_total", is_path)?;
                ensure!(packets > 0.0, "no packet took the path {path}");
            }
            self.check_and_stop(testbed, self.leechers.len())
        })
    }

    /// Returns the counts of the swarm after `completed` leechers have all files.
    fn counts(&self, completed: u32) -> Counts {
        let extra = u32::from(self.seeder.client.reports_completed_as_seeder());
        Counts { seeders: completed + 1, completed: completed + extra, leechers: 0 }
    }

    /// Runs `scenario` on a new testbed.
    fn with_testbed(&self, scenario: impl FnOnce(&mut Testbed) -> Result<()>) -> Result<()> {
        let payload = Payload::generate(&format!("from-{:?}", self.seeder.client), self.pieces);
        let all = [&self.seeder].into_iter().chain(self.leechers);
        let routes: Vec<Route> = all.map(|participant| participant.route).collect();
        let is_one_swarm = routes.iter().all(|route| route.protocol().swarm() == self.swarm());
        ensure!(is_one_swarm, "the clients of {routes:?} cannot all reach each other");
        Testbed::new(self.family, payload, &routes, self.settings, self.tracker_view)?.run(scenario)
    }

    fn start_leechers(&self, testbed: &mut Testbed) -> Result<()> {
        self.leechers.iter().try_for_each(|&leecher| testbed.start_client(leecher, Role::Leecher))
    }
}
