//! A network of hosts for one test, each with an address of its own, as on the internet.
//!
//! Not loopback, because a real client refuses peers there (Transmission drops 127.0.0.0/8) or takes two clients of
//! one address for one, and because the tracker is to see real source addresses.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::namespace::Namespace;
use crate::tools;

/// The name of the tracker's host: some clients understand no IPv6 address in a URL.
pub const TRACKER_NAME: &str = "tracker.test";

/// The name of the host on which proxies stand in front of the tracker.
pub const PROXY_NAME: &str = "proxy.test";

/// The file with the names.
const HOSTS: &str = "hosts";

/// Which address family all hosts of a network speak. One alone, so that nothing can go round by the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Hosts on one bridge.
#[derive(Debug)]
pub struct Network {
    family: Family,
    hub: Namespace,
    hosts: u8,
    /// Holds the `/etc/hosts` of all hosts, as the file [`HOSTS`].
    names: TempDir,
}

/// One host: a namespace with one network card.
#[derive(Debug)]
pub struct Host {
    namespace: Namespace,
    /// Its one address.
    pub address: IpAddr,
}

impl Network {
    /// A network without hosts.
    ///
    /// # Errors
    /// Where the kernel refuses namespaces or bridges.
    pub fn new(family: Family) -> Result<Self> {
        let names = tempfile::tempdir().context("cannot make a temporary directory")?;
        let file = names.path().join(HOSTS);
        fs::write(&file, "127.0.0.1 localhost\n::1 localhost\n")?;
        let hub = Namespace::first(&file)?;
        hub.ip("link add name bridge0 type bridge\nlink set bridge0 up\n").context("cannot make a bridge")?;
        Ok(Self { family, hub, hosts: 0, names })
    }

    /// One more host, which all others know by `name`.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn host_called(&mut self, name: &str) -> Result<Host> {
        let host = self.host()?;
        // Added to the file rather than written anew, because this very file is mounted.
        let mut names = OpenOptions::new().append(true).open(self.names.path().join(HOSTS))?;
        writeln!(names, "{} {name}", host.address)?;
        Ok(host)
    }

    /// One more host, connected to all others.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn host(&mut self) -> Result<Host> {
        self.hosts = self.hosts.checked_add(1).context("a network has 255 hosts at most")?;
        let namespace = self.hub.another()?;
        let (number, pid) = (self.hosts, namespace.pid());
        self.hub.ip(&format!(
            "link add name port{number} type veth peer name eth0 netns {pid}\n\
             link set port{number} master bridge0\n\
             link set port{number} up\n"
        ))?;
        let address = self.family.address(number);
        namespace.ip(&self.family.card(address))?;
        Ok(Host { namespace, address })
    }
}

impl Host {
    /// Makes programs believe that there is IPv4, though it ends on this host: libevent (2.1) does not even listen on
    /// 127.0.0.1 where no route leads to the internet by IPv4.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn pretend_ipv4(&self) -> Result<()> {
        if self.address.is_ipv4() {
            return Ok(());
        }
        self.namespace.ip("address add 192.0.2.1/32 dev lo\nroute add 0.0.0.0/0 dev lo src 192.0.2.1\n")
    }

    /// A command that will run on this host.
    ///
    /// # Errors
    /// Where the program is missing.
    pub fn command(&self, program: &str) -> Result<Command> {
        self.command_at(&tools::program(program)?)
    }

    /// As [`Host::command`], of a program that is not looked for.
    ///
    /// # Errors
    /// Where the tools to enter a namespace are missing.
    pub fn command_at(&self, program: &Path) -> Result<Command> {
        self.namespace.command(program)
    }
}

impl Family {
    /// Addresses for documentation (RFC 5737, RFC 3849): to a client they look like any on the internet.
    fn address(self, number: u8) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::new(198, 51, 100, number).into(),
            Self::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into()).into(),
        }
    }

    /// No address comes by itself later: clients would listen and announce again in the middle of a test.
    /// The default route leads nowhere, but some clients take its absence for the absence of the internet.
    fn card(self, address: IpAddr) -> String {
        let (rest, everywhere) = match self {
            Self::V4 => ("/24", "0.0.0.0/0"),
            Self::V6 => ("/64 nodad", "::/0"),
        };
        format!(
            "link set lo up\n\
             link set eth0 addrgenmode none\n\
             link set eth0 up\n\
             address add {address}{rest} dev eth0\n\
             route add {everywhere} dev eth0\n"
        )
    }
}
