//! An upgrade under traffic: a new process takes over, and no client notices.

pub(crate) mod sockets;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::http::{Way, over_every_way};
use crate::kit::client::{Announce, COMPLETED, Client, Counts, connect_packet, scrape_packet, word};
use crate::kit::harness::{PATIENCE, Tracker, eventually, run_locally};
use crate::kit::web::{Web, announce};
use crate::udp::hash;

over_every_way!(an_upgrade_keeps_peers_counts_and_connections,);

/// A tracker that is upgraded.
pub(crate) struct Upgraded {
    pub(crate) tracker: Tracker,
}

impl Upgraded {
    pub(crate) const fn new(tracker: Tracker) -> Self {
        Self { tracker }
    }

    /// The process that serves.
    fn pid(&self) -> Pid {
        self.tracker.successors().last().copied().unwrap_or_else(|| self.tracker.pid())
    }

    /// Upgrades, and returns the log line about it.
    pub(crate) fn upgrade(&self) -> Value {
        kill(self.pid(), Signal::SIGUSR2).unwrap();
        self.tracker.wait_for_line("the new process serves")
    }

    /// Tries to upgrade, and returns why that has failed.
    fn fail_to_upgrade(&self) -> String {
        kill(self.pid(), Signal::SIGUSR2).unwrap();
        self.tracker.wait_for_line("not handed over")["error"].as_str().unwrap().to_owned()
    }
}

fn udp(way: Way, tracker: &Tracker) -> Client {
    Client::new(tracker.udp[usize::from(way.is_v6())])
}

/// Waits until a process that is no child of this one has ended.
fn wait_until_ended(pid: Pid) {
    eventually("the old process ends", || kill(pid, None).is_err().then_some(()));
}

fn an_upgrade_keeps_peers_counts_and_connections(way: Way) {
    let mut upgraded = Upgraded::new(way.start(&[]));
    let client = udp(way, &upgraded.tracker);
    client.announce(&Announce::leecher(hash(1), 1001));
    client.announce(&Announce { event: COMPLETED, ..Announce::seeder(hash(1), 1001) });
    client.announce(&Announce::leecher(hash(1), 1002));
    let reply = client.ask(&connect_packet(7));
    let connection_id = u64::from_be_bytes(reply[8..16].try_into().unwrap());
    let mut old = upgraded.pid();
    for round in 0..3_u16 {
        // One connection that has served, and one in the middle of a request.
        let mut idle = way.connect(&upgraded.tracker);
        assert_eq!(idle.get(&announce(hash(2), 2000 + round, "&left=1")).status, 200);
        let mut busy = way.connect(&upgraded.tracker);
        let request = format!("GET {} HTTP/1.1\r\nHost: t\r\n\r\n", announce(hash(2), 3000, "&left=1"));
        let (start, rest) = request.as_bytes().split_at(40);
        busy.send(start);
        let line = upgraded.upgrade();
        assert_eq!(line["in_memory"], true, "{line}");
        // The id from before is good, and so are the counts.
        let reply = client.ask(&scrape_packet(connection_id, 9, &[hash(1)]));
        assert_eq!((word(&reply, 0), word(&reply, 8)), (2, 1));
        assert_eq!(client.scrape(&[hash(1)])[0], Counts { seeders: 1, completed: 1, leechers: 1 });
        // Those with TLS go through the old process.
        assert_eq!(idle.get(&announce(hash(2), 2000 + round, "&left=1")).status, 200);
        busy.send(rest);
        assert_eq!(busy.answer().status, 200);
        drop((idle, busy));
        let mut new = way.connect(&upgraded.tracker);
        assert_eq!(new.get(&announce(hash(2), 4000, "&left=1")).status, 200);
        if round > 0 {
            wait_until_ended(old);
        } else {
            assert!(upgraded.tracker.wait(PATIENCE).success());
        }
        old = upgraded.pid();
    }
}

/// Clients over UDP, over connections that stay, and over a new connection for each request. Each of them waits for every reply, and
/// fails without one.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicU32>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts two clients of each kind.
    pub(crate) fn start(udp: [SocketAddr; 2], http: [SocketAddr; 2]) -> Self {
        let (is_over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let client = |number: u16| {
            let (is_over, answered) = (Arc::clone(&is_over), Arc::clone(&answered));
            let address = usize::from(number % 2);
            let (udp, http) = (udp[address], http[address]);
            thread::spawn(move || {
                let (client, mut open) = (Client::from_ip(udp.ip(), udp), Web::connect(http, false));
                for turn in (0..1000).cycle().take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    let port = 1000 + 1000 * number + turn;
                    match number / 2 {
                        0 => drop(client.announce(&Announce::leecher(hash(u32::from(number)), port))),
                        1 => assert_eq!(open.get(&announce(hash(7), port, "&left=1")).status, 200),
                        _ => {
                            let mut new = Web::connect(http, false);
                            assert_eq!(new.get(&announce(hash(8), port, "&left=1")).status, 200);
                        }
                    }
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let clients = (0..6).map(client).collect();
        Self { is_over, answered, clients }
    }

    /// Waits for some more replies.
    pub(crate) fn wait_for_replies(&self) {
        let before = self.answered.load(Ordering::Relaxed);
        eventually("requests are answered", || {
            (self.answered.load(Ordering::Relaxed) > before + 100).then_some(())
        });
    }

    /// Ends the clients, and fails if one of them has lost a request.
    pub(crate) fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.clients.into_iter().for_each(|client| client.join().unwrap());
    }
}

/// Every request is answered exactly once, over UDP and over connections, while the tracker is replaced again and again.
#[test]
fn no_request_is_lost() {
    for io in ["mmsg", "uring"] {
        let tracker = Tracker::start(&[("SHOAL_UDP_IO", io), ("SHOAL_ANNOUNCE_PEERS_PER_ADDRESS_MAX", "0")]);
        let load =
            Load::start([0, 1].map(|family| tracker.udp[family]), [0, 1].map(|family| tracker.http[family]));
        let upgraded = Upgraded::new(tracker);
        for _ in 0..5 {
            assert_eq!(upgraded.upgrade()["in_memory"], true);
            load.wait_for_replies();
        }
        load.end();
    }
}

/// The store stands still while the new process takes it over. The statistics are shown meanwhile, the upgrade waits for no
/// reader, and a pause is refused or kept.
#[test]
fn an_upgrade_does_not_hang_and_loses_no_pause() {
    // It takes a while to start so many workers. Meanwhile, the test stops the new process.
    let upgraded = Upgraded::new(Tracker::start(&[("SHOAL_WORKERS_COUNT", "8")]));
    let (tracker, client) = (&upgraded.tracker, Client::new(upgraded.tracker.udp[0]));
    let mut shown = 0;
    for round in 1..=4 {
        client.announce(&Announce::seeder(hash(1), 1001));
        eventually("the torrent is among the largest", || {
            tracker.page("/status").body.contains("\"seeders\":1").then_some(())
        });
        // After a second, the statistics are collected again.
        thread::sleep(Duration::from_millis(1100));
        kill(upgraded.pid(), Signal::SIGUSR2).unwrap();
        let new = tracker.wait_for_line("handing over")["pid"].as_i64().unwrap();
        let new = Pid::from_raw(i32::try_from(new).unwrap());
        tracker.wait_for_line("continuing with the swarms");
        kill(new, Signal::SIGSTOP).unwrap();
        let mut reader = TcpStream::connect(tracker.control).unwrap();
        reader.write_all(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        reader.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        shown += u32::from(reader.read(&mut [0; 1]).is_ok_and(|bytes| bytes > 0));
        let is_accepted = run_locally(tracker, &["ctl", "pause", "udp", "--reason", "test"]).status.success();
        // If the machine stood still, the new process has been given up.
        let _ = kill(new, Signal::SIGCONT);
        eventually("the upgrade ends", || {
            let log = tracker.log();
            let ends = |line| log.matches(line).count();
            (ends("the new process serves") + ends("not handed over") == round).then_some(())
        });
        eventually("no pause is lost", || {
            (tracker.page("/status").body.contains("\"paused\":[]") != is_accepted).then_some(())
        });
        run_locally(tracker, &["ctl", "resume"]);
        assert_eq!(client.scrape(&[hash(1)])[0], Counts { seeders: 1, completed: 0, leechers: 0 });
    }
    assert!(shown > 0, "no reader got the statistics");
}

#[test]
fn swarms_come_as_a_snapshot_if_a_setting_of_the_store_has_changed() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shoal.toml");
    fs::write(&file, "[announce]\npeer_timeout_s = 2700\n").unwrap();
    let upgraded = Upgraded::new(Tracker::start_with_path(&file, &[]));
    let client = Client::new(upgraded.tracker.udp[0]);
    client.announce(&Announce::seeder(hash(1), 1001));
    fs::write(&file, "[announce]\npeer_timeout_s = 3600\n").unwrap();
    let line = upgraded.upgrade();
    assert_eq!(line["in_memory"], false, "{line}");
    assert_eq!(client.scrape(&[hash(1)])[0], Counts { seeders: 1, completed: 0, leechers: 0 });
}

/// A copy of the program, and a way to replace it.
struct Installed {
    _directory: tempfile::TempDir,
    program: PathBuf,
}

impl Installed {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("shoal");
        fs::copy(env!("CARGO_BIN_EXE_shoal"), &program).unwrap();
        Self { _directory: directory, program }
    }

    fn replace(&self, script: &str, mode: u32) {
        fs::remove_file(&self.program).unwrap();
        fs::write(&self.program, script).unwrap();
        fs::set_permissions(&self.program, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn program(&self) -> &Path {
        &self.program
    }
}

#[test]
fn a_new_program_that_fails_leaves_the_old_one_as_it_was() {
    let installed = Installed::new();
    let upgraded = Upgraded::new(Tracker::start_program(installed.program(), &[]));
    let client = Client::new(upgraded.tracker.udp[0]);
    client.announce(&Announce::seeder(hash(1), 1001));
    for (script, mode, expected) in [
        ("#!/bin/sh\nexit 7\n", 0o755, "exit status: 7"),
        ("#!/bin/sh\nkill -9 $$\n", 0o755, "signal: 9"),
        ("no program", 0o755, "cannot be started"),
        ("#!/bin/sh\n", 0o644, "cannot be started"),
    ] {
        installed.replace(script, mode);
        let reason = upgraded.fail_to_upgrade();
        assert!(reason.contains(expected), "{script:?}: {reason}");
        assert_eq!(client.scrape(&[hash(1)])[0], Counts { seeders: 1, completed: 0, leechers: 0 });
    }
    fs::remove_file(installed.program()).unwrap();
    assert!(upgraded.fail_to_upgrade().contains("cannot be started"));
    fs::copy(env!("CARGO_BIN_EXE_shoal"), installed.program()).unwrap();
    upgraded.upgrade();
    assert_eq!(client.scrape(&[hash(1)])[0], Counts { seeders: 1, completed: 0, leechers: 0 });
}

/// Whatever the new process does, the ports are free when the old one has stopped.
#[test]
fn a_new_process_that_hangs_ends_with_the_old_one() {
    for script in [
        "#!/bin/sh\nexec sleep 600\n",
        // It starts another one that has its connection.
        "#!/bin/sh\nsleep 600\n",
        "#!/bin/sh\nkill -STOP $$\n",
        concat!("#!/bin/sh\n", env!("CARGO_BIN_EXE_shoal"), " $* & sleep 0.1; kill -STOP 0\n"),
    ] {
        let installed = Installed::new();
        let mut tracker = Tracker::start_program(installed.program(), &[]);
        installed.replace(script, 0o755);
        tracker.signal(Signal::SIGUSR2);
        tracker.wait_for_line("handing over");
        assert!(tracker.stop().success(), "{script:?}");
        tracker.wait_for_line("stopped");
        eventually("the ports are free", || {
            let udp = tracker.udp.iter().all(|address| UdpSocket::bind(address).is_ok());
            let tcp = tracker.http.iter().all(|address| TcpStream::connect(address).is_err());
            (udp && tcp).then_some(())
        });
    }
}

/// A stop that has begun ends an upgrade, however far that is.
#[test]
fn a_stop_during_an_upgrade_stops() {
    for delay_ms in [0, 10, 20, 40, 80] {
        let mut tracker = Tracker::start(&[]);
        tracker.signal(Signal::SIGUSR2);
        thread::sleep(Duration::from_millis(delay_ms));
        let status = tracker.stop();
        let log = tracker.log();
        if log.contains("the new process serves") {
            // The stop came later.
            assert!(!log.contains("stopping after"), "{log}");
            continue;
        }
        assert!(status.success() && log.contains("stopping after"), "{log}");
        eventually("the port is free", || UdpSocket::bind(tracker.udp[0]).ok());
    }
}

#[test]
fn a_new_process_that_refuses_its_configuration_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shoal.toml");
    fs::write(&file, "").unwrap();
    let upgraded = Upgraded::new(Tracker::start_with_path(&file, &[]));
    let client = Client::new(upgraded.tracker.udp[0]);
    client.announce(&Announce::seeder(hash(1), 1001));
    fs::write(&file, "[state]\npath = \"/dev/null/state\"\n").unwrap();
    let reason = upgraded.fail_to_upgrade();
    assert!(reason.contains("gives up") && reason.contains("state.path"), "{reason}");
    fs::write(&file, "[udp]\nlisten = 5\n").unwrap();
    let reason = upgraded.fail_to_upgrade();
    assert!(reason.contains("exit status: 2"), "{reason}");
    assert_eq!(client.scrape(&[hash(1)])[0], Counts { seeders: 1, completed: 0, leechers: 0 });
}

#[test]
fn one_upgrade_at_a_time() {
    let installed = Installed::new();
    let upgraded = Upgraded::new(Tracker::start_program(installed.program(), &[]));
    // The first one waits for a process that never says anything, until that ends.
    installed.replace("#!/bin/sh\nexec sleep 3\n", 0o755);
    kill(upgraded.pid(), Signal::SIGUSR2).unwrap();
    upgraded.tracker.wait_for_line("handing over");
    let second = crate::kit::page::request(upgraded.tracker.control, "GET", "/health");
    assert_eq!(second.status, 200);
    assert!(
        upgraded.tracker.wait_for_line("not handed over")["error"].as_str().unwrap().contains("it has ended")
    );
}

#[test]
fn an_upgrade_needs_no_token_and_keeps_the_control_socket() {
    let upgraded = Upgraded::new(Tracker::start(&[]));
    // The second one goes through the socket that the first has handed over.
    for _ in 0..2 {
        let output = run_locally(&upgraded.tracker, &["upgrade"]);
        assert!(output.status.success(), "{output:?}");
        upgraded.tracker.wait_for_line("the new process serves");
        assert!(run_locally(&upgraded.tracker, &["ctl", "stats"]).status.success());
    }
}
