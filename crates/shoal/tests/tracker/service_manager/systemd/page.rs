//! The pages of the documentation that need a service manager, followed from an empty machine to their last command.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use shoal_testkit::documents::{Action, Page, Shell};
use shoal_testkit::pebble::{Options, Pebble};

use super::SHOAL;
use super::machine::{Machine, PUBLIC};
use super::package::package;

/// The page says HASH, and a reader puts in a torrent.
const HASH: &str = "0123456789abcdef0123456789abcdef01234567";

/// A stand-in for a program that a minimal Debian lacks.
const SUDO: &str = "#!/bin/sh\nexec \"$@\"\n";

/// The directory of the reader in the machine.
const HERE: &str = "/tmp";

/// Returns a file of the repository.
fn repository(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)
}

fn boot() -> Machine {
    let machine = Machine::boot_without_shoal();
    let sudo = machine.path("/usr/local/bin/sudo");
    fs::write(&sudo, SUDO).unwrap();
    fs::set_permissions(&sudo, fs::Permissions::from_mode(0o755)).unwrap();
    let hosts = format!("127.0.0.1 localhost\n{PUBLIC} tracker.example\n");
    fs::write(machine.etc("hosts"), hosts).unwrap();
    machine
}

/// Starts a certificate authority for the tracker of the machine, which takes it for the one that everyone uses.
fn certify(machine: &Machine) -> Pebble {
    let pebble = Pebble::start(Options::new(80, 443)).unwrap();
    fs::create_dir_all(machine.etc("ssl")).unwrap();
    fs::copy(pebble.ca_file(), machine.etc("ssl/pebble.pem")).unwrap();
    fs::write(machine.etc("ssl/issued.pem"), pebble.root().unwrap()).unwrap();
    let additions = machine.etc("systemd/system/shoal.service.d");
    fs::create_dir(&additions).unwrap();
    let directory =
        format!("Environment=SHOAL_ACME_DIRECTORY={} SSL_CERT_FILE=/etc/ssl/pebble.pem", pebble.url());
    fs::write(additions.join("pebble.conf"), format!("[Service]\n{directory}\n")).unwrap();
    pebble
}

/// Does all that a page says, with something to prepare before each step.
fn follow(machine: &Machine, page: &str, mut prepare: impl FnMut(&Action)) {
    let page = Page::read(&repository(page), &[("HASH", HASH)]).unwrap();
    let mut shell = machine.shell(HERE);
    shell.env("CURL_CA_BUNDLE", "/etc/ssl/issued.pem");
    let mut shell = Shell::start(shell).unwrap();
    for step in &page.steps {
        prepare(&step.action);
        if let Err(error) = shell.follow(step) {
            panic!("{}:{}: {error:#}", page.path.display(), step.line);
        }
    }
    assert!(page.left_out.is_empty(), "{:?}", page.left_out);
    println!("{}: {} steps", page.path.display(), page.steps.len());
}

#[test]
fn the_page_for_public_trackers_works_as_written() {
    let machine = boot();
    let _pebble = certify(&machine);
    let mut versions = ["0.1.0", "0.1.1"].into_iter();
    follow(&machine, "docs/guides/public-tracker.md", |action| {
        // The tracker reads a list sooner than a reader types.
        if matches!(action, Action::Run { command, .. } if command.contains("access check")) {
            machine.wait_for_log("an entry of a list has changed", 1);
        }
        // The reader downloads it before.
        if matches!(action, Action::Run { command, .. } if command.contains("apt install")) {
            machine.run("sh", &["-c", "rm -f /tmp/shoal_*.deb"]);
            package(&machine, versions.next().unwrap());
        }
    });
    assert!(versions.next().is_none(), "the page upgrades");
}

#[test]
fn the_service_is_set_up_by_hand_as_its_page_says() {
    let machine = boot();
    fs::copy(env!("CARGO_BIN_EXE_shoal"), machine.path(SHOAL)).unwrap();
    let unit = "packaging/systemd/shoal.service";
    fs::create_dir_all(machine.path(HERE).join("packaging/systemd")).unwrap();
    fs::copy(repository(unit), machine.path(HERE).join(unit)).unwrap();
    follow(&machine, "docs/systemd.md", |_| {});
    assert_eq!(machine.show("ActiveState"), "active");
    assert!(machine.show("StatusText").starts_with("serving"));
}
