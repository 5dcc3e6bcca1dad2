//! The service manager: its messages, its watchdog, and the sockets that it passes. A test plays its part, by the protocols of
//! sd_notify(3) and sd_listen_fds(3).

pub(crate) mod systemd;

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::fchown;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use nix::sys::signal::Signal;
use nix::unistd::Uid;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use shoal_testkit::client::http::get_and_close;
use tempfile::TempDir;

use crate::kit::client::{Announce, Client, connect_packet, word};
use crate::kit::frozen::{TRACEABLE, freeze};
use crate::kit::harness::{PATIENCE, Tracker, eventually, run_locally, run_with_sockets};
use crate::kit::web::Web;
use crate::state::{Place, assert_filled, fill};
use crate::udp::hash;

/// A service manager.
struct Manager {
    messages: Receiver<Message>,
    /// Where the socket is.
    _directory: TempDir,
    path: String,
}

/// A message, and a descriptor if it came with one.
struct Message {
    text: String,
    descriptor: Option<OwnedFd>,
}

impl Manager {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify").to_str().unwrap().to_owned();
        let socket = UnixDatagram::bind(&path).unwrap();
        let (sender, messages) = channel();
        // The kernel queues ten messages by default, fewer than a start can have.
        thread::spawn(move || while sender.send(receive(&socket)).is_ok() {});
        Self { messages, _directory: directory, path }
    }

    fn setting(&self) -> (&str, &str) {
        ("NOTIFY_SOCKET", &self.path)
    }

    /// Receives a message that tells more than the status.
    fn receive(&self) -> Message {
        loop {
            let message = self.receive_any();
            if !message.text.starts_with("STATUS=") {
                return message;
            }
        }
    }

    fn receive_any(&self) -> Message {
        self.messages.recv_timeout(PATIENCE).expect("the tracker tells something")
    }

    /// Waits for a message with this line, and returns it.
    fn wait_for(&self, line: &str) -> Message {
        loop {
            let message = self.receive();
            if message.text.lines().any(|other| other == line) {
                return message;
            }
        }
    }

    /// Waits for a descriptor that is to be stored, and returns it.
    fn wait_for_descriptor(&self) -> (String, OwnedFd) {
        let Message { text, descriptor } = self.wait_for("FDSTORE=1");
        let name = text.lines().find_map(|line| line.strip_prefix("FDNAME=")).unwrap().to_owned();
        (name, descriptor.unwrap())
    }
}

fn receive(socket: &UnixDatagram) -> Message {
    let mut bytes = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            descriptor = descriptors.next();
        }
    }
    Message { text: String::from_utf8(bytes[..received.bytes].to_vec()).unwrap(), descriptor }
}

#[test]
fn the_manager_is_told_of_start_reload_and_stop() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shoal.toml");
    std::fs::write(&file, "").unwrap();
    let manager = Manager::new();
    let mut tracker = Tracker::start_with_path(&file, &[manager.setting()]);
    assert_eq!(manager.receive_any().text, "STATUS=starting: reading the state");
    assert_eq!(manager.receive_any().text, "READY=1\nSTATUS=serving");
    for (text, status) in
        [("announce.numwant_default = 20", "serving"), ("nonsense", "serving; the configuration stays")]
    {
        std::fs::write(&file, text).unwrap();
        tracker.signal(Signal::SIGHUP);
        let reloading = manager.receive().text;
        let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(time.parse::<u64>().unwrap() > 0);
        let ready = manager.receive().text;
        assert!(ready.starts_with(&format!("READY=1\nSTATUS={status}")), "{ready}");
    }
    let paused = run_locally(&tracker, &["ctl", "pause", "udp", "ipv6", "--reason", "moving"]);
    assert!(paused.status.success(), "{paused:?}");
    // The status that shows the peer shows the pause, which came before it.
    Client::new(tracker.udp[0]).announce(&Announce::leecher(hash(1), 1001));
    // The failure of the last reload stays in sight.
    let shown = || Some(manager.receive_any().text).filter(|text| text.contains("1 peers in 1 swarms"));
    let status = eventually("the status shows the peer", shown);
    assert!(
        status.starts_with("STATUS=serving: ")
            && status.contains(" announces/s; paused: udp v6; the configuration stays"),
        "{status}"
    );
    tracker.stop();
    assert_eq!(manager.receive().text, "STOPPING=1\nSTATUS=stopping: SIGTERM");
}

#[test]
fn the_watchdog_is_fed_only_while_all_workers_respond() {
    let manager = Manager::new();
    let tracker = Tracker::start(&[manager.setting(), ("WATCHDOG_USEC", "600000"), TRACEABLE]);
    for _ in 0..2 {
        manager.wait_for("WATCHDOG=1");
    }
    let hanging = freeze(&tracker, "worker-1");
    let line = tracker.wait_for_line("a worker does not respond");
    assert_eq!(line["worker"], 1);
    while manager.messages.try_recv().is_ok() {}
    // This takes as long as several checks.
    assert_eq!(tracker.page("/health").status, 503);
    assert!(manager.messages.try_iter().all(|message| message.text != "WATCHDOG=1"), "the watchdog was fed");
    drop(hanging);
    manager.wait_for("WATCHDOG=1");
}

#[test]
fn a_watchdog_for_another_process_is_not_fed() {
    let manager = Manager::new();
    let settings = [manager.setting(), ("WATCHDOG_USEC", "300000"), ("WATCHDOG_PID", "1")];
    let mut tracker = Tracker::start(&settings);
    manager.wait_for("READY=1");
    assert_eq!(tracker.page("/health").status, 200);
    tracker.stop();
    assert!(manager.receive().text.starts_with("STOPPING=1"));
}

/// Starts a tracker with sockets in which requests wait, and checks that both workers serve.
fn serve_waiting_requests(udp: UdpSocket, tcp: TcpListener) {
    let (udp_address, tcp_address) = (udp.local_addr().unwrap(), tcp.local_addr().unwrap());
    let client = Client::new(udp_address);
    client.send(&connect_packet(7));
    let mut web = Web::connect(tcp_address, false);
    web.send(&get_and_close("/scrape?info_hash=aaaaaaaaaaaaaaaaaaaa"));
    let (udp_listen, http_listen) = (udp_address.to_string(), tcp_address.to_string());
    let settings = [
        ("SHOAL_UDP_LISTEN", &*udp_listen),
        ("SHOAL_HTTP_LISTEN", &*http_listen),
        // The listener for HTTP would fit the usual address, which leaves the port open.
        ("SHOAL_CONTROL_LISTEN", "127.0.0.2:0"),
    ];
    let tracker = Tracker::start_with_sockets([udp.into(), tcp.into()], "udp:http", &settings);
    assert_eq!((tracker.udp[0], tracker.http[0]), (udp_address, tcp_address));
    assert_eq!(word(&client.receive(), 4), 7);
    assert_eq!(web.answer().status, 200);
    for _ in 0..16 {
        Client::new(udp_address).connect();
    }
}

#[test]
fn requests_that_came_before_the_start_are_answered() {
    serve_waiting_requests(
        UdpSocket::bind("127.0.0.1:0").unwrap(),
        TcpListener::bind("127.0.0.1:0").unwrap(),
    );
}

#[test]
fn workers_share_the_sockets_of_another_user() {
    if !Uid::effective().is_root() {
        return;
    }
    // The kernel lets only sockets of one user have the same port. The user of a socket is that of its file.
    let (udp, tcp) = (UdpSocket::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    fchown(&udp, Some(65_534), None).unwrap();
    fchown(&tcp, Some(65_534), None).unwrap();
    serve_waiting_requests(udp, tcp);
}

#[test]
fn the_unit_is_rated_well() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd/shoal.service");
    let rate = ["security", "--offline=true", "--threshold=17", "--no-pager", unit];
    // The option came with systemd 250.
    let rated = Command::new("systemd-analyze").args(rate).output();
    let rated = rated.expect("`cargo xtask setup` installs systemd-analyze");
    let [text, error] = [&rated.stdout, &rated.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(rated.status.success() && text.contains("Overall exposure level"), "{text}{error}");
}

#[test]
fn sockets_survive_a_crash() {
    let manager = Manager::new();
    let settings = [
        manager.setting(),
        ("FDSTORE", "8"),
        ("SHOAL_WORKERS_COUNT", "1"),
        ("SHOAL_UDP_LISTEN", "127.0.0.1:0"),
        ("SHOAL_HTTP_LISTEN", "127.0.0.1:0"),
        ("SHOAL_CONTROL_LISTEN", ""),
    ];
    let mut tracker = Tracker::start(&settings);
    let (udp, tcp) = (tracker.udp[0], tracker.http[0]);
    let stored = [(); 2].map(|()| manager.wait_for_descriptor());
    tracker.signal(Signal::SIGKILL);
    tracker.wait(PATIENCE);
    let client = Client::new(udp);
    client.send(&connect_packet(7));
    let waiting = TcpStream::connect(tcp).unwrap();
    let names = stored.each_ref().map(|(name, _)| name.clone()).join(":");
    let mut tracker = Tracker::start_with_sockets(stored.map(|(_, socket)| socket), &names, &settings);
    assert_eq!((tracker.udp[0], tracker.http[0]), (udp, tcp));
    assert_eq!(word(&client.receive(), 4), 7);
    drop(waiting);
    tracker.stop();
    // It asked for nothing to be stored that the manager has already.
    let mut rest = Vec::new();
    while !rest.last().is_some_and(|text: &String| text.starts_with("STOPPING=1")) {
        rest.push(manager.receive().text);
    }
    assert!(!rest.iter().any(|text| text.contains("FDSTORE=1")), "{rest:?}");
}

#[test]
fn unix_sockets_and_the_control_listener_survive_a_crash_and_a_stop() {
    let (manager, directory) = (Manager::new(), tempfile::tempdir().unwrap());
    let path = directory.path().join("http");
    let listen = format!("unix:{} proxy-protocol", path.display());
    let settings = [
        manager.setting(),
        ("FDSTORE", "8"),
        ("SHOAL_UDP_LISTEN", "127.0.0.1:0"),
        ("SHOAL_WORKERS_COUNT", "1"),
        ("SHOAL_HTTP_LISTEN", &*listen),
        ("SHOAL_PROXY_TRUSTED", "unix"),
    ];
    let mut tracker = Tracker::start(&settings);
    let (_udp, unix) = (manager.wait_for_descriptor(), manager.wait_for_descriptor());
    let control = manager.wait_for_descriptor();
    let address = tracker.control;
    let names = [&unix.0, &control.0].map(String::as_str).join(":");
    assert!(names.starts_with("stored-unix-") && names.contains(":stored-tcp-"), "{names}");
    let sockets = || [&unix.1, &control.1].map(|socket| socket.try_clone().unwrap());
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        tracker.signal(signal);
        tracker.wait(PATIENCE);
        let mut web = Web::connect_unix(&path);
        web.send(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n");
        web.send(&get_and_close("/scrape?info_hash=aaaaaaaaaaaaaaaaaaaa"));
        let _waiting = TcpStream::connect(address).unwrap();
        tracker = Tracker::start_with_sockets(sockets(), &names, &settings);
        assert_eq!(tracker.control, address);
        assert_eq!(web.answer().status, 200);
        assert_eq!(tracker.page("/health").status, 200);
    }
    tracker.stop();
    // A manager may remove the directory. Then the socket is out of reach, and a new one is bound.
    std::fs::remove_file(&path).unwrap();
    let _tracker = Tracker::start_with_sockets(sockets(), &names, &settings);
    manager.wait_for(&format!("FDNAME={}", unix.0));
    UnixStream::connect(&path).unwrap();
}

/// Stops a tracker, and returns the descriptors of its swarms.
fn stop_and_keep(manager: &Manager, tracker: &mut Tracker) -> [(String, OwnedFd); 2] {
    assert!(tracker.stop().success());
    manager.wait_for("STOPPING=1");
    [(); 2].map(|()| manager.wait_for_descriptor())
}

/// Starts a tracker with the swarms of another one.
fn continue_with(swarms: &[(String, OwnedFd); 2], settings: &[(&str, &str)]) -> Tracker {
    let names = swarms.each_ref().map(|(name, _)| name.clone()).join(":");
    Tracker::start_with_sockets(
        swarms.each_ref().map(|(_, file)| file.try_clone().unwrap()),
        &names,
        settings,
    )
}

#[test]
fn swarms_stay_in_memory_while_the_tracker_is_started_anew() {
    let manager = Manager::new();
    let settings = [manager.setting(), ("FDSTORE", "16")];
    let mut tracker = Tracker::start(&settings);
    let client = Client::new(tracker.udp[0]);
    fill(&client);
    let connection_id = client.connect();
    let swarms = stop_and_keep(&manager, &mut tracker);
    assert!(swarms[0].0.starts_with("stored-memory-") && swarms[1].0.starts_with("stored-image-"));
    let mut tracker = continue_with(&swarms, &settings);
    let line = "continuing with the swarms that the service manager has kept";
    assert!(tracker.log().contains(line), "{}", tracker.log());
    for (name, _) in &swarms {
        manager.wait_for(&format!("FDNAME={name}"));
    }
    let client = Client::new(tracker.udp[0]);
    // The keys come with the swarms.
    let announce = Announce::leecher(hash(3), 1005).packet(connection_id, 9);
    assert_eq!(word(&client.ask(&announce), 0), 1, "an announce reply");
    assert_filled(&client);
    // The descriptors are of no use a second time, even if the manager still has them.
    let tracker_without = continue_with(&swarms, &settings);
    assert!(tracker_without.log().contains("this image was used before"), "{}", tracker_without.log());
    drop(tracker_without);
    assert_eq!(client.scrape(&[hash(3)])[0].leechers, 1);
    // The swarms of the second process reach a third one.
    let swarms = stop_and_keep(&manager, &mut tracker);
    let tracker = continue_with(&swarms, &settings);
    assert_eq!(Client::new(tracker.udp[0]).scrape(&[hash(3)])[0].leechers, 1);
}

#[test]
fn swarms_that_do_not_fit_are_refused_and_the_snapshot_is_read() {
    let (manager, place) = (Manager::new(), Place::new());
    let settings = place.settings(&[manager.setting(), ("FDSTORE", "16")]);
    let mut tracker = Tracker::start(&settings);
    fill(&Client::new(tracker.udp[0]));
    let swarms = stop_and_keep(&manager, &mut tracker);
    let [(memory_name, memory), (image_name, image)] = swarms.each_ref();
    let copy = |file: &OwnedFd| file.try_clone().unwrap();
    let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let zeros = || {
        let file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        OwnedFd::from(file)
    };
    let cases = [
        (
            [copy(image), copy(memory)],
            format!("{image_name}:stored-memory-0"),
            "the memory of this image is missing",
        ),
        ([copy(memory), null()], format!("{memory_name}:{image_name}"), "this image was used before"),
        ([copy(memory), zeros()], format!("{memory_name}:{image_name}"), "the image cannot be read"),
        (
            [copy(memory), copy(image)],
            "stored-memory-0:stored-image-0".to_owned(),
            "the image is that of another memory",
        ),
        (
            [copy(memory), copy(memory)],
            format!("{memory_name}:stored-memory-0"),
            "there is no image of this memory",
        ),
    ];
    for (files, names, reason) in cases {
        let mut tracker = Tracker::start_with_sockets(files, &names, &settings);
        assert!(tracker.log().contains(reason), "{reason}: {}", tracker.log());
        assert_eq!(Client::new(tracker.udp[0]).scrape(&[hash(1)])[0].seeders, 1, "{reason}");
        tracker.signal(Signal::SIGKILL);
        tracker.wait(PATIENCE);
    }
    let other = [&*settings, &[("SHOAL_ANNOUNCE_PEER_TIMEOUT_S", "3000")]].concat();
    let tracker = continue_with(&swarms, &other);
    assert!(tracker.log().contains("announce.peer_timeout_s differs"), "{}", tracker.log());
    assert_eq!(Client::new(tracker.udp[0]).scrape(&[hash(1)])[0].seeders, 1);
}

#[test]
fn stored_sockets_that_are_needed_no_more_are_given_back() {
    let manager = Manager::new();
    let [old, new] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let address = new.local_addr().unwrap().to_string();
    let settings = [manager.setting(), ("SHOAL_UDP_LISTEN", &*address)];
    let sockets = [old.into(), new.into()];
    let tracker = Tracker::start_with_sockets(sockets, "stored-udp-1-0:stored-udp-1-1", &settings);
    assert_eq!(manager.receive().text, "FDSTOREREMOVE=1\nFDNAME=stored-udp-1-0");
    Client::new(tracker.udp[0]).connect();
}

#[test]
fn sockets_that_the_configuration_does_not_list_are_refused() {
    let bind =
        || [UdpSocket::bind("127.0.0.1:0").unwrap().into(), TcpListener::bind("127.0.0.1:0").unwrap().into()];
    for (names, key) in
        [("udp:http", "udp.listen"), ("control:tls", "control.listen"), ("x.socket", "udp.listen")]
    {
        let refused = run_with_sockets(bind(), names, &[("SHOAL_UDP_LISTEN", "127.0.0.2:0")]);
        let error = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{error}");
        assert!(error.contains("LISTEN_FDS") && error.contains(key), "{error}");
    }
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap().into());
    let refused =
        run_with_sockets(sockets, "udp:udp", &[("SHOAL_UDP_LISTEN", "127.0.0.1:0"), ("LISTEN_FDS", "x")]);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{error}");
    assert!(error.contains("LISTEN_FDS must be a number"), "{error}");
}
