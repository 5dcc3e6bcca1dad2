//! The page for the operator of a public tracker, followed from an empty machine to its last command.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use shoal_testkit::documents::{Action, Page, Shell};

use super::machine::{Machine, PUBLIC};
use super::package::package;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/public-tracker.md");

/// The page says HASH, and a reader puts in a torrent.
const HASH: &str = "0123456789abcdef0123456789abcdef01234567";

/// A stand-in for a program that a minimal Debian lacks.
const SUDO: &str = "#!/bin/sh\nexec \"$@\"\n";

#[test]
fn the_page_for_public_trackers_works_as_written() {
    let machine = Machine::boot_without_shoal();
    let sudo = machine.path("/usr/local/bin/sudo");
    fs::write(&sudo, SUDO).unwrap();
    fs::set_permissions(&sudo, fs::Permissions::from_mode(0o755)).unwrap();
    let hosts = format!("127.0.0.1 localhost\n{PUBLIC} tracker.example\n");
    fs::write(machine.etc("hosts"), hosts).unwrap();
    let page = Page::read(Path::new(PAGE), &[("HASH", HASH)]).unwrap();
    let mut shell = Shell::start(machine.shell("/tmp")).unwrap();
    let mut packages = ["0.1.0", "0.1.1"].into_iter();
    for step in &page.steps {
        // The reader downloads it before.
        if matches!(&step.action, Action::Run { command, .. } if command.contains("apt install")) {
            machine.run("sh", &["-c", "rm -f /tmp/shoal_*.deb"]);
            package(&machine, packages.next().unwrap());
        }
        if let Err(error) = shell.follow(step) {
            panic!("{PAGE}:{}: {error:#}", step.line);
        }
    }
    println!("{} steps", page.steps.len());
    assert!(packages.next().is_none(), "the page upgrades");
    assert!(page.left_out.is_empty(), "{:?}", page.left_out);
}
