//! What runs during a test: a network, the tracker, the clients.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::client::{Job, PEER_PORT, Participant, QUIT_SIGNAL, Role};
use crate::front::Front;
use crate::network::{Family, Host, Network, TRACKER_NAME};
use crate::patience::wait_for;
use crate::payload::Payload;
use crate::process::Process;
use crate::tracker::{Counts, Setting, Tracker, hex};
use crate::way::{Protocol, Swarm, Way};

/// Clients check files, look for peers and announce in their own time; a busy machine doubles that.
const ANNOUNCE_WAIT: Duration = Duration::from_secs(60);
const DOWNLOAD_WAIT: Duration = Duration::from_secs(120);
const QUIT_WAIT: Duration = Duration::from_secs(60);
const PERFORMANCE_WAIT: Duration = Duration::from_secs(60);

/// On a busy machine a connection by WebRTC may fail, and clients try again only with their next announce. That is to
/// happen within our patience. Nothing else needs a word of configuration.
const SOON_AGAIN: [Setting; 2] =
    [("SHOAL_WEBTORRENT_INTERVAL_S", "20"), ("SHOAL_WEBTORRENT_INTERVAL_JITTER_S", "5")];

/// A network with a tracker, and the clients that have entered it.
#[derive(Debug)]
pub struct Stage {
    tracker: Tracker,
    /// Where the defaults of the tracker do not suffice.
    front: Option<Front>,
    peers: Vec<Peer>,
    payload: Payload,
    info_hash: [u8; 20],
    network: Network,
    directory: TempDir,
}

/// A client at work.
#[derive(Debug)]
struct Peer {
    process: Process,
    host: Host,
    downloads: PathBuf,
    role: Role,
    participant: Participant,
}

impl Stage {
    /// A network where only the tracker runs, and what `ways` need; and a torrent that nobody shares yet.
    ///
    /// # Errors
    /// Where the machine or the tracker does not play along.
    pub fn new(
        family: Family,
        payload: Payload,
        ways: &[Way],
        settings: &[Setting],
        view: &Path,
    ) -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot make a temporary directory")?;
        let mut network = Network::new(family)?;
        let hosts = [network.host_called(TRACKER_NAME)?, network.host()?];
        let has_front = !ways.iter().all(|way| way.is_default());
        let mut front = has_front.then(|| Front::prepare(&mut network, directory.path())).transpose()?;
        let configuration = front.as_ref().map(Front::configuration);
        let settings = [&SOON_AGAIN, settings].concat();
        let tracker = Tracker::start(hosts, configuration, &settings, view, directory.path())?;
        if let Some(front) = &mut front {
            let opened = front.open(ways, tracker.ip(), directory.path(), view);
            opened.with_context(|| tracker.tail())?;
        }
        let info_hash = payload.torrent(&[]).info_hash;
        Ok(Self { tracker, front, peers: Vec::new(), payload, info_hash, network, directory })
    }

    /// Starts a client on a host of its own.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn enter(&mut self, participant: Participant, role: Role) -> Result<()> {
        let Participant { client, way, .. } = participant;
        let host = self.network.host()?;
        let name = format!("{role:?}-{}-{client:?}-by-{way:?}", self.peers.len());
        let (downloads, state) = (self.subdirectory(&name, "downloads")?, self.subdirectory(&name, "state")?);
        if role == Role::Seeder {
            self.payload.write_below(&downloads)?;
        }
        let torrent = self.directory.path().join(&name).join("shared.torrent");
        let announce_urls: Vec<String> = participant.ways().map(Way::url).collect();
        fs::write(&torrent, self.payload.torrent(&announce_urls).bytes)?;
        let certificate = self.front.as_ref().map(Front::certificate);
        let job = Job { torrent: &torrent, downloads: &downloads, state: &state, role, certificate };
        let process = Process::spawn(&name, client.command(&host, &job)?, self.directory.path())?;
        self.peers.push(Peer { process, host, downloads, role, participant });
        Ok(())
    }

    /// Runs a program on a host of its own until it ends, which it has to do well. `command` is told the host, the info
    /// hash in hexadecimal digits, and the certificate to trust.
    ///
    /// # Errors
    /// Where it does not end, or ends otherwise.
    pub fn perform(
        &mut self,
        name: &str,
        command: impl FnOnce(&Host, &str, Option<&Path>) -> Result<Command>,
    ) -> Result<()> {
        let host = self.network.host()?;
        let certificate = self.front.as_ref().map(Front::certificate);
        let command = command(&host, &hex(&self.info_hash), certificate)?;
        let mut process = Process::spawn(name, command, self.directory.path())?;
        let status = wait_for(&format!("{name} should end"), PERFORMANCE_WAIT, || process.ended());
        let status = status.with_context(|| process.tail())?;
        ensure!(status.success(), "{name} failed: {status}\n{}", process.tail());
        Ok(())
    }

    /// Waits until everyone has the files, byte for byte.
    ///
    /// # Errors
    /// Where that takes too long, or a client has given up.
    pub fn wait_for_downloads(&mut self) -> Result<()> {
        wait_for("every leecher should have the files", DOWNLOAD_WAIT, || {
            self.check_all_run()?;
            Ok(self.peers.iter().all(|peer| self.payload.is_below(&peer.downloads)).then_some(()))
        })
    }

    /// Whether a client other than the first has the files.
    #[must_use]
    pub fn has_any_download(&self) -> bool {
        self.peers.iter().skip(1).any(|peer| self.payload.is_below(&peer.downloads))
    }

    /// Waits until the tracker counts in `swarm` what it should.
    ///
    /// # Errors
    /// Where that takes too long.
    pub fn wait_for_counts(&mut self, swarm: Swarm, expected: Counts) -> Result<()> {
        self.wait_for_scrape(swarm, expected, |counts| counts == expected)
    }

    /// A newcomer is told of every client that can be dialled, under its real address and port, and of nobody else; by
    /// each protocol that hands out addresses.
    ///
    /// # Errors
    /// Where it is told otherwise.
    pub fn check_peers_handed_out(&self) -> Result<()> {
        let dialled = self.peers.iter().filter(|peer| peer.participant.is_of(Swarm::Dialled));
        let expected: Vec<SocketAddr> =
            dialled.map(|peer| SocketAddr::new(peer.host.address, PEER_PORT)).collect();
        for protocol in Swarm::Dialled.protocols() {
            let handed_out = self.tracker.peers(protocol, &self.info_hash)?;
            let name = protocol.name();
            ensure!(handed_out == expected, "{name} handed out {handed_out:?} instead of {expected:?}");
        }
        Ok(())
    }

    /// Each protocol of `swarm` tells the same counts.
    ///
    /// # Errors
    /// Where one does not.
    pub fn check_counts(&self, swarm: Swarm, expected: Counts) -> Result<()> {
        for protocol in swarm.protocols() {
            let counts = self.tracker.scrape(protocol, &self.info_hash)?;
            ensure!(counts == expected, "{}: {counts:?} instead of {expected:?}", protocol.name());
        }
        Ok(())
    }

    /// How many workers of the tracker hold connections of clients.
    ///
    /// # Errors
    /// Where the kernel does not tell.
    pub fn workers_in_use(&self) -> Result<usize> {
        self.tracker.workers_in_use()
    }

    /// The tracker's own account agrees: everyone seeds, no client was refused, ignored or not understood, and nothing of
    /// what one had for another was lost for want of room.
    ///
    /// # Errors
    /// Where it does not.
    pub fn check_metrics(&self) -> Result<()> {
        let metrics = self.tracker.metrics()?;
        for swarm in Swarm::ALL {
            let [_, peers] = swarm.metrics();
            let seeders = metrics.sum(peers, |labels| labels.contains("seeder"))?;
            let leechers = metrics.sum(peers, |labels| labels.contains("leecher"))?;
            let expected = [f64::from(u32::try_from(self.members(swarm))?), 0.0];
            ensure!(
                [seeders, leechers] == expected,
                "{peers}: {seeders}, {leechers} instead of {expected:?}"
            );
        }
        let refusals = metrics.sum("shoal_replies_total", |labels| !labels.contains("outcome=\"ok\""))?;
        let drops = metrics.sum("shoal_drops_total", |_| true)?;
        let cut_off = metrics.sum("shoal_connections_ended_total", |labels| !labels.contains("\"idle\""))?;
        let lost =
            metrics.sum("shoal_webtorrent_relays_total", |labels| labels.contains("\"mailbox_full\""))?;
        let account = [refusals, drops, cut_off, lost];
        ensure!(account == [0.0; 4], "refusals, drops, connections cut off, relays lost: {account:?}");
        Ok(())
    }

    /// Every client announced itself by its own protocol, as its metrics say: that it is here, and that it has all
    /// now. Nobody announced by another. To be asked before the observer announces itself.
    ///
    /// # Errors
    /// Where that is not so.
    pub fn check_protocols(&self) -> Result<()> {
        let metrics = self.tracker.metrics()?;
        for protocol in Protocol::ALL {
            let label = format!("protocol=\"{}\"", protocol.name());
            let announces = metrics.sum("shoal_requests_total", |labels| {
                labels.contains(&label) && labels.contains("kind=\"announce\"")
            })?;
            let own = self.peers.iter().filter(|peer| peer.participant.speaks(protocol));
            let least: u32 = own.map(|peer| if peer.role == Role::Seeder { 1 } else { 2 }).sum();
            let is_right = if least == 0 { announces == 0.0 } else { announces >= f64::from(least) };
            ensure!(is_right, "{announces} announces with {label}, where {least} were due");
        }
        Ok(())
    }

    /// Nothing is left of the swarm.
    ///
    /// # Errors
    /// Where something is.
    pub fn check_swarm_is_gone(&self) -> Result<()> {
        let metrics = self.tracker.metrics()?;
        for [swarms, _] in Swarm::ALL.map(Swarm::metrics) {
            let left = metrics.sum(swarms, |_| true)?;
            ensure!(left == 0.0, "{swarms}: {left}, though everyone has left");
        }
        Ok(())
    }

    /// Lets the clients quit, the last first, and waits after each until the tracker has forgotten it.
    /// All of them seed by now.
    ///
    /// # Errors
    /// Where a client does not quit, or the tracker does not hear of it.
    pub fn leave_one_by_one(&mut self) -> Result<()> {
        while let Some(mut peer) = self.peers.pop() {
            self.see_off(&mut peer).with_context(|| peer.process.tail())?;
        }
        Ok(())
    }

    /// Has a client leave and quit.
    fn see_off(&mut self, peer: &mut Peer) -> Result<()> {
        if let Some(mut pause) = peer.participant.pause(&peer.host)? {
            let output = pause.output().with_context(|| format!("cannot run {pause:?}"))?;
            ensure!(output.status.success(), "{pause:?}: {}", String::from_utf8_lossy(&output.stderr));
            self.wait_for_those_left()?;
        }
        peer.process.quit(QUIT_SIGNAL, QUIT_WAIT)?;
        self.wait_for_those_left()
    }

    /// Waits until the tracker counts those who have not left, all of whom seed. An empty swarm may have been forgotten,
    /// with all that was counted in it.
    ///
    /// # Errors
    /// Where that takes too long.
    pub fn wait_for_those_left(&mut self) -> Result<()> {
        for swarm in Swarm::ALL {
            let seeders = u32::try_from(self.members(swarm))?;
            let expected = Counts { seeders, completed: 0, leechers: 0 };
            self.wait_for_scrape(swarm, expected, |counts| Counts { completed: 0, ..counts } == expected)?;
        }
        Ok(())
    }

    /// Ends the tracker and what stands before it, and makes sure that they end well.
    ///
    /// # Errors
    /// Where one does not.
    pub fn stop_tracker(&mut self) -> Result<()> {
        self.front.as_mut().map_or(Ok(()), Front::close)?;
        self.tracker.stop()
    }

    /// The last words of all programs.
    #[must_use]
    pub fn tails(&self) -> String {
        let peers: String = self.peers.iter().map(|peer| peer.process.tail()).collect();
        let front = self.front.as_ref().map(Front::tails).unwrap_or_default();
        format!("the story went wrong\n{}{front}{peers}", self.tracker.tail())
    }

    fn subdirectory(&self, client: &str, purpose: &str) -> Result<PathBuf> {
        let path = self.directory.path().join(client).join(purpose);
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    }

    /// How many clients have entered `swarm`.
    fn members(&self, swarm: Swarm) -> usize {
        self.peers.iter().filter(|peer| peer.participant.is_of(swarm)).count()
    }

    fn check_all_run(&mut self) -> Result<()> {
        for peer in &mut self.peers {
            let ended = peer.process.ended()?;
            ensure!(ended.is_none(), "{} ended before its time: {ended:?}", peer.process.name());
        }
        Ok(())
    }

    fn wait_for_scrape(
        &mut self,
        swarm: Swarm,
        expected: Counts,
        is_it: impl Fn(Counts) -> bool,
    ) -> Result<()> {
        let mut seen = None;
        let waited = wait_for("the tracker should count the peers that there are", ANNOUNCE_WAIT, || {
            self.check_all_run()?;
            let counts = self.tracker.scrape(swarm.observed_by(), &self.info_hash)?;
            seen = Some(counts);
            Ok(is_it(counts).then_some(()))
        });
        waited.with_context(|| format!("expected {expected:?}, last seen {seen:?}"))
    }
}
