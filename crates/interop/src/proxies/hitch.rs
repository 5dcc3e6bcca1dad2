//! hitch (Debian package `hitch`).

use std::fs;

use anyhow::{Context, Result};

use super::{Surroundings, directory_of};
use crate::process::Process;
use crate::tools::HITCH;
use crate::way::{HITCH_V1_PORT, HITCH_V2_PORT, PROXY_HEADER_PORT};

/// The version of the PROXY header that it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    V1,
    V2,
}

pub(super) fn start(around: Surroundings<'_>, header: Header) -> Result<Process> {
    let (name, port, option) = match header {
        Header::V1 => ("hitch-v1", HITCH_V1_PORT, "write-proxy-v1"),
        Header::V2 => ("hitch-v2", HITCH_V2_PORT, "write-proxy-v2"),
    };
    // It refuses to serve as root, and root becomes somebody else. Who only plays root in a user namespace cannot: it
    // enters one more, in which it is nobody.
    let is_root = rustix::process::geteuid().is_root();
    let user = if is_root { "user = \"nobody\"\n" } else { "" };
    let settings = format!(
        "frontend = \"[*]:{port}\"\n\
         backend = \"[{tracker}]:{PROXY_HEADER_PORT}\"\n\
         pem-file = \"{pem}\"\n\
         {option} = on\n\
         workers = 1\n\
         log-level = 2\n\
         {user}",
        tracker = around.tracker,
        pem = around.certificate.both.display(),
    );
    let file = directory_of(around, name)?.join("hitch.conf");
    fs::write(&file, settings).context("cannot write hitch's settings")?;
    let mut hitch = if is_root {
        around.host.command_at(&HITCH.path()?)?
    } else {
        let mut unshare = around.host.command("unshare")?;
        unshare.args(["--user", "--"]).arg(HITCH.path()?);
        unshare
    };
    HITCH.lend_libraries(&mut hitch)?;
    hitch.arg("--config").arg(&file);
    Process::spawn(name, hitch, around.directory)
}
