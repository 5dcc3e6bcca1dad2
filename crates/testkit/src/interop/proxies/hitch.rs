//! hitch (Debian package `hitch`).

use std::fs;

use anyhow::{Context, Result};

use super::{ProxyEnvironment, create_directory};
use crate::interop::route::{HITCH_V1_PORT, HITCH_V2_PORT, PROXY_HEADER_PORT};
use crate::process::Process;
use crate::tools::HITCH;

/// The version of the PROXY header that hitch writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    V1,
    V2,
}

pub(super) fn start(environment: ProxyEnvironment<'_>, header: Header) -> Result<Process> {
    let (name, port, option) = match header {
        Header::V1 => ("hitch-v1", HITCH_V1_PORT, "write-proxy-v1"),
        Header::V2 => ("hitch-v2", HITCH_V2_PORT, "write-proxy-v2"),
    };
    // hitch refuses to serve as root, so root switches to another user. Root of a user namespace cannot do that: there
    // hitch runs inside another user namespace, in which it has no user.
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
        tracker = environment.tracker,
        pem = environment.certificate.both.display(),
    );
    let file = create_directory(environment, name)?.join("hitch.conf");
    fs::write(&file, settings).context("cannot write the configuration of hitch")?;
    let mut hitch = if is_root {
        environment.host.command_at(&HITCH.path()?)?
    } else {
        let mut unshare = environment.host.command("unshare")?;
        unshare.args(["--user", "--"]).arg(HITCH.path()?);
        unshare
    };
    HITCH.set_library_path(&mut hitch)?;
    hitch.arg("--config").arg(&file);
    Process::start(hitch, &environment.directory.join(format!("{name}.log"))).context("cannot start hitch")
}
