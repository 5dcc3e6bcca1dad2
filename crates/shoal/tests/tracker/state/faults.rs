//! A state that is not as the tracker left it, or that cannot be written: the log tells, and the tracker serves on.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;

use shoal_store::snapshot_file::{Block, Event, Header, Reader, Writer};

use crate::http::certificate;
use crate::kit::client::{Announce, Client, Counts};
use crate::kit::harness::{Tracker, run};
use crate::kit::web::Resumer;
use crate::state::{Place, assert_filled, fill, leave};
use crate::udp::hash;

const ADMIN: &str = "secret-of-the-admin";

/// Asks the tracker for a snapshot. Returns whether it was written.
fn writes_snapshot(tracker: &Tracker) -> bool {
    let url = format!("http://{}", tracker.control);
    run(&["ctl", "--url", &url, "snapshot"], &[("SHOAL_CONTROL_TOKEN", ADMIN)]).status.success()
}

/// Checks that no snapshot can be written, that the log tells, and that clients are served.
fn assert_serves_without_snapshots(tracker: &Tracker) {
    assert!(!writes_snapshot(tracker));
    let line = tracker.wait_for_line("no snapshot was written; the one before stays");
    assert!(line["error"].as_str().unwrap().contains("cannot be written"), "{line}");
    let client = Client::new(tracker.udp[0]);
    client.announce(&Announce::leecher(hash(5), 5000));
    assert_eq!(client.scrape(&[hash(5)])[0], Counts { leechers: 1, ..Counts::default() });
}

/// A tracker whose state lies on a file system of its own, and the directory as this process sees it.
fn with_file_system(place: &Place) -> (Tracker, PathBuf) {
    fs::create_dir(&place.path).unwrap();
    let settings = [("SHOAL_CONTROL_ADMIN_TOKEN", ADMIN)];
    let tracker = Tracker::start_with_file_system(place.path.as_ref(), &place.settings(&settings));
    fill(&Client::new(tracker.udp[0]));
    assert!(writes_snapshot(&tracker));
    let seen = PathBuf::from(format!("/proc/{}/root{}", tracker.pid(), place.path));
    (tracker, seen)
}

#[test]
fn on_a_full_disk_the_old_snapshot_stays_until_there_is_space() {
    let place = Place::new();
    let (tracker, directory) = with_file_system(&place);
    let old = fs::read(directory.join("swarms")).unwrap();
    let filler = directory.join("filler");
    let full = fs::write(&filler, vec![0; 1 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    assert_serves_without_snapshots(&tracker);
    assert_eq!(fs::read(directory.join("swarms")).unwrap(), old);
    assert!(!directory.join("swarms.new").exists(), "it would take the space that is missing");
    fs::remove_file(filler).unwrap();
    assert!(writes_snapshot(&tracker));
    assert_ne!(fs::read(directory.join("swarms")).unwrap(), old);
}

#[test]
fn a_directory_that_becomes_read_only_ends_snapshots_and_nothing_else() {
    let place = Place::new();
    let (tracker, directory) = with_file_system(&place);
    let old = fs::read(directory.join("swarms")).unwrap();
    let pid = tracker.pid().to_string();
    // A file system with open files does not become read-only on request, but a second mount of it does.
    let script = "mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind \"$0\"";
    let enter = ["--target", &pid, "--mount", "sh", "-c", script, &place.path];
    assert!(Command::new("nsenter").args(enter).status().unwrap().success());
    assert_serves_without_snapshots(&tracker);
    assert_eq!(fs::read(directory.join("swarms")).unwrap(), old);
}

#[test]
fn a_directory_that_disappears_ends_snapshots_and_nothing_else() {
    let place = Place::new();
    let mut tracker = Tracker::start(&place.settings(&[("SHOAL_CONTROL_ADMIN_TOKEN", ADMIN)]));
    fill(&Client::new(tracker.udp[0]));
    fs::remove_dir_all(&place.path).unwrap();
    assert_serves_without_snapshots(&tracker);
    assert!(tracker.stop().success(), "it ends as usual");
}

#[test]
fn a_snapshot_of_another_version_or_byte_order_is_set_aside() {
    let place = Place::new();
    leave(&place);
    let good = fs::read(place.file("swarms")).unwrap();
    let version = u32::from_le_bytes(good[16..20].try_into().unwrap());
    for other in [version + 1, version.swap_bytes()] {
        let mut bytes = good.clone();
        bytes[16..20].copy_from_slice(&other.to_le_bytes());
        fs::write(place.file("swarms"), &bytes).unwrap();
        let tracker = Tracker::start(&place.settings(&[]));
        let expected = format!("its format has version {other}, and this program reads version {version}");
        assert!(tracker.log().contains(&expected), "{}", tracker.log());
        assert!(tracker.log().contains("the tracker starts without peers"));
        assert_eq!(fs::read(place.file("swarms.refused")).unwrap(), bytes);
        assert_eq!(Client::new(tracker.udp[0]).scrape(&[hash(1)])[0], Counts::default());
    }
}

/// Root started the tracker once, and then the service with its own user: nothing is lost, and the message has the remedy.
#[test]
fn files_of_another_user_are_left_as_they_are() {
    const USER: u32 = 65534;
    let place = Place::new();
    leave(&place);
    fs::set_permissions(place.parent.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["", "lock"] {
        chown(place.file(name), Some(USER), Some(USER)).unwrap();
    }
    fs::write(place.file("tickets"), "").unwrap();
    fs::set_permissions(place.file("tickets"), fs::Permissions::from_mode(0o600)).unwrap();
    let snapshot = fs::read(place.file("swarms")).unwrap();
    let user = [("SHOAL_PROCESS_USER", "65534"), ("SHOAL_PROCESS_GROUP", "65534")];
    let ports =
        [("SHOAL_UDP_LISTEN", "127.0.0.1:0"), ("SHOAL_HTTP_LISTEN", ""), ("SHOAL_CONTROL_LISTEN", "")];
    for name in ["keys", "swarms", "tickets"] {
        let refused = run(&[], &place.settings(&[&user[..], &ports].concat()));
        let error = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{error}");
        let expected = format!(
            "{} belongs to user 0, and the tracker, user 65534, may not read it; `chown -R 65534 {}` as root",
            place.file(name).display(),
            place.path
        );
        assert!(error.contains(&expected), "{error}");
        chown(place.file(name), Some(USER), Some(USER)).unwrap();
    }
    assert_eq!(fs::read(place.file("swarms")).unwrap(), snapshot);
    let tracker = Tracker::start(&place.settings(&user));
    assert_filled(&Client::new(tracker.udp[0]));
}

#[test]
fn private_swarms_of_served_torrents_return_with_lists() {
    let place = Place::new();
    let list = place.parent.path().join("list");
    let hex: String = hash(1).iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(&list, hex).unwrap();
    let list = list.display().to_string();
    let apart = ("SHOAL_ADDRESS_PRIVATE", "apart");
    // The first torrent has two peers, the other one has one.
    for (settings, counts) in [
        (vec![apart], [2, 1]),
        (vec![apart, ("SHOAL_ACCESS_TORRENTS_ALLOW", &list)], [2, 0]),
        (vec![apart, ("SHOAL_ACCESS_TORRENTS_DENY", &list)], [0, 1]),
    ] {
        let mut tracker = Tracker::start(&place.settings(&[apart]));
        fill(&Client::new(tracker.udp[0]));
        assert!(tracker.stop().success());
        let tracker = Tracker::start(&place.settings(&settings));
        let peers = ["leecher", "seeder"]
            .map(|role| tracker.metric("shoal_peers", &["family=\"v4\"", &format!("role=\"{role}\"")]));
        // One of the two is a seeder.
        let [first, second] = counts;
        assert_eq!(peers, [first / 2 + second, first / 2], "{settings:?}: {}", tracker.log());
        drop(tracker);
        fs::remove_file(place.file("swarms")).unwrap();
    }
}

/// Writes the snapshot as if the clock had shown a time that was later by this many seconds.
fn shift_clock(place: &Place, by_s: i64) {
    let file = place.file("swarms");
    let mut reader = Reader::new(File::open(&file).unwrap()).unwrap();
    let shifted = |unix_s: u64| unix_s.checked_add_signed(by_s).unwrap();
    let header = Header { begun_unix_s: shifted(reader.header().begun_unix_s), ..reader.header().clone() };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    let (mut block, mut ends) = (Block::default(), 0);
    while let Some(event) = reader.next(&mut block).unwrap() {
        match event {
            Event::Block => {
                block.parts().for_each(|part| writer.push(block.set().unwrap(), &part.unwrap()));
                writer.end_block(shifted(block.at_unix_s)).unwrap();
            }
            Event::End(_) => ends += 1,
            Event::Damage(_) | Event::Truncated => panic!("{event:?}"),
        }
    }
    assert_eq!(ends, 1);
    fs::write(file, writer.finish(header.begun_unix_s).unwrap().0).unwrap();
}

#[test]
fn a_clock_that_jumps_costs_at_most_the_peers_that_look_overdue() {
    const HOUR_S: i64 = 3600;
    for (by_s, is_there) in [(HOUR_S, true), (1000 * HOUR_S, true), (-HOUR_S / 2, true), (-HOUR_S, false)] {
        let place = Place::new();
        leave(&place);
        shift_clock(&place, by_s);
        let mut tracker = Tracker::start(&place.settings(&[]));
        let client = Client::new(tracker.udp[0]);
        if is_there {
            assert_filled(&client);
        } else {
            assert_eq!(client.scrape(&[hash(1)])[0], Counts::default());
            assert!(tracker.log().contains("\"overdue\":3"), "{}", tracker.log());
        }
        // The next snapshot has the time of the clock.
        assert!(tracker.stop().success());
        let info = run(&["state", "info", "--json", &place.path], &[]);
        let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
        assert!(info["age_s"].as_u64().unwrap() < 60, "{info}");
    }
}

#[test]
fn tls_sessions_resume_after_a_restart_if_keys_are_part_of_the_state() {
    let (certificate, key) = certificate();
    let tls = [
        ("SHOAL_TLS_LISTEN", "127.0.0.1:0"),
        ("SHOAL_TLS_CERTIFICATES", certificate),
        ("SHOAL_TLS_KEYS", key),
    ];
    for (keys, is_resumed) in [("true", true), ("false", false)] {
        let place = Place::new();
        let settings = [&tls[..], &[("SHOAL_STATE_KEYS", keys)]].concat();
        let settings = place.settings(&settings);
        let client = Resumer::new();
        let mut tracker = Tracker::start(&settings);
        assert!(!client.announce(tracker.tls[0]));
        assert!(client.announce(tracker.tls[0]));
        assert!(tracker.stop().success());
        assert_eq!(place.file("tickets").exists(), is_resumed);
        let mut tracker = Tracker::start(&settings);
        assert_eq!(client.announce(tracker.tls[0]), is_resumed, "after a restart");
        assert!(tracker.stop().success());
        if is_resumed {
            fs::write(place.file("tickets"), "damaged").unwrap();
            let tracker = Tracker::start(&settings);
            assert!(tracker.log().contains("the keys of TLS tickets are damaged"), "{}", tracker.log());
            assert!(!client.announce(tracker.tls[0]));
        }
    }
}
