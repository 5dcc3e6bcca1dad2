//! The network interfaces of the host and their VLANs, listed by the kernel (`rtnetlink(7)`).
//!
//! The program keeps the VLANs in one table by number and protocol. Number 0 stands for frames without a tag.

use std::io;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

use super::Vlan;

/// Message types and flags of `linux/netlink.h` and `linux/rtnetlink.h`.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST_DUMP: u16 = 0x301;

/// Attributes of `linux/if_link.h`.
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_VLAN_ID: u16 = 1;
const IFLA_VLAN_PROTOCOL: u16 = 5;

/// The bits of an attribute's type without its flags.
const NLA_TYPE_MASK: u16 = 0x3fff;

/// Lengths of `struct nlmsghdr` and `struct ifinfomsg` in bytes.
const HEADER_BYTES: usize = 16;
const LINK_BYTES: usize = 16;

/// The kernel fills no larger buffer.
const REPLY_BYTES_MAX: usize = 32 << 10;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) index: u32,
    pub(super) name: String,
    /// `None` unless the address has the length of an Ethernet address.
    pub(super) mac: Option<[u8; 6]>,
    /// Its VLAN, and the index of the interface below it.
    pub(super) vlan: Option<(u32, Vlan)>,
}

/// Returns all interfaces of this network namespace.
pub(super) fn devices() -> io::Result<Vec<Device>> {
    // NETLINK_ROUTE is protocol 0.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let mut request = [0; HEADER_BYTES + LINK_BYTES];
    request[..4].copy_from_slice(&32_u32.to_ne_bytes());
    request[4..6].copy_from_slice(&RTM_GETLINK.to_ne_bytes());
    request[6..8].copy_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
    send(&socket, &request, SendFlags::empty())?;
    let (mut devices, mut reply) = (Vec::new(), vec![0; REPLY_BYTES_MAX]);
    loop {
        let (length, _) = recv(&socket, &mut reply[..], RecvFlags::empty())?;
        if !read(&reply[..length], &mut devices)? {
            return Ok(devices);
        }
    }
}

/// Reads a part of the reply. Returns whether more parts follow.
fn read(mut messages: &[u8], devices: &mut Vec<Device>) -> io::Result<bool> {
    while let Some((length, kind)) = u32_at(messages, 0).zip(u16_at(messages, 4)) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(body) = messages.get(HEADER_BYTES..length) else { break };
        match kind {
            NLMSG_DONE => return Ok(false),
            NLMSG_ERROR => {
                let errno = u32_at(body, 0).unwrap_or(0).cast_signed().wrapping_neg();
                return Err(io::Error::from_raw_os_error(errno));
            }
            RTM_NEWLINK => devices.extend(device(body)),
            _ => {}
        }
        messages = messages.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(true)
}

/// Reads a `struct ifinfomsg` and its attributes.
fn device(message: &[u8]) -> Option<Device> {
    let mut device = Device { index: u32_at(message, 4)?, ..Device::default() };
    let (mut parent, mut vlan, mut is_parent_elsewhere) = (None, None, false);
    for (kind, value) in attributes(message.get(LINK_BYTES..)?) {
        match kind {
            IFLA_ADDRESS => device.mac = value.try_into().ok(),
            IFLA_IFNAME => device.name = text(value),
            IFLA_LINK => parent = u32_at(value, 0),
            IFLA_LINKINFO => vlan = vlan_of(value),
            // The index of its parent then belongs to another network namespace.
            IFLA_LINK_NETNSID => is_parent_elsewhere = true,
            _ => {}
        }
    }
    device.vlan = parent.filter(|_| !is_parent_elsewhere).zip(vlan);
    Some(device)
}

/// Returns the VLAN of an interface of this kind.
fn vlan_of(info: &[u8]) -> Option<Vlan> {
    let (mut is_vlan, mut number, mut protocol) = (false, None, None);
    for (kind, value) in attributes(info) {
        match kind {
            IFLA_INFO_KIND => is_vlan = text(value) == "vlan",
            IFLA_INFO_DATA => {
                for (kind, value) in attributes(value) {
                    match kind {
                        IFLA_VLAN_ID => number = u16_at(value, 0),
                        IFLA_VLAN_PROTOCOL => protocol = u16_at(value, 0).map(u16::from_be),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    let (number, protocol) = number.zip(protocol).filter(|_| is_vlan)?;
    Some(Vlan { protocol, number })
}

/// Returns the types and values of the attributes, up to the first incomplete one.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let (kind, value) = (u16_at(bytes, 2)? & NLA_TYPE_MASK, bytes.get(4..length)?);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Returns a string without the zero at its end.
fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER_BYTES + body.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend(body);
        bytes
    }

    fn link(index: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut body = [0; LINK_BYTES];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        message(RTM_NEWLINK, &[&body[..], &attributes.concat()].concat())
    }

    /// A VLAN interface as the kernel lists it: the flag of nested attributes is not set on all.
    fn vlan(number: u16, protocol: u16, kind: &[u8]) -> Vec<u8> {
        let data = [
            attribute(IFLA_VLAN_PROTOCOL, &protocol.to_be_bytes()),
            attribute(IFLA_VLAN_ID, &number.to_ne_bytes()),
        ];
        let data = attribute(IFLA_INFO_DATA | 1 << 15, &data.concat());
        attribute(IFLA_LINKINFO, &[attribute(IFLA_INFO_KIND, kind), data].concat())
    }

    #[test]
    fn vlans_are_read_from_the_list_of_the_kernel() {
        let mac = [2, 0, 0, 0, 0, 1];
        let eth0 = [attribute(IFLA_IFNAME, b"eth0\0"), attribute(IFLA_ADDRESS, &mac)];
        let parent = attribute(IFLA_LINK, &2_u32.to_ne_bytes());
        let elsewhere = attribute(IFLA_LINK_NETNSID, &[0; 4]);
        let mut devices = Vec::new();
        let messages = [
            link(2, &eth0),
            link(3, &[parent.clone(), vlan(5, 0x8100, b"vlan\0")]),
            link(4, &[vlan(6, 0x88a8, b"vlan\0"), parent.clone()]),
            link(5, &[parent.clone(), vlan(7, 0x8100, b"vlan\0"), elsewhere]),
            link(6, &[parent, vlan(8, 0x8100, b"other\0")]),
        ];
        assert!(read(&messages.concat(), &mut devices).unwrap());
        assert!(!read(&message(NLMSG_DONE, &[0; 4]), &mut devices).unwrap());
        let first = Device { index: 2, name: "eth0".to_owned(), mac: Some(mac), vlan: None };
        assert_eq!(devices[0], first);
        let vlans: Vec<_> = devices.iter().map(|device| device.vlan).collect();
        let of = |protocol, number| Some((2, Vlan { protocol, number }));
        assert_eq!(vlans, [None, of(0x8100, 5), of(0x88a8, 6), None, None]);
    }

    #[test]
    fn an_error_of_the_kernel_is_one() {
        let refused = message(NLMSG_ERROR, &(-libc::EPERM).to_ne_bytes());
        let error = read(&refused, &mut Vec::new()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    }

    #[test]
    fn any_bytes_can_be_read() {
        let mut rng = fastrand::Rng::with_seed(1);
        let whole = link(3, &[vlan(5, 0x8100, b"vlan\0"), attribute(IFLA_IFNAME, b"eth0.5\0")]);
        for _ in 0..10_000 {
            let mut bytes = whole.clone();
            bytes[rng.usize(..whole.len())] = rng.u8(..);
            bytes.truncate(rng.usize(..=whole.len()));
            let _ = read(&bytes, &mut Vec::new());
        }
    }

    #[test]
    fn the_loopback_interface_is_the_first() {
        let devices = devices().unwrap();
        assert!(devices.iter().any(|device| device.index == 1 && device.name == "lo"), "{devices:?}");
    }
}
