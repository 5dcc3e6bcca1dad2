//! The testbed of a scenario: a network, the tracker and the clients.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::interop::client::{Client, LaunchOptions, PEER_PORT, Participant, QUIT_SIGNAL, Role};
use crate::interop::cluster::{NatsHost, SecondNode};
use crate::interop::ingress::Ingress;
use crate::interop::metrics::Metrics;
use crate::interop::network::{Family, Host, Network, TRACKER_NAME};
use crate::interop::payload::Payload;
use crate::interop::route::{Protocol, Route, Swarm};
use crate::interop::tracker::{Counts, Setting, Tracker, hex};
use crate::process::{Process, wait_for};

/// Clients check files, look for peers and announce at their own pace. A busy machine doubles the time.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(60);
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(120);
const QUIT_TIMEOUT: Duration = Duration::from_secs(60);
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);

/// On a busy machine a WebRTC connection may fail, and clients try again only with their next announce, which has to
/// happen within the timeouts. No other setting departs from the defaults.
const SHORT_INTERVALS: [Setting; 1] = [("SHOAL_WEBTORRENT_INTERVAL_S", "20")];

/// The words of a browser that has connected to another: the peer ids of WebTorrent begin with "-WW".
const CONNECTED_TO_BROWSER: &str = "connected to 2d5757";

/// A network with a tracker, and the clients that were started on it.
#[derive(Debug)]
pub struct Testbed {
    tracker: Tracker,
    /// Present if a route leads to it.
    second: Option<SecondNode>,
    /// Present if a route needs more than the tracker's defaults.
    ingress: Option<Ingress>,
    peers: Vec<Peer>,
    payload: Payload,
    info_hash: [u8; 20],
    network: Network,
    directory: TempDir,
}

/// A running client.
#[derive(Debug)]
struct Peer {
    process: Process,
    host: Host,
    downloads: PathBuf,
    role: Role,
    participant: Participant,
}

impl Testbed {
    /// Creates a network with the tracker and what `routes` need, and a torrent that no client shares yet.
    ///
    /// # Errors
    /// Returns an error if the network, the tracker or a proxy does not start.
    pub fn new(
        family: Family,
        payload: Payload,
        routes: &[Route],
        settings: &[Setting],
        tracker_view: &Path,
    ) -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot create a temporary directory")?;
        let mut network = Network::new(family)?;
        let hosts = [network.add_named_host(TRACKER_NAME)?, network.add_host()?];
        if settings.iter().any(|(name, _)| *name == "SHOAL_UDP_XDP_INTERFACES") {
            network.permit_xdp()?;
        }
        let needs_ingress = !routes.iter().all(|route| route.is_default());
        let mut ingress =
            needs_ingress.then(|| Ingress::prepare(&mut network, directory.path())).transpose()?;
        let configuration = ingress.as_ref().map(Ingress::configuration);
        let mut settings = [&SHORT_INTERVALS, settings].concat();
        let needs_second = routes.iter().any(|route| route.needs_second_node());
        let nats = needs_second.then(|| NatsHost::start(&mut network, directory.path())).transpose()?;
        settings.extend(nats.as_ref().map(|_| NatsHost::setting()));
        let tracker = Tracker::start(hosts, configuration, &settings, tracker_view, directory.path())?;
        let join = |nats: NatsHost| nats.join(&tracker, &settings, tracker_view, directory.path());
        let second = nats.map(join).transpose()?;
        if let Some(ingress) = &mut ingress {
            let opened = ingress.open(routes, tracker.ip(), directory.path(), tracker_view);
            opened.with_context(|| tracker.log_tail())?;
        }
        let info_hash = payload.torrent(&[]).info_hash;
        Ok(Self { tracker, second, ingress, peers: Vec::new(), payload, info_hash, network, directory })
    }

    /// Tags the UDP datagrams to the tracker: see [`Network::tag_datagrams`].
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn tag_datagrams(&mut self) -> Result<()> {
        self.network.tag_datagrams(self.tracker.host())
    }

    /// Runs `scenario`. On an error, adds the logs of all programs.
    ///
    /// # Errors
    /// Returns the error of the scenario.
    pub fn run(mut self, scenario: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        scenario(&mut self).map_err(|error| error.context(self.log_tails()))
    }

    /// Starts a client on its own host.
    ///
    /// # Errors
    /// Returns an error if it does not start.
    pub fn start_client(&mut self, participant: Participant, role: Role) -> Result<()> {
        let Participant { client, route, .. } = participant;
        let host = self.network.add_host()?;
        let name = format!("{role:?}-{}-{client:?}-via-{route:?}", self.peers.len());
        let (downloads, state) = (self.subdirectory(&name, "downloads")?, self.subdirectory(&name, "state")?);
        if role == Role::Seeder {
            self.payload.write_below(&downloads)?;
        }
        let torrent = self.directory.path().join(&name).join("shared.torrent");
        let announce_urls: Vec<String> = participant.routes().map(Route::url).collect();
        fs::write(&torrent, self.payload.torrent(&announce_urls).bytes)?;
        let certificate = self.ingress.as_ref().map(Ingress::certificate);
        let options =
            LaunchOptions { torrent: &torrent, downloads: &downloads, state: &state, role, certificate };
        let process = self.start(&name, client.command(&host, &options)?)?;
        self.peers.push(Peer { process, host, downloads, role, participant });
        Ok(())
    }

    fn start(&self, name: &str, command: Command) -> Result<Process> {
        let process = Process::start(command, &self.directory.path().join(format!("{name}.log")));
        process.with_context(|| format!("cannot start {name}"))
    }

    /// Runs a program on its own host until it ends, and checks its exit status. `command` receives the host, the info
    /// hash in hexadecimal digits, and the certificate to trust.
    ///
    /// # Errors
    /// Returns an error if the program does not end, or fails.
    pub fn run_program(
        &mut self,
        name: &str,
        command: impl FnOnce(&Host, &str, Option<&Path>) -> Result<Command>,
    ) -> Result<()> {
        let host = self.network.add_host()?;
        let certificate = self.ingress.as_ref().map(Ingress::certificate);
        let command = command(&host, &hex(&self.info_hash), certificate)?;
        let mut process = self.start(name, command)?;
        let status = wait_for(&format!("{name} should end"), PROGRAM_TIMEOUT, || Ok(process.ended()?));
        let status = status.with_context(|| process.report())?;
        ensure!(status.success(), "{name} failed: {status}\n{}", process.report());
        Ok(())
    }

    /// Waits until every client has the files, byte for byte.
    ///
    /// # Errors
    /// Returns an error on a timeout, or if a client has ended.
    pub fn wait_for_downloads(&mut self) -> Result<()> {
        wait_for("every leecher should have the files", DOWNLOAD_TIMEOUT, || {
            self.check_clients_run()?;
            Ok(self.peers.iter().all(|peer| self.payload.is_below(&peer.downloads)).then_some(()))
        })
    }

    /// Waits until every client has shown these words of the tracker.
    ///
    /// # Errors
    /// Returns an error on a timeout, or if a client has ended.
    pub fn wait_for_words(&mut self, words: &str) -> Result<()> {
        wait_for("every client should show the words of the tracker", ANNOUNCE_TIMEOUT, || {
            self.check_clients_run()?;
            Ok(self.peers.iter().all(|peer| peer.process.log().contains(words)).then_some(()))
        })
    }

    /// Waits until every browser has connected to another browser.
    ///
    /// # Errors
    /// Returns an error on a timeout, or if a client has ended.
    pub fn wait_for_browsers_to_meet(&mut self) -> Result<()> {
        wait_for("the browsers should connect to each other", ANNOUNCE_TIMEOUT, || {
            self.check_clients_run()?;
            let mut browsers = self.peers.iter().filter(|peer| peer.participant.client == Client::WebTorrent);
            Ok(browsers.all(|peer| peer.process.log().contains(CONNECTED_TO_BROWSER)).then_some(()))
        })
    }

    /// Waits until the tracker has logged a text.
    ///
    /// # Errors
    /// Returns an error on a timeout.
    pub fn wait_for_log(&self, text: &str) -> Result<()> {
        wait_for("the tracker should log it", ANNOUNCE_TIMEOUT, || {
            Ok(self.tracker.has_logged(text).then_some(()))
        })
    }

    /// Makes every client announce at once that does not do so soon by itself.
    ///
    /// # Errors
    /// Returns an error if a command fails.
    pub fn reannounce(&self) -> Result<()> {
        for peer in &self.peers {
            let client = peer.participant.client;
            let Some(mut reannounce) = client.reannounce(&peer.host, peer.process.pid())? else { continue };
            let output = reannounce.output().with_context(|| format!("cannot run {reannounce:?}"))?;
            ensure!(output.status.success(), "{reannounce:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    /// Checks by the metrics that requests were refused for this reason.
    ///
    /// # Errors
    /// Returns an error if none was.
    pub fn check_refusals(&self, outcome: &str) -> Result<()> {
        let label = format!("outcome=\"{outcome}\"");
        let refusals =
            self.tracker.metrics()?.sum("shoal_replies_total", |labels| labels.contains(&label))?;
        ensure!(refusals > 0.0, "no request was refused with {label}");
        Ok(())
    }

    /// Returns whether a client other than the first has the files.
    #[must_use]
    pub fn has_any_download(&self) -> bool {
        self.peers.iter().skip(1).any(|peer| self.payload.is_below(&peer.downloads))
    }

    /// Waits until the tracker reports the expected counts of `swarm`.
    ///
    /// # Errors
    /// Returns an error on a timeout.
    pub fn wait_for_counts(&mut self, swarm: Swarm, expected: Counts) -> Result<()> {
        self.wait_for_scrape(swarm, expected, |counts| counts == expected)
    }

    /// Checks that a new peer gets exactly the clients that accept connections, with their real addresses and ports,
    /// over each protocol that hands out addresses.
    ///
    /// # Errors
    /// Returns an error if it gets other peers.
    pub fn check_peers_handed_out(&self) -> Result<()> {
        let dialable = self.peers.iter().filter(|peer| peer.participant.is_in(Swarm::Dialable));
        let expected: Vec<SocketAddr> =
            dialable.map(|peer| SocketAddr::new(peer.host.address, PEER_PORT)).collect();
        for protocol in Swarm::Dialable.protocols() {
            let handed_out = self.tracker.peers(protocol, &self.info_hash)?;
            let name = protocol.name();
            ensure!(handed_out == expected, "{name} handed out {handed_out:?} instead of {expected:?}");
        }
        Ok(())
    }

    /// Checks that each protocol of `swarm` reports the same counts.
    ///
    /// # Errors
    /// Returns an error if one does not.
    pub fn check_counts(&self, swarm: Swarm, expected: Counts) -> Result<()> {
        for protocol in swarm.protocols() {
            let counts = self.tracker.scrape(protocol, &self.info_hash)?;
            ensure!(counts == expected, "{}: {counts:?} instead of {expected:?}", protocol.name());
        }
        Ok(())
    }

    /// Returns the number of workers of the tracker that hold connections of clients.
    ///
    /// # Errors
    /// Returns an error if the kernel does not provide the information.
    pub fn workers_in_use(&self) -> Result<usize> {
        self.tracker.workers_in_use()
    }

    /// Checks the metrics of the tracker: every client seeds, no request was refused, ignored or malformed, and no
    /// relayed message was lost for lack of space.
    ///
    /// # Errors
    /// Returns an error if a metric differs.
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

    /// Returns the metrics of the tracker.
    ///
    /// # Errors
    /// Returns an error if it does not serve them.
    pub fn metrics(&self) -> Result<Metrics> {
        self.tracker.metrics()
    }

    /// Checks by the metrics that every client announced its arrival and its completion over its own protocol, and that
    /// there were no announces over others. Call it before the observer announces itself.
    ///
    /// # Errors
    /// Returns an error if a count differs.
    pub fn check_protocols(&self) -> Result<()> {
        for protocol in Protocol::ALL {
            let label = format!("protocol=\"{}\"", protocol.name());
            let is_announce = |labels: &str| labels.contains(&label) && labels.contains("kind=\"announce\"");
            let mut announces = 0.0;
            for tracker in self.trackers() {
                announces += tracker.metrics()?.sum("shoal_requests_total", is_announce)?;
            }
            let own = self.peers.iter().filter(|peer| peer.participant.announces_over(protocol));
            let least: u32 = own.map(|peer| if peer.role == Role::Seeder { 1 } else { 2 }).sum();
            let is_right = if least == 0 { announces == 0.0 } else { announces >= f64::from(least) };
            ensure!(is_right, "{announces} announces with {label}, where at least {least} were due");
        }
        Ok(())
    }

    /// Checks that the tracker has forgotten the swarm.
    ///
    /// # Errors
    /// Returns an error if something is left of it.
    pub fn check_swarm_is_gone(&self) -> Result<()> {
        let metrics = self.tracker.metrics()?;
        for [swarms, _] in Swarm::ALL.map(Swarm::metrics) {
            let left = metrics.sum(swarms, |_| true)?;
            ensure!(left == 0.0, "{swarms}: {left}, though every client has left");
        }
        Ok(())
    }

    /// Stops the clients, the last first, and waits each time until the tracker has forgotten the client. All of them
    /// have to be seeders.
    ///
    /// # Errors
    /// Returns an error if a client does not quit, or the tracker does not learn of it.
    pub fn stop_clients(&mut self) -> Result<()> {
        while let Some(mut peer) = self.peers.pop() {
            self.stop_client(&mut peer).with_context(|| peer.process.report())?;
        }
        Ok(())
    }

    /// Makes a client leave its swarm and quit.
    fn stop_client(&mut self, peer: &mut Peer) -> Result<()> {
        if let Some(mut pause) = peer.participant.pause(&peer.host)? {
            let output = pause.output().with_context(|| format!("cannot run {pause:?}"))?;
            ensure!(output.status.success(), "{pause:?}: {}", String::from_utf8_lossy(&output.stderr));
            self.wait_for_remaining_seeders()?;
        }
        peer.process.quit(QUIT_SIGNAL, QUIT_TIMEOUT)?;
        self.wait_for_remaining_seeders()
    }

    /// Waits until the tracker counts the clients that still run, all of which are seeders. The count of completed
    /// downloads is ignored, because an empty swarm may have been forgotten with all its counts.
    ///
    /// # Errors
    /// Returns an error on a timeout.
    pub fn wait_for_remaining_seeders(&mut self) -> Result<()> {
        for swarm in Swarm::ALL {
            let seeders = u32::try_from(self.members(swarm))?;
            let expected = Counts { seeders, completed: 0, leechers: 0 };
            self.wait_for_scrape(swarm, expected, |counts| Counts { completed: 0, ..counts } == expected)?;
        }
        Ok(())
    }

    /// Stops the proxies and the tracker, and checks their exit statuses.
    ///
    /// # Errors
    /// Returns an error if one of them fails or does not end.
    pub fn stop_tracker(&mut self) -> Result<()> {
        self.ingress.as_mut().map_or(Ok(()), Ingress::close)?;
        self.second.as_mut().map_or(Ok(()), |second| second.tracker.stop())?;
        self.tracker.stop()
    }

    /// Returns the ends of the logs of all programs.
    fn log_tails(&self) -> String {
        let peers: String = self.peers.iter().map(|peer| peer.process.report()).collect();
        let ingress = self.ingress.as_ref().map(Ingress::log_tails).unwrap_or_default();
        let second = self.second.as_ref().map(SecondNode::log_tails).unwrap_or_default();
        format!("the scenario failed\n{}{second}{ingress}{peers}", self.tracker.log_tail())
    }

    fn subdirectory(&self, client: &str, purpose: &str) -> Result<PathBuf> {
        let path = self.directory.path().join(client).join(purpose);
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    }

    /// Returns all nodes.
    fn trackers(&self) -> impl Iterator<Item = &Tracker> {
        [&self.tracker].into_iter().chain(self.second.as_ref().map(|second| &second.tracker))
    }

    /// Returns the number of running clients in `swarm`.
    fn members(&self, swarm: Swarm) -> usize {
        self.peers.iter().filter(|peer| peer.participant.is_in(swarm)).count()
    }

    fn check_clients_run(&mut self) -> Result<()> {
        for peer in &mut self.peers {
            let ended = peer.process.ended()?;
            ensure!(ended.is_none(), "{} ended unexpectedly: {ended:?}", peer.process.name());
        }
        Ok(())
    }

    fn wait_for_scrape(
        &mut self,
        swarm: Swarm,
        expected: Counts,
        is_expected: impl Fn(Counts) -> bool,
    ) -> Result<()> {
        let mut seen = None;
        let waited = wait_for("the tracker should count the running peers", ANNOUNCE_TIMEOUT, || {
            self.check_clients_run()?;
            let counts = self.tracker.scrape(swarm.scraped_over(), &self.info_hash)?;
            seen = Some(counts);
            Ok(is_expected(counts).then_some(()))
        });
        waited.with_context(|| format!("expected {expected:?}, last seen {seen:?}"))
    }
}
