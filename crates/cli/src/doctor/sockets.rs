//! The sockets of the machine, and the processes that have them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::machine::Machine;

/// `TCP_LISTEN` of `linux/tcp_states.h`.
const TCP_LISTEN: &str = "0A";

/// The name of the tracker's process.
const TRACKER: &str = "shoal";

/// A socket that waits for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Socket {
    pub(super) is_udp: bool,
    pub(super) address: SocketAddr,
    inode: u64,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) number: u32,
    pub(super) name: String,
}

/// The sockets that wait for clients, and the processes that have them, as far as this user sees them.
pub(super) struct Sockets {
    sockets: Vec<Socket>,
    owners: HashMap<u64, u32>,
    names: HashMap<u32, String>,
}

impl Process {
    pub(super) fn is_tracker(&self) -> bool {
        self.name == TRACKER
    }
}

impl Sockets {
    pub(super) fn read(machine: &Machine) -> Self {
        let mut sockets = Vec::new();
        for (file, is_udp) in [("udp", true), ("udp6", true), ("tcp", false), ("tcp6", false)] {
            let table = machine.text(&format!("proc/net/{file}")).unwrap_or_default();
            sockets.extend(table.lines().skip(1).filter_map(|line| socket(line, is_udp)));
        }
        let mut owners = HashMap::new();
        let mut names = HashMap::new();
        for number in processes(machine) {
            for inode in inodes(machine, number) {
                owners.entry(inode).or_insert(number);
            }
            names.insert(number, machine.text(&format!("proc/{number}/comm")).unwrap_or_default());
        }
        Self { sockets, owners, names }
    }

    /// Returns the sockets that have this address, or leave no room for it.
    pub(super) fn at(&self, is_udp: bool, address: SocketAddr) -> impl Iterator<Item = &Socket> {
        self.sockets.iter().filter(move |socket| {
            let (ip, other) = (address.ip(), socket.address.ip());
            let overlaps = ip == other || ip.is_unspecified() || other.is_unspecified();
            socket.is_udp == is_udp
                && socket.address.port() == address.port()
                && ip.is_ipv4() == other.is_ipv4()
                && overlaps
        })
    }

    /// Returns the process that has a socket, unless this user cannot see it.
    pub(super) fn owner(&self, socket: &Socket) -> Option<Process> {
        let number = *self.owners.get(&socket.inode)?;
        Some(Process { number, name: self.names.get(&number).cloned().unwrap_or_default() })
    }
}

/// Reads a line of `/proc/net/udp` and the like (proc(5)).
fn socket(line: &str, is_udp: bool) -> Option<Socket> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    if !is_udp && *fields.get(3)? != TCP_LISTEN {
        return None;
    }
    Some(Socket { is_udp, address: address(fields.get(1)?)?, inode: fields.get(9)?.parse().ok()? })
}

/// Reads an address such as `0100007F:1B39`: words in the byte order of the machine, and the port as a number.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::to_ne_bytes);
    let ip = match ip.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(ip)?)),
        32 => {
            let mut bytes = [0; 16];
            for (place, part) in bytes.chunks_mut(4).enumerate() {
                part.copy_from_slice(&word(ip.get(place * 8..place * 8 + 8)?)?);
            }
            IpAddr::from(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

fn processes(machine: &Machine) -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir(machine.root().join("proc")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn inodes(machine: &Machine, process: u32) -> impl Iterator<Item = u64> {
    let folder = machine.root().join(format!("proc/{process}/fd"));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::made_up;
    use super::*;

    #[test]
    fn sockets_are_read_with_their_processes() {
        let udp = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref\n\
             1: 00000000:1B39 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 41 2 0 0\n";
        let tcp6 = "  sl  local_address                         remote_address                        st tx_queue\n\
             0: 00000000000000000000000001000000:1B39 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 42 1\n\
             1: 00000000000000000000000001000000:1B3A 00000000000000000000000000000000:0000 01 0:0 00:0 0 0 0 43 1\n";
        let made = made_up(&[("proc/net/udp", udp), ("proc/net/tcp6", tcp6)]);
        made.add_process(7, "shoal\n", 41);
        let sockets = Sockets::read(&made.machine);
        let held: Vec<_> = sockets.at(true, "192.0.2.1:6969".parse().unwrap()).collect();
        assert_eq!(held.len(), 1);
        let owner = sockets.owner(held[0]).unwrap();
        assert!(owner.is_tracker() && owner.number == 7);
        let held: Vec<_> = sockets.at(false, "[::]:6969".parse().unwrap()).collect();
        assert_eq!((held.len(), held[0].address), (1, "[::1]:6969".parse().unwrap()));
        assert_eq!(sockets.owner(held[0]), None);
        for (is_udp, free) in [(true, "[::]:6969"), (false, "[::1]:6970"), (true, "0.0.0.0:6970")] {
            assert_eq!(sockets.at(is_udp, free.parse().unwrap()).count(), 0, "{free}");
        }
    }
}
