//! The network of a test: hosts on a bridge, each with its own address, as on the internet.
//!
//! Loopback does not do. Real clients refuse peers there (Transmission drops 127.0.0.0/8) or take two clients with one
//! address for the same client, and the tracker should see real source addresses.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::namespace::Namespace;
use crate::network::vlan::Vlan;
use crate::tools;

/// The name of the tracker's host. Some clients do not accept an IPv6 address in a URL.
pub const TRACKER_NAME: &str = "tracker.test";

/// The name of the host whose proxies stand in front of the tracker.
pub const PROXY_NAME: &str = "proxy.test";

/// The name of the host of the second node of a cluster.
pub const NODE_NAME: &str = "node.test";

/// The file with the names of the hosts.
const HOSTS: &str = "hosts";

/// The address family of all hosts of a network. There is only one, so that no traffic can use the other.
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
    /// Adds tags. Its device is in `hub`.
    vlan: Option<Vlan>,
    hub: Namespace,
    hosts: u8,
    /// The directory with the `/etc/hosts` of all hosts, in the file [`HOSTS`].
    names: TempDir,
}

/// A host: a namespace with one network interface.
#[derive(Debug)]
pub struct Host {
    namespace: Namespace,
    /// Its only address.
    pub address: IpAddr,
}

impl Network {
    /// Creates a network without hosts.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses namespaces or bridges.
    pub fn new(family: Family) -> Result<Self> {
        let names = tempfile::tempdir().context("cannot create a temporary directory")?;
        let file = names.path().join(HOSTS);
        fs::write(&file, "127.0.0.1 localhost\n::1 localhost\n")?;
        let hub = Namespace::with_hosts(&file)?;
        hub.ip("link add name bridge0 type bridge\nlink set bridge0 up\n")
            .context("cannot create a bridge")?;
        Ok(Self { family, vlan: None, hub, hosts: 0, names })
    }

    /// Lets the first host send by an XDP program: a virtual interface passes such packets on only if its other end has a
    /// program as well. This one passes everything on.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses, as it does without the rights of root.
    pub fn permit_xdp(&self) -> Result<()> {
        let object = concat!(env!("CARGO_MANIFEST_DIR"), "/../xdp/bpf/shoal.bpf.o");
        self.hub.ip(&format!("link set dev port1 xdpdrv object {object} section xdp\n"))
    }

    /// Tags the UDP datagrams from all others to `first`, the first host, and leaves other frames without a tag. The tags have only a
    /// priority (IEEE 802.1Q), since not every kernel knows VLANs. The replies have those of the requests.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses to move the port of the host.
    ///
    /// # Panics
    /// Panics without the rights of root.
    pub fn tag_datagrams(&mut self, first: &Host) -> Result<()> {
        // The relay passes on frames as they are: with their checksums, and no longer than those of a wire.
        for (namespace, device) in [(&first.namespace, "eth0"), (&self.hub, "port1")] {
            let offloads = ["-K", device, "tx", "off", "txvlan", "off", "rxvlan", "off"];
            namespace.run_program("ethtool", &offloads)?;
        }
        self.vlan = Some(Vlan::connect_datagrams(&self.hub, "port1", "trunk1", 0));
        self.hub.ip("link set port1 nomaster\nlink set trunk1 master bridge0\n")
    }

    /// Adds a host that all others know by `name`.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn add_named_host(&mut self, name: &str) -> Result<Host> {
        let host = self.add_host()?;
        // Appends to the file instead of replacing it, because this inode is the one that is mounted.
        let mut names = OpenOptions::new().append(true).open(self.names.path().join(HOSTS))?;
        writeln!(names, "{} {name}", host.address)?;
        Ok(host)
    }

    /// Adds a host that is connected to all others.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn add_host(&mut self) -> Result<Host> {
        self.hosts = self.hosts.checked_add(1).context("a network has at most 255 hosts")?;
        let namespace = self.hub.sibling()?;
        let (number, pid) = (self.hosts, namespace.pid());
        self.hub.ip(&format!(
            "link add name port{number} type veth peer name eth0 netns {pid}\n\
             link set port{number} master bridge0\n\
             link set port{number} up\n"
        ))?;
        let address = self.family.address(number);
        let (options, everywhere) = match self.family {
            Family::V4 => ("/24", "0.0.0.0/0"),
            Family::V6 => ("/64 nodad", "::/0"),
        };
        // Address autoconfiguration is off, because clients would listen and announce again in the middle of a test.
        // The default route leads nowhere, but some clients take its absence for the absence of the internet.
        namespace.ip(&format!(
            "link set lo up\n\
             link set eth0 addrgenmode none\n\
             link set eth0 up\n\
             address add {address}{options} dev eth0\n\
             route add {everywhere} dev eth0\n"
        ))?;
        Ok(Host { namespace, address })
    }
}

impl Host {
    /// Adds an IPv4 route that ends on this host, so that programs believe that there is IPv4. libevent (2.1) does not
    /// even listen on 127.0.0.1 if there is no IPv4 route to the internet.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn add_fake_ipv4_route(&self) -> Result<()> {
        if self.address.is_ipv4() {
            return Ok(());
        }
        self.namespace.ip("address add 192.0.2.1/32 dev lo\nroute add 0.0.0.0/0 dev lo src 192.0.2.1\n")
    }

    /// Returns a command that runs `program` on this host.
    ///
    /// # Errors
    /// Returns an error if the program is missing.
    pub fn command(&self, program: &str) -> Result<Command> {
        self.command_at(&tools::program(program)?)
    }

    /// Returns a command that runs the program at this path on this host.
    ///
    /// # Errors
    /// Returns an error if the tools to enter a namespace are missing.
    pub fn command_at(&self, program: &Path) -> Result<Command> {
        self.namespace.command(program)
    }
}

impl Family {
    /// Returns a documentation address (RFC 5737, RFC 3849). To a client it looks like any address of the internet.
    fn address(self, number: u8) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::new(198, 51, 100, number).into(),
            Self::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into()).into(),
        }
    }
}
