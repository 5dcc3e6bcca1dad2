//! Network interfaces: the properties that decide whether and how XDP can serve one, and the segments of its frames.
//!
//! All questions go to the kernel by name or socket, never to `/sys`, which shows the network namespace in which it was
//! mounted. Only `ioctl` and `addresses` contain `unsafe`: they pass pointers to the kernel and the C library.

mod addresses;
mod ioctl;
mod netlink;

use std::io;
use std::net::IpAddr;

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use ioctl::Request;
use netlink::Device;

/// `ETHTOOL_*` of `linux/ethtool.h`.
const ETHTOOL_GDRVINFO: u32 = 0x3;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `ETH_FLAG_RXVLAN`.
const ETH_FLAG_RXVLAN: u32 = 1 << 8;

/// `struct ethtool_drvinfo` begins with the command and the name of the driver.
const DRIVER_INFO_WORDS: usize = 49;
const DRIVER_NAME_BYTES: usize = 32;

/// `struct ethtool_channels`: the command, four maxima, and four numbers of queues: receive, transmit, other, combined.
const CHANNELS_WORDS: usize = 9;
const CHANNELS_RECEIVE: usize = 5;
const CHANNELS_TRANSMIT: usize = 6;
const CHANNELS_COMBINED: usize = 8;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// The number of its receive queues in use.
    pub queues: u32,
    /// The number of its transmit queues in use. An AF_XDP socket of a receive queue beyond it cannot send: the kernel
    /// drops its frames.
    pub transmit_queues: u32,
    /// The name of its driver, or "" if it has none.
    pub driver: String,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its maximum transmission unit in bytes.
    pub mtu: u32,
    /// Whether it is up.
    pub is_up: bool,
    /// Whether the card removes VLAN tags from received frames, so that an XDP program does not see them.
    pub strips_vlan: bool,
    /// The names of its VLAN interfaces.
    pub vlans: Vec<String>,
}

/// Why the properties of an interface are unknown.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// No interface has this name.
    #[error("there is no network interface {name:?}")]
    NotFound {
        /// The name.
        name: String,
    },
    /// The kernel refuses a request.
    #[error("the network interface {name:?} cannot be looked at ({step}): {reason}")]
    Unknown {
        /// The name.
        name: String,
        /// The request.
        step: &'static str,
        /// The reason.
        #[source]
        reason: io::Error,
    },
}

impl Interface {
    /// Finds the interface of this name, and asks for its properties. Fails if there is none.
    pub fn find(name: &str) -> Result<Self, InterfaceError> {
        let unknown = |step| move |reason| InterfaceError::Unknown { name: name.to_owned(), step, reason };
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .map_err(|errno| unknown("socket")(errno.into()))?;
        let not_found = |_| InterfaceError::NotFound { name: name.to_owned() };
        let index = name_to_index(&socket, name).map_err(not_found)?;
        let request =
            Request::new(&socket, name).ok_or_else(|| InterfaceError::NotFound { name: name.to_owned() })?;
        let [queues, transmit_queues] = queues(&request);
        Ok(Self {
            name: name.to_owned(),
            index,
            queues,
            transmit_queues,
            driver: driver(&request),
            mac: request.mac().map_err(unknown("SIOCGIFHWADDR"))?,
            mtu: request.mtu().map_err(unknown("SIOCGIFMTU"))?,
            is_up: request.is_up().map_err(unknown("SIOCGIFFLAGS"))?,
            strips_vlan: flags(&request) & ETH_FLAG_RXVLAN != 0,
            vlans: vlans(index).map_err(unknown("RTM_GETLINK"))?,
        })
    }

    /// Returns why the interface cannot have the data path, and what to do about it.
    pub fn obstacle(&self) -> Option<String> {
        let Self { name, driver, strips_vlan, vlans, .. } = self;
        if driver == "bonding" {
            return Some(
                "it is a bond, and what its ports receive cannot be passed to a socket of the bond; name a network card that \
                 is part of none"
                    .to_owned(),
            );
        }
        (*strips_vlan && !vlans.is_empty()).then(|| {
            format!(
                "it has VLANs ({}), whose tags the network card removes before the program can see them; let it leave them: \
                 `ethtool -K {name} rxvlan off`",
                vlans.join(", ")
            )
        })
    }
}

/// A VLAN, identified by the tag of its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vlan {
    /// The type of the tag: 0x8100 for IEEE 802.1Q, 0x88a8 for IEEE 802.1ad.
    pub protocol: u16,
    /// The number, of 12 bits.
    pub number: u16,
}

/// A network segment that an interface of the host belongs to: a VLAN, or the segment of frames without a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The VLAN. `None` for frames without a tag, or with a tag that only has a priority.
    pub vlan: Option<Vlan>,
    /// The index of the interface through which the kernel sends into it.
    pub interface_index: u32,
    /// The MAC address of that interface.
    pub mac: [u8; 6],
}

/// Returns the segments of the frames of an interface: none if it does not exist, and no VLANs within VLANs. Fails if
/// the kernel does not list them.
pub fn segments(interface_index: u32) -> io::Result<Vec<Segment>> {
    let segment = |device: &Device| {
        let vlan = match device.vlan {
            _ if device.index == interface_index => None,
            Some((parent, vlan)) if parent == interface_index => Some(vlan),
            _ => return None,
        };
        Some(Segment { vlan, interface_index: device.index, mac: device.mac? })
    };
    Ok(netlink::devices()?.iter().filter_map(segment).collect())
}

/// Returns the IP addresses of all interfaces of this host, sorted, without duplicates. Fails if the kernel does not
/// list them.
pub fn local_addresses() -> io::Result<Vec<IpAddr>> {
    let mut ips = addresses::ips()?;
    ips.sort_unstable();
    ips.dedup();
    Ok(ips)
}

impl Interface {
    /// Returns how many queues, from the first, AF_XDP sockets can serve.
    pub fn sockets(&self) -> u32 {
        self.queues.min(self.transmit_queues)
    }
}

/// Returns the numbers of receive and transmit queues. A driver that cannot tell has one of each.
fn queues(request: &Request<'_>) -> [u32; 2] {
    let mut channels = [0; CHANNELS_WORDS];
    channels[0] = ETHTOOL_GCHANNELS;
    let of_either = match request.ethtool(&mut channels) {
        Ok(()) => channels[CHANNELS_COMBINED],
        Err(_not_supported) => return [1, 1],
    };
    [CHANNELS_RECEIVE, CHANNELS_TRANSMIT].map(|at| channels[at].saturating_add(of_either).max(1))
}

fn driver(request: &Request<'_>) -> String {
    let mut info = [0; DRIVER_INFO_WORDS];
    info[0] = ETHTOOL_GDRVINFO;
    if request.ethtool(&mut info).is_err() {
        return String::new();
    }
    let bytes = info[1..].iter().flat_map(|word| word.to_ne_bytes()).take(DRIVER_NAME_BYTES);
    let name: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&name).into_owned()
}

fn flags(request: &Request<'_>) -> u32 {
    // `struct ethtool_value`: the command and the value.
    let mut value = [ETHTOOL_GFLAGS, 0];
    if request.ethtool(&mut value).is_ok() { value[1] } else { 0 }
}

fn vlans(interface_index: u32) -> io::Result<Vec<String>> {
    let is_vlan = |device: &Device| device.vlan.is_some_and(|(parent, _)| parent == interface_index);
    let devices = netlink::devices()?;
    Ok(devices.into_iter().filter(is_vlan).map(|device| device.name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_a_loopback() {
        let loopback = Interface::find("lo").unwrap();
        assert_eq!((loopback.index, loopback.queues, loopback.mac), (1, 1, [0; 6]));
        assert!(loopback.mtu > 1500 && loopback.vlans.is_empty());
    }

    #[test]
    fn bonds_are_refused_and_so_are_vlans_whose_tags_do_not_arrive() {
        let card = Interface::find("lo").unwrap();
        assert_eq!(card.obstacle(), None);
        let bond = Interface { driver: "bonding".to_owned(), ..card.clone() };
        assert!(bond.obstacle().unwrap().contains("it is a bond"));
        let strips = Interface { strips_vlan: true, ..card };
        assert_eq!(strips.obstacle(), None);
        let with_vlan = Interface { vlans: vec!["lo.7".to_owned()], ..strips };
        assert!(with_vlan.obstacle().unwrap().contains("ethtool -K lo rxvlan off"));
    }

    #[test]
    fn what_does_not_exist_is_named() {
        for name in ["nowhere", "", "a name that is far too long", "nul\0"] {
            let error = Interface::find(name).unwrap_err();
            assert_eq!(error.to_string(), format!("there is no network interface {name:?}"));
        }
    }
}
