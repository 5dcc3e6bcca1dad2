//! The image that the project ships, under runc: its own user, a read-only root, no capabilities, and the system calls that
//! Docker and podman permit by default. Needs the rights of root.
//!
//! The image has the program of the tests, or is the archive that `TEST_SHOAL_IMAGE` names.

mod bundle;

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::thread;

use nix::sys::signal::Signal;
use shoal_testkit::namespace::Namespace;
use shoal_testkit::web_server::{TestServer, reply};

use crate::access::{line, wait_until};
use crate::kit::client::{Announce, Client};
use crate::kit::harness::{Tracker, eventually};
use crate::kit::protocols::announce_over_every_protocol;
use crate::udp::hash;

use self::bundle::{Bundle, Image, Profile};

/// Checks that a process of the container is confined: no capabilities, no new ones, and a filter of system calls.
fn assert_confined(bundle: &Bundle) {
    let status = fs::read_to_string(format!("/proc/{}/status", bundle.pid())).unwrap();
    let zero = format!("{:016x}", 0);
    let fields = [
        ("Uid", "65532\t65532\t65532\t65532"),
        ("CapBnd", zero.as_str()),
        ("CapEff", zero.as_str()),
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
    ];
    for (field, value) in fields {
        assert!(status.contains(&format!("\n{field}:\t{value}\n")), "{field}: {status}");
    }
}

/// The last process that serves is another one than before, and the container goes on.
fn assert_upgraded(tracker: &Tracker, upgrades: usize) {
    eventually("the successor serves", || (tracker.successors().len() == upgrades).then_some(()));
    // Until then, its end would be known to the old process only.
    let ended = || tracker.log().matches("the old process has ended").count();
    eventually("the old process has ended", || (ended() == upgrades).then_some(()));
    assert_eq!(announce_over_every_protocol(tracker), ["", "", ""]);
    assert_eq!(Client::new(tracker.udp[0]).scrape(&[hash(7)])[0].seeders, 1, "{}", tracker.log());
}

#[test]
fn the_image_serves_is_upgraded_and_keeps_its_peers() {
    let image = Image::build();
    for profile in [Profile::Docker, Profile::Podman] {
        network().run(|| serve_and_upgrade(&Bundle::new(&image, profile)));
    }
}

fn serve_and_upgrade(bundle: &Bundle) {
    let mut tracker = bundle.start();
    assert_confined(bundle);
    bundle.run(&["/usr/local/bin/shoal", "health"]);
    Client::new(tracker.udp[0]).announce(&Announce::seeder(hash(7), 1001));
    // A signal to process 1, and a command within the container.
    tracker.signal(Signal::SIGUSR2);
    assert_upgraded(&tracker, 1);
    bundle.run(&["/usr/local/bin/shoal", "upgrade"]);
    assert_upgraded(&tracker, 2);
    tracker.signal(Signal::SIGHUP);
    tracker.wait_for_line("the configuration was read again");
    assert!(tracker.stop().success(), "{}", tracker.log());
    let again = bundle.start();
    assert_eq!(Client::new(again.udp[0]).scrape(&[hash(7)])[0].seeders, 1, "{}", again.log());
}

/// Returns a network in which all ports are free.
fn network() -> Namespace {
    let network = Namespace::new().unwrap();
    network.ip("link set lo up").unwrap();
    network
}

#[test]
fn a_container_ends_as_its_tracker_does() {
    let image = Image::build();
    let bundle = Bundle::new(&image, Profile::Docker).set("SHOAL_UDP_LISTEN", "nowhere");
    let (code, output) = network().run(|| bundle.fail());
    assert!(code == Some(2) && output.contains("udp.listen"), "{code:?}: {output}");
}

#[test]
fn a_container_without_its_volume_says_what_to_mount() {
    let image = Image::build();
    let bundle = Bundle::new(&image, Profile::Docker).without_volume();
    let (code, output) = network().run(|| bundle.fail());
    assert!(code == Some(2), "{code:?}: {output}");
    assert!(output.contains("state.path") && output.contains("mount a volume"), "{output}");
}

/// The files that compose mounts exist, and its variables are keys.
#[test]
fn compose_names_files_and_keys_that_exist() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/container");
    let text = fs::read_to_string(folder.join("compose.yaml")).unwrap();
    let mounts: Vec<&str> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- .")?.split_once(':'))
        .map(|(file, _)| file)
        .collect();
    assert_eq!(mounts.len(), 5, "{mounts:?}");
    for file in mounts {
        assert!(folder.join(format!(".{file}")).is_file(), "{file}");
    }
    let names = shoal_config::environment_names();
    let variables: Vec<&str> = text
        .split_whitespace()
        .filter(|word| word.starts_with("SHOAL_"))
        .map(|word| word.trim_end_matches(':'))
        .collect();
    assert!(
        !variables.is_empty() && variables.iter().all(|variable| names.iter().any(|name| name == variable))
    );
}

/// Answers every question for an IPv4 address with 127.0.0.1, and has none of the other family (RFC 1035).
fn serve_names() {
    let socket = UdpSocket::bind("127.0.0.1:53").unwrap();
    thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut query) {
            // Extensions follow the name, which ends with an empty label, its type and its class.
            let name = query[12..length].iter().position(|byte| *byte == 0).unwrap();
            let end = 12 + name + 5;
            let is_v4 = query[end - 3] == 1;
            let mut answer = query[..end].to_vec();
            answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_v4), 0, 0, 0, 0]);
            if is_v4 {
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
            }
            socket.send_to(&answer, client).unwrap();
        }
    });
}

/// A name server and a file of names tell where the lists are, as in any container. A switch of services that asks a
/// library must do no harm: the program of the image may be of another C library, or static.
#[test]
fn a_list_is_fetched_by_its_name() {
    let image = Image::build();
    network().run(|| {
        serve_names();
        let server = TestServer::start(reply("", line('a', "a notice")));
        for (hosts, host) in [("", "lists.example"), ("127.0.0.1 files.example\n", "files.example")] {
            let url = format!("http://{host}:{}/deny", server.address.port());
            let bundle = Bundle::new(&image, Profile::Docker)
                .set("SHOAL_ACCESS_TORRENTS_DENY", &url)
                .file("/etc/resolv.conf", "nameserver 127.0.0.1\n")
                .file("/etc/hosts", hosts)
                .file("/etc/nsswitch.conf", "hosts: mymachines files resolve [!UNAVAIL=return] dns\n");
            let tracker = bundle.start();
            wait_until(&tracker, 'a', true);
        }
    });
}
