//! Tables as prefixes, for a longest-prefix search outside of this program.

use super::{Answer, Network, NetworkTable, bits};

/// Returns disjoint networks, with what `judge` makes of the tables' answers for all of their addresses. Together they
/// contain exactly the addresses for which that differs from `usual`.
pub fn prefixes<const TABLES: usize, J: Copy + PartialEq>(
    tables: [&NetworkTable; TABLES],
    usual: J,
    judge: impl Fn([Answer; TABLES]) -> J,
) -> Vec<(Network, J)> {
    let mut prefixes = Vec::new();
    for is_v6 in [false, true] {
        let address_max = u128::MAX >> (u128::BITS - u32::from(bits(is_v6)));
        let mut firsts: Vec<u128> = tables.iter().flat_map(|table| table.changes(is_v6)).collect();
        firsts.push(0);
        firsts.sort_unstable();
        firsts.dedup();
        let lasts = firsts.iter().skip(1).map(|next| next - 1).chain([address_max]);
        for (first, last) in firsts.iter().copied().zip(lasts) {
            let [first, last] = [first, last].map(|address| Network::masked(is_v6, address, bits(is_v6)));
            let judged = judge(tables.map(|table| table.answer(first.first())));
            if judged != usual
                && let Some(range) = Network::range(first.first(), last.first())
            {
                prefixes.extend(range.map(|network| (network, judged)));
            }
        }
    }
    prefixes
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::*;

    fn networks(texts: &[&str]) -> Vec<Network> {
        let parse = |text: &&str| {
            let (ip, length) = text.split_once('/').unwrap();
            Network::new(ip.parse().unwrap(), length.parse().unwrap()).unwrap()
        };
        texts.iter().map(parse).collect()
    }

    /// Returns the answers of the longest prefix.
    fn look_up(prefixes: &[(Network, [bool; 2])], usual: [bool; 2], ip: IpAddr) -> [bool; 2] {
        let containing = prefixes.iter().filter(|(network, _)| network.contains(ip));
        containing.max_by_key(|(network, _)| network.prefix_length()).map_or(usual, |(_, answers)| *answers)
    }

    fn prefixes(tables: [&NetworkTable; 2], usual: [bool; 2]) -> Vec<(Network, [bool; 2])> {
        super::prefixes(tables, usual, |answers| answers.map(|answer| answer != Answer::Denied))
    }

    #[test]
    fn tables_that_answer_as_usual_have_no_prefixes() {
        let all = NetworkTable::default();
        assert!(prefixes([&all, &all], [true, true]).is_empty());
        let none = NetworkTable::new(Some(&[]), &[]);
        let everything = prefixes([&all, &none], [true, true]);
        let lengths: Vec<u8> = everything.iter().map(|(network, _)| network.prefix_length()).collect();
        assert_eq!(lengths, [0, 0]);
    }

    #[test]
    fn the_longest_prefix_gives_the_answers_of_the_tables() {
        let deny = ["10.0.0.0/8", "10.1.2.3/32", "255.0.0.0/8", "2001:db8::/32", "2001:db8:1::7/128"];
        let allow = ["10.1.0.0/16", "0.0.0.0/1", "128.0.0.0/1", "::/0", "2001:db8:1::/48"];
        let other = ["10.1.2.0/24", "192.0.2.0/25", "2001:db8:0:8000::/50", "::1/128"];
        let first = NetworkTable::new(Some(&networks(&allow)), &networks(&deny));
        let second = NetworkTable::new(Some(&networks(&other)), &[]);
        let usual = [true, false];
        let prefixes = prefixes([&first, &second], usual);
        let mut rng = fastrand::Rng::with_seed(7);
        let edges = prefixes.iter().flat_map(|(network, _)| [network.first(), network.last()]);
        let v4 = (0..5000).map(|_| IpAddr::from(Ipv4Addr::from(rng.u32(..) & 0x0f03_030f | 0x0a00_0000)));
        let v4: Vec<IpAddr> = v4.collect();
        let v6 = (0..5000).map(|_| IpAddr::from(Ipv6Addr::from(0x2001_0db8 << 96 | rng.u128(..) >> 44)));
        for ip in edges.chain(v4).chain(v6) {
            assert_eq!(look_up(&prefixes, usual, ip), [first.serves(ip), second.serves(ip)], "{ip}");
        }
        for (place, (network, _)) in prefixes.iter().enumerate() {
            let others = prefixes[place + 1..].iter().map(|(other, _)| other);
            assert!(others.clone().all(|other| !other.contains(network.first())), "{network} is in another");
        }
    }
}
