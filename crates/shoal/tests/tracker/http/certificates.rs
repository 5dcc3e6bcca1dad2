//! Certificates at the start, and while the tracker runs.

use std::fs;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::http::{Way, self_signed};
use crate::kit::harness::{Tracker, run};
use crate::kit::web::{Web, announce};
use crate::udp::hash;

/// Puts something that never ends, and for which a reader would wait, in the place of a file.
fn replace_by_fifo(file: &str) {
    fs::remove_file(file).unwrap();
    assert!(Command::new("mkfifo").arg(file).status().unwrap().success());
}

#[test]
fn a_fifo_in_place_of_a_certificate_holds_up_nothing() {
    let way = Way::PLAIN;
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = self_signed(directory.path(), "localhost");
    let mut tracker = way.start(&[("SHOAL_TLS_CERTIFICATES", &certificate), ("SHOAL_TLS_KEYS", &key)]);
    let shown = Web::connect_by_name(tracker.tls[0], "localhost").1;
    for _ in 0..3 {
        replace_by_fifo(&certificate);
        tracker.signal(Signal::SIGHUP);
        let refused = tracker.wait_for_line("the certificates stay as they were");
        assert!(refused["error"].as_str().unwrap().contains("is not a regular file"), "{refused}");
        assert_eq!(tracker.page("/health").status, 200);
    }
    assert_eq!(Web::connect_by_name(tracker.tls[0], "localhost").1, shown);
    self_signed(directory.path(), "localhost");
    tracker.signal(Signal::SIGHUP);
    tracker.wait_for_line("the certificates were read again");
    replace_by_fifo(&key);
    tracker.signal(Signal::SIGHUP);
    assert_eq!(tracker.stop().code(), Some(0));
}

#[test]
fn certificates_are_renewed_without_dropping_a_connection() {
    let way = Way::PLAIN;
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = self_signed(directory.path(), "localhost");
    let mut tracker = way.start(&[("SHOAL_TLS_CERTIFICATES", &certificate), ("SHOAL_TLS_KEYS", &key)]);
    let (mut old, shown_first) = Web::connect_by_name(tracker.tls[0], "localhost");
    assert_eq!(old.get(&announce(hash(1), 1, "")).status, 200);

    self_signed(directory.path(), "localhost");
    tracker.signal(Signal::SIGHUP);
    tracker.wait_for_line("the certificates were read again");
    let (mut new, shown_second) = Web::connect_by_name(tracker.tls[0], "localhost");
    assert_ne!(shown_first, shown_second);
    assert_eq!(new.get(&announce(hash(1), 2, "")).status, 200);

    fs::write(&certificate, "no certificate").unwrap();
    tracker.signal(Signal::SIGHUP);
    tracker.wait_for_line("the certificates stay as they were");
    assert!(tracker.log().contains(&certificate), "the file is named:\n{}", tracker.log());
    let (mut still, shown_third) = Web::connect_by_name(tracker.tls[0], "localhost");
    assert_eq!(shown_second, shown_third);
    for web in [&mut old, &mut new, &mut still] {
        assert_eq!(web.get(&announce(hash(1), 3, "")).status, 200);
    }
    assert_eq!(tracker.stop().code(), Some(0));
}

#[test]
fn a_name_gets_its_own_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let (one, one_key) = self_signed(directory.path(), "one.example");
    let (two, two_key) = self_signed(directory.path(), "two.example");
    let settings = [
        ("SHOAL_TLS_LISTEN", "127.0.0.1:0"),
        ("SHOAL_TLS_CERTIFICATES", &*format!("{one},{two}")),
        ("SHOAL_TLS_KEYS", &*format!("{one_key},{two_key}")),
    ];
    let tracker = Tracker::start(&settings);
    let shown = |name| Web::connect_by_name(tracker.tls[0], name).1;
    assert_ne!(shown("one.example"), shown("two.example"));
    assert_eq!(shown("one.example"), shown("unknown.example"));
}

#[test]
fn a_bad_certificate_refuses_to_start() {
    let directory = tempfile::tempdir().unwrap();
    let (one, one_key) = self_signed(directory.path(), "one.example");
    let (_, other_key) = self_signed(directory.path(), "two.example");
    let broken = directory.path().join("broken.pem");
    fs::write(&broken, "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n").unwrap();
    let missing = directory.path().join("missing.pem");
    let (broken, missing) = (broken.to_str().unwrap(), missing.to_str().unwrap());
    let (fifo, _) = self_signed(directory.path(), "fifo.example");
    replace_by_fifo(&fifo);
    for (certificate, key, named) in [
        (&*one, &*other_key, &*other_key),
        (broken, &one_key, broken),
        (missing, &one_key, missing),
        (&one, missing, missing),
        (&fifo, &one_key, &fifo),
        (&one, &fifo, &fifo),
        (&one, "/dev/zero", "/dev/zero"),
    ] {
        let output = run(
            &[],
            &[
                ("SHOAL_UDP_LISTEN", "127.0.0.1:0"),
                ("SHOAL_HTTP_LISTEN", "127.0.0.1:0"),
                ("SHOAL_CONTROL_LISTEN", ""),
                ("SHOAL_TLS_LISTEN", "127.0.0.1:0"),
                ("SHOAL_TLS_CERTIFICATES", certificate),
                ("SHOAL_TLS_KEYS", key),
            ],
        );
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(named), "{named} is not in\n{told}");
    }
}
