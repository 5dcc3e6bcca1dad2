//! Datagrams that the kernel of this host dropped, from its counters (proc_net(5)).

use std::fs;

use crate::chaos::result::Drops;

/// Returns the counters, for the load's sockets with these local ports.
pub(crate) fn read(ports: &[u16]) -> Drops {
    let sockets = fs::read_to_string("/proc/net/udp").unwrap_or_default();
    let counters = fs::read_to_string("/proc/net/snmp").unwrap_or_default();
    let counter = |name| counter(&counters, "Udp", name).unwrap_or(0);
    Drops { own: of_ports(&sockets, ports), no_port: counter("NoPorts"), no_room: counter("RcvbufErrors") }
}

impl Drops {
    /// Returns the drops since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            own: self.own.saturating_sub(earlier.own),
            no_port: self.no_port.saturating_sub(earlier.no_port),
            no_room: self.no_room.saturating_sub(earlier.no_room),
        }
    }
}

/// Sums the drops of the sockets with these local ports. The local address is the second column, as `ADDRESS:PORT` in
/// hexadecimal, and the drops are the last one.
fn of_ports(table: &str, ports: &[u16]) -> u64 {
    let drops = table.lines().filter_map(|line| {
        let mut columns = line.split_whitespace();
        let (_, port) = columns.nth(1)?.rsplit_once(':')?;
        let is_own = ports.contains(&u16::from_str_radix(port, 16).ok()?);
        is_own.then(|| columns.next_back()?.parse::<u64>().ok()).flatten()
    });
    drops.sum()
}

/// Returns a counter of a protocol: a line of names is followed by a line of values.
pub(crate) fn counter(table: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = table.lines().filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(": "));
    let (names, values) = (lines.next()?, lines.next()?);
    let column = names.split_whitespace().position(|column| column == name)?;
    values.split_whitespace().nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn tables_of_the_kernel_are_parsed() {
        let sockets = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
                       1: 0100007F:1B39 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 21 2 0 17\n\
                       2: 0100007F:1B3A 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 22 2 0 4\n";
        assert_eq!((of_ports(sockets, &[6969]), of_ports(sockets, &[6969, 6970])), (17, 21));
        let counters = "Icmp: A\nIcmp: 7\nUdp: InDatagrams NoPorts RcvbufErrors\nUdp: 1 2 3\n";
        assert_eq!(
            (counter(counters, "Udp", "NoPorts"), counter(counters, "Udp", "RcvbufErrors")),
            (Some(2), Some(3))
        );
        assert_eq!(counter(counters, "Udp", "Other"), None);
    }

    #[test]
    fn drops_of_a_full_socket_are_counted() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 1).unwrap();
        let before = read(&[port]);
        assert_eq!(before.own, 0);
        (0..100).for_each(|_| _ = socket.send_to(&[0; 1000], socket.local_addr().unwrap()).unwrap());
        let drops = read(&[port]).since(before);
        assert!((50..100).contains(&drops.own) && drops.no_room >= drops.own, "{drops:?}");
    }
}
