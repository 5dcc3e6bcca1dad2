//! Tables of the autonomous system or the country of each network.
//!
//! Two formats are read: the MaxMind DB, in which GeoLite2 and DB-IP come, and lines of CSV or of tabs, in which most
//! free tables come:
//!
//! | Line | Of |
//! |---|---|
//! | `192.0.2.0,192.0.2.255,64512,"Some Company"` | DB-IP, by autonomous system |
//! | `192.0.2.0,192.0.2.255,ZZ` | DB-IP, by country |
//! | `192.0.2.0/24,64512,"Some Company"` | GeoLite2, by autonomous system |
//! | `192.0.2.0 <tab> 192.0.2.255 <tab> 64512 <tab> ZZ <tab> Some Company` | iptoasn.com |
//!
//! Only the networks that rules name are kept. All others, which are nearly all, take no memory after the reading.

use core::net::IpAddr;
use std::collections::HashMap;
use std::io::{self, BufRead};

use maxminddb::{MaxMindDbError, Reader, WithinOptions};
use serde::Deserialize;

use super::parse::{address, range};
use super::{LINE_BYTES_MAX, Network, NetworkList};
use crate::budget::{Budget, Share};
use crate::faults::Faults;
use crate::rules::{NamedNetworks, country};
use crate::text::{Lines, Text, decode};

/// The networks of a table that rules name.
#[derive(Debug, Default)]
pub struct Owners {
    /// The networks, with the numbers of the rules.
    pub networks: NetworkList,
    /// The faulty lines. A MaxMind DB has no lines.
    pub faults: Faults,
    /// When the table was made, in seconds since 1970, if it says so.
    pub built_unix_s: Option<u64>,
}

/// Reads a table, which may have `bytes_max` bytes after decompression. Counts and skips faulty lines. Fails if the
/// table cannot be read to its end, is damaged, or is too large for the budget.
pub fn read_owners(
    body: &mut dyn BufRead,
    bytes_max: u64,
    named: &NamedNetworks,
    budget: &Budget,
) -> io::Result<Owners> {
    let mut text = Text::new(body, bytes_max)?;
    let mut owners = Owners { networks: NetworkList::within(budget), ..Owners::default() };
    if text.begin().contains(&0) {
        // No text has this byte, and the tree at the beginning of a MaxMind DB has many of them.
        owners.built_unix_s = Some(read_database(&mut text, named, budget, &mut owners.networks)?);
    } else {
        read_lines(&mut text, named, &mut owners)?;
    }
    owners.networks.check()?;
    Ok(owners)
}

/// A record of a MaxMind DB. All other fields are skipped.
#[derive(Deserialize)]
struct Record<'d> {
    autonomous_system_number: Option<u32>,
    #[serde(borrow)]
    country: Option<Country<'d>>,
}

#[derive(Deserialize)]
struct Country<'d> {
    iso_code: Option<&'d str>,
}

/// The memory of a record's rule in a hash table, which doubles when it grows.
const RULE_BYTES: u64 = 64;

/// Reads a MaxMind DB. Returns when it was made, in seconds since 1970.
fn read_database(
    text: &mut Text<'_>,
    named: &NamedNetworks,
    budget: &Budget,
    networks: &mut NetworkList,
) -> io::Result<u64> {
    let mut share = Share::of(budget);
    let (mut bytes, mut is_over) = (Vec::new(), false);
    text.for_each_piece(|piece| {
        // The buffer doubles when it grows.
        is_over |= !share.need(2 * piece.len() as u64);
        if is_over {
            bytes = Vec::new();
        } else {
            bytes.extend_from_slice(piece);
        }
        true
    })?;
    share.check().map_err(io::Error::other)?;
    let reader = Reader::from_source(&bytes).map_err(|error| {
        io::Error::other(format!(
            "it is neither a table of lines nor an intact MaxMind DB (an archive must be unpacked): {error}"
        ))
    })?;
    let damaged = |error: MaxMindDbError| io::Error::other(format!("the MaxMind DB is damaged: {error}"));
    // A tree has as many ends as nodes and one. In a damaged one, branches may grow together.
    let mut ends_left = u64::from(reader.metadata().node_count) + 1;
    let options = WithinOptions::default().include_networks_without_data();
    let mut rules: HashMap<usize, Option<u8>> = HashMap::new();
    for found in reader.networks(options).map_err(damaged)? {
        let found = found.map_err(damaged)?;
        ends_left = ends_left.checked_sub(1).ok_or_else(|| {
            io::Error::other("the MaxMind DB is damaged: branches of its tree grow together")
        })?;
        let Some(offset) = found.offset() else { continue };
        let rule = match rules.get(&offset) {
            Some(rule) => *rule,
            None => {
                if !share.need(RULE_BYTES) {
                    share.check().map_err(io::Error::other)?;
                }
                let record: Option<Record<'_>> = found.decode().map_err(damaged)?;
                let rule = record.and_then(|record| {
                    let code = record.country.and_then(|country| country.iso_code);
                    named.rule_of(record.autonomous_system_number, code.and_then(country))
                });
                *rules.entry(offset).or_insert(rule)
            }
        };
        if let Some(rule) = rule {
            let network = found.network().map_err(damaged)?;
            if let Some(network) = Network::new(network.ip(), network.prefix()) {
                networks.push_ruled(network, rule);
            }
        }
    }
    Ok(reader.metadata().build_epoch)
}

fn read_lines(text: &mut Text<'_>, named: &NamedNetworks, owners: &mut Owners) -> io::Result<()> {
    let mut lines = Lines::after(0, LINE_BYTES_MAX);
    let (mut fault, Owners { networks, faults, .. }) = (None, owners);
    let mut each = |number: u64, line: &[u8]| match parse_line(line) {
        Ok(None) => {}
        Ok(Some(line)) => {
            faults.count();
            if let Some(rule) = named.rule_of(line.system, line.country) {
                line.networks.for_each(&mut |network| networks.push_ruled(network, rule));
            }
        }
        // The names of the columns.
        Err(_) if number == 1 => fault = other_table(line),
        Err(error) => faults.add(number, error),
    };
    text.for_each_piece(|piece| {
        lines.push(piece, &mut each);
        true
    })?;
    lines.finish(&mut each);
    fault.map_or(Ok(()), |fault| Err(io::Error::other(fault)))
}

/// A line of a table.
struct Line {
    networks: Networks,
    system: Option<u32>,
    country: Option<[u8; 2]>,
}

enum Networks {
    One(Network),
    Range(IpAddr, IpAddr),
}

impl Networks {
    fn for_each(self, each: &mut dyn FnMut(Network)) {
        match self {
            Self::One(network) => each(network),
            Self::Range(first, last) => Network::range(first, last).into_iter().flatten().for_each(each),
        }
    }
}

/// Parses a line. Returns `None` for an empty line or a comment.
fn parse_line(line: &[u8]) -> Result<Option<Line>, &'static str> {
    if line.len() > LINE_BYTES_MAX {
        return Err("the line is too long");
    }
    let text = decode(line);
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    let separator = if text.contains('\t') { '\t' } else { ',' };
    let mut fields = text.split(separator).map(|field| field.trim().trim_matches('"'));
    let mut next = || fields.next().unwrap_or_default();
    let first = next();
    let networks = match first.split_once('/') {
        Some((ip, length)) => {
            let network = address(ip).zip(length.parse().ok());
            let network = network.and_then(|(ip, length)| Network::new(ip, length));
            Networks::One(network.ok_or("the network is wrong")?)
        }
        None => {
            let first = address(first).ok_or("expected a network, or a first and a last address")?;
            let (first, last) = range(first, address(next()).ok_or("the range has no last address")?)?;
            Networks::Range(first, last)
        }
    };
    let owner = next();
    let digits = owner.strip_prefix("AS").unwrap_or(owner);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        // Tables that name no country of a network leave it empty, or write a text that is no code.
        return Ok(Some(Line { networks, system: None, country: country(owner) }));
    }
    let system = digits.parse().map_err(|_| "the number of the autonomous system is too large")?;
    // In lines with commas, the name of the owner follows, which may look like a country.
    let country = if separator == '\t' { country(next()) } else { None };
    Ok(Some(Line { networks, system: Some(system), country }))
}

/// Returns why a table with this first line cannot be read at all, if so.
fn other_table(header: &[u8]) -> Option<&'static str> {
    let has = |name: &[u8]| header.windows(name.len()).any(|window| window.eq_ignore_ascii_case(name));
    if has(b"geoname_id") {
        Some("it names countries by numbers of another table; use the MaxMind DB (.mmdb) in its place")
    } else if has(b"<html") || has(b"<!doctype") {
        Some("it is a web page")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;
    use crate::networks::{Answer, NetworkTable};
    use crate::rules::Rule;

    fn named(rules: &[&str]) -> NamedNetworks {
        let rules: Vec<Rule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        NamedNetworks::of(&rules)
    }

    fn read(table: &[u8], rules: &[&str]) -> io::Result<Owners> {
        let mut body = table;
        read_owners(&mut body, u64::MAX, &named(rules), &Budget::default())
    }

    /// Returns the networks with their rules.
    fn ruled(table: &[u8], rules: &[&str]) -> Vec<String> {
        let owners = read(table, rules).unwrap();
        assert_eq!(owners.faults.faulty, 0, "{}", owners.faults);
        owners.networks.ruled().map(|(network, rule)| format!("{network} {rule}")).collect()
    }

    #[test]
    fn the_lines_of_every_table_are_read() {
        let rules = ["as 64512 drop", "country ZZ drop"];
        for (table, expected) in [
            ("192.0.2.0,192.0.2.255,64512,\"Some Company, Inc.\"", "192.0.2.0/24 0"),
            ("\"192.0.2.0\",\"192.0.2.255\",\"ZZ\"", "192.0.2.0/24 1"),
            ("2001:db8::,2001:db8::ffff,zz", "2001:db8::/112 1"),
            ("192.0.2.0/24,64512,\"ZZ\"", "192.0.2.0/24 0"),
            ("192.0.2.0/24,AS64512,Company", "192.0.2.0/24 0"),
            ("192.0.2.0\t192.0.2.127\t64513\tZZ\tSome Company", "192.0.2.0/25 1"),
            ("192.0.2.0\t192.0.2.127\tZZ", "192.0.2.0/25 1"),
        ] {
            let others = "10.0.0.0,10.0.0.255,7,ZZ\n10.1.0.0\t10.1.0.255\t0\tNone\tNot routed\n\n# ends\n";
            let header = "network,autonomous_system_number,autonomous_system_organization\r\n";
            for table in [format!("{table}\n{others}"), format!("{header}{others}{table}")] {
                assert_eq!(ruled(table.as_bytes(), &rules), [expected], "{table}");
            }
        }
    }

    #[test]
    fn faulty_lines_are_named_and_other_tables_are_refused() {
        let table =
            "1.0.0.0,1.0.0.255,1,x\nmess\n1.0.2.0,1.0.1.0,1\n1.0.0.0/33,1\n1.0.0.0,,1\n1.0.3.0/24,1,x\n";
        let owners = read(table.as_bytes(), &["as 1 drop"]).unwrap();
        let lines: Vec<u64> = owners.faults.named.iter().map(|fault| fault.line).collect();
        assert_eq!((&lines[..], owners.faults.lines, owners.networks.len()), (&[2, 3, 4, 5][..], 6, 2));
        let error =
            read(b"network,geoname_id,registered_country_geoname_id\n1.0.0.0/24,1,1\n", &["as 1 drop"]);
        assert!(error.unwrap_err().to_string().contains("use the MaxMind DB"));
    }

    /// Returns a MaxMind DB with records of 24 bits (https://maxmind.github.io/MaxMind-DB), in which each of these IPv4
    /// networks has an autonomous system and a country.
    fn database(networks: &[(Network, u32, &str)]) -> Vec<u8> {
        // The nodes have the number of a node, or of a record after all nodes.
        let mut nodes = vec![[None; 2]];
        let mut leaves = Vec::new();
        for (number, (network, ..)) in networks.iter().enumerate() {
            let IpAddr::V4(ip) = network.first() else { panic!("the tree is of IPv4") };
            let mut node = 0;
            for depth in 0..network.prefix_length() {
                let bit = (u32::from(ip) >> (31 - depth) & 1) as usize;
                if depth + 1 == network.prefix_length() {
                    leaves.push((node, bit, number));
                } else {
                    let new = nodes.len();
                    let next = *nodes[node][bit].get_or_insert(new);
                    if next == new {
                        nodes.push([None; 2]);
                    }
                    node = next;
                }
            }
        }
        let (text, count) = (
            |text: &str| [&[0x40 | u8::try_from(text.len()).unwrap()], text.as_bytes()].concat(),
            nodes.len(),
        );
        let (mut data, mut offsets) = (Vec::new(), Vec::new());
        for (_, system, country) in networks {
            offsets.push(data.len());
            data.push(0xe2);
            data.extend(
                [text("autonomous_system_number"), vec![0xc4], system.to_be_bytes().to_vec()].concat(),
            );
            data.extend([text("country"), vec![0xe1], text("iso_code"), text(country)].concat());
        }
        let mut records: Vec<[usize; 2]> =
            nodes.iter().map(|node| node.map(|next| next.unwrap_or(count))).collect();
        for (node, bit, number) in leaves {
            records[node][bit] = count + 16 + offsets[number];
        }
        let mut database: Vec<u8> = records
            .iter()
            .flatten()
            .flat_map(|record| u32::try_from(*record).unwrap().to_be_bytes()[1..].to_vec())
            .collect();
        database.extend([[0; 16].as_slice(), &data, b"\xab\xcd\xefMaxMind.com\xe9"].concat());
        for (key, value) in [
            ("binary_format_major_version", vec![0xa1, 2]),
            ("binary_format_minor_version", vec![0xa1, 0]),
            ("build_epoch", vec![0x04, 0x02, 0x60, 0, 0, 0]),
            ("database_type", text("Test")),
            ("description", vec![0xe0]),
            ("ip_version", vec![0xa1, 4]),
            ("languages", vec![0x00, 0x04]),
            ("node_count", [vec![0xc4], u32::try_from(count).unwrap().to_be_bytes().to_vec()].concat()),
            ("record_size", vec![0xa1, 24]),
        ] {
            database.extend([text(key), value].concat());
        }
        database
    }

    fn network(text: &str) -> Network {
        let (ip, length) = text.split_once('/').unwrap();
        Network::new(ip.parse().unwrap(), length.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_maxmind_database_is_read() {
        let database = database(&[
            (network("192.0.2.0/24"), 64512, "AA"),
            (network("198.51.100.0/24"), 7, "ZZ"),
            (network("203.0.113.0/25"), 8, "BB"),
        ]);
        let rules = ["country ZZ drop", "as 64512 drop"];
        assert_eq!(ruled(&database, &rules), ["192.0.2.0/24 1", "198.51.100.0/24 0"]);
        assert_eq!(read(&database, &rules).unwrap().built_unix_s, Some(0x6000_0000));
    }

    #[test]
    fn a_damaged_database_is_refused_and_does_no_harm() {
        let whole = database(&[(network("192.0.2.0/24"), 64512, "AA"), (network("10.0.0.0/8"), 7, "ZZ")]);
        let rules = ["as 64512 drop", "country ZZ drop"];
        assert_eq!(ruled(&whole, &rules).len(), 2);
        for end in 1..whole.len() {
            // Cut off at the end, which has the metadata.
            assert!(read(&whole[..end], &rules).is_err(), "{end}");
        }
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..20_000 {
            let mut damaged = whole.clone();
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(1..damaged.len());
                damaged[at] = rng.u8(..);
            }
            // It may still be one.
            let _ = read(&damaged, &rules);
        }
        // The first node leads to itself, on one side and on both.
        for sides in [1, 2] {
            let mut cyclic = whole.clone();
            cyclic[..3 * sides].fill(0);
            assert!(read(&cyclic, &rules).is_err());
        }
    }

    #[test]
    fn a_table_that_does_not_fit_is_refused() {
        let table: String =
            (0..100_000_u32).map(|number| format!("{}/32,64512\n", Ipv4Addr::from(number * 2))).collect();
        let budget = Budget::new(1 << 20);
        let named = named(&["as 64512 drop"]);
        let error = read_owners(&mut table.as_bytes(), u64::MAX, &named, &budget).unwrap_err();
        assert!(error.to_string().contains("need 7 MiB"), "{error}");
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn a_million_networks_take_at_most_24_bytes_each() {
        let mut table = String::new();
        for number in 0..500_000_u32 {
            // Not adjacent, so that each of them counts.
            let v4 = Ipv4Addr::from(0x0100_0000 + (number << 9));
            let v6 = core::net::Ipv6Addr::from(0x2001 << 112 | u128::from(number) << 81);
            table += &format!("{v4}/24,64512,x\n{v6}/48,64513,x\n");
        }
        let owners = read(table.as_bytes(), &["as 64512 drop", "as 64513 interval 60"]).unwrap();
        assert_eq!(owners.networks.len(), 1_000_000);
        let none = || core::iter::empty();
        let networks =
            NetworkTable::with_rules(None::<core::iter::Empty<_>>, none(), owners.networks.ruled());
        let bytes = networks.memory_bytes();
        assert!(bytes <= 24 * 1_000_000, "{bytes} bytes");
        for (ip, answer) in [("1.0.0.255", 0), ("1.0.2.1", 0), ("2001::1", 1), ("2001:0:0002::1", 1)] {
            assert_eq!(networks.answer(ip.parse().unwrap()), Answer::Rule(answer), "{ip}");
        }
        assert_eq!(networks.answer("1.0.1.0".parse().unwrap()), Answer::Served);
        // IPv6 changes take the most.
        let v6 = || owners.networks.ruled().filter(|(network, _)| network.is_v6);
        let networks = NetworkTable::with_rules(None::<core::iter::Empty<_>>, none(), v6());
        assert!(networks.memory_bytes() <= 24 * 500_000, "{} bytes", networks.memory_bytes());
    }
}
