use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use shoal_config::BansConfig;

use super::*;
use crate::context::Context;
use crate::counter::Tally;
use crate::policy::{Policy, Protocol};

const SECRET: [u64; 4] =
    [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89];

fn config(change: impl FnOnce(&mut BansConfig)) -> Config {
    let mut config = Config::default();
    change(&mut config.bans);
    config
}

fn watch(change: impl FnOnce(&mut BansConfig)) -> Watch {
    Watch::of(&config(change), &Arc::new(SourceRates::new(SECRET))).unwrap()
}

fn at_ms(monotonic_ms: u64) -> Now {
    Now { monotonic_ms: 1_000_000 + monotonic_ms, ..Now::default() }
}

/// Returns the suspects, as `2001:db8::/64 torrents`.
fn suspects(watch: &Watch) -> Vec<String> {
    let suspects = watch.sources().take_suspects().into_iter();
    suspects
        .map(|Suspect { ip, prefix_length, cause }| format!("{ip}/{prefix_length} {}", cause.name()))
        .collect()
}

fn joining() -> Sighting<'static> {
    Sighting::Announce { has_joined: true, peer: None }
}

#[test]
fn each_cause_earns_a_ban_beyond_its_number_and_zero_turns_it_off() {
    let least: fn(&mut BansConfig) = |bans| {
        (bans.malformed_per_min, bans.bad_tokens_per_min, bans.torrents_per_h) = (5, 6, 7);
        (bans.over_limit_s, bans.peer_ids_per_h) = (4, 0);
    };
    let ip = "192.0.2.1".parse().unwrap();
    for (sighting, count, cause) in [
        (Sighting::Malformed, 5, "malformed"),
        (Sighting::BadToken, 6, "bad_token"),
        (joining(), 7, "torrents"),
        // A limit of ten requests a second: three quarters of those of four seconds.
        (Sighting::OverLimit(Rate::new(10, 1)), 30, "over_limit"),
    ] {
        let (watch, off) = (watch(least), watch(|bans| *bans = BansConfig { automatic: true, ..off() }));
        for _ in 0..count {
            watch.observe(ip, sighting, 1, at_ms(0));
            off.observe(ip, sighting, 1000, at_ms(0));
        }
        assert!(suspects(&watch).is_empty() && suspects(&off).is_empty(), "{cause}");
        watch.observe(ip, sighting, 1, at_ms(0));
        assert_eq!(suspects(&watch), [format!("192.0.2.1/32 {cause}")]);
        watch.observe(ip, sighting, 1, at_ms(499));
        assert!(suspects(&watch).is_empty(), "{cause}: it was just told");
        watch.observe(ip, sighting, 1, at_ms(500));
        assert_eq!(suspects(&watch).len(), 1, "{cause}");
        // A lifted ban does not return at once.
        watch.sources().forgive(ip, 32);
        watch.observe(ip, sighting, 1, at_ms(1000));
        assert!(suspects(&watch).is_empty(), "{cause}");
    }
}

fn off() -> BansConfig {
    BansConfig {
        over_limit_s: 0,
        malformed_per_min: 0,
        bad_tokens_per_min: 0,
        torrents_per_h: 0,
        peer_ids_per_h: 0,
        ..BansConfig::default()
    }
}

#[test]
fn nothing_earns_a_ban_without_automatic_bans() {
    let config = config(|bans| bans.automatic = false);
    assert!(Watch::of(&config, &Arc::new(SourceRates::new(SECRET))).is_none());
}

#[test]
fn a_source_is_over_its_limit_for_as_long_as_the_key_says() {
    for (per_s, expected_s) in [(10, None), (12, None), (20, Some(300)), (100, Some(26))] {
        let (watch, limit) = (watch(|_| {}), Rate::new(10, 1));
        let refused = |s: u64| {
            let beyond_per_s = per_s - 10;
            (0..beyond_per_s).for_each(|number| {
                let now = at_ms(s * 1000 + number * 1000 / beyond_per_s);
                watch.observe("192.0.2.1".parse().unwrap(), Sighting::OverLimit(limit), 1, now);
            });
            !suspects(&watch).is_empty()
        };
        let banned_s = (0..2000).find(|s| refused(*s));
        assert!(
            banned_s.unwrap_or(0).abs_diff(expected_s.unwrap_or(0)) <= 2,
            "{per_s} a second: {banned_s:?}"
        );
        assert_eq!(banned_s.is_some(), expected_s.is_some());
    }
}

#[test]
fn exempt_networks_proxies_and_private_addresses_are_never_suspects() {
    let mut config = config(|bans| bans.malformed_per_min = 1);
    config.limits.exempt = vec!["198.51.100.0/24".parse().unwrap()];
    config.proxy.trusted = vec![Trusted::Network("203.0.113.0/24".parse().unwrap()), Trusted::Unix];
    let watch = Watch::of(&config, &Arc::new(SourceRates::new(SECRET))).unwrap();
    for ip in [
        "198.51.100.9",
        "203.0.113.9",
        "10.0.0.1",
        "172.17.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "127.0.0.1",
        "::1",
    ]
    .into_iter()
    .chain(["fe80::1", "fd00::1", "169.254.0.1"])
    {
        (0..5).for_each(|_| watch.observe(ip.parse().unwrap(), Sighting::Malformed, 1, at_ms(0)));
        assert!(suspects(&watch).is_empty(), "{ip}");
    }
    (0..2).for_each(|_| watch.observe("198.51.101.9".parse().unwrap(), Sighting::Malformed, 1, at_ms(0)));
    assert_eq!(suspects(&watch), ["198.51.101.9/32 malformed"]);
    // As the policy knows private addresses, so do the networks that are spared.
    for ip in [
        "10.255.255.255",
        "172.31.0.1",
        "172.32.0.1",
        "100.127.0.1",
        "100.128.0.1",
        "febf::1",
        "fec0::1",
        "fe00::1",
    ] {
        let ip: IpAddr = ip.parse().unwrap();
        let is_spared = spared(&Config::default()).iter().any(|network| network.contains(ip));
        assert_eq!(is_spared, address::private_network(ip).is_some(), "{ip}");
    }
}

/// A naive bucket of each network and cause, and when each network was told.
#[derive(Default)]
struct Oracle(BTreeMap<(u128, u32, usize), (f64, u64)>, BTreeMap<(u128, u32), u64>);

impl Oracle {
    /// Takes a token from all networks of an address, or finds the widest one that has none.
    fn observe(
        &mut self,
        ip: Ipv6Addr,
        cause: Cause,
        count: u32,
        period_s: f64,
        now_ms: u64,
    ) -> Option<String> {
        let networks = [(64, 1.0), (56, 2.0), (48, 8.0)].map(|(bits, shares)| {
            let first = u128::from(ip) >> (128 - bits) << (128 - bits);
            let full = f64::from(count) * shares;
            let (tokens, then_ms) = self.0.entry((first, bits, cause as usize)).or_insert((full, now_ms));
            *tokens = (*tokens + full * ((now_ms - *then_ms) as f64 / 1000.0) / period_s).min(full);
            *then_ms = now_ms;
            ((first, bits, cause as usize), full, *tokens)
        });
        match networks.iter().rev().find(|(_, _, tokens)| *tokens < 1.0 - 1e-6) {
            None => {
                networks.iter().for_each(|(key, ..)| self.0.get_mut(key).unwrap().0 -= 1.0);
                None
            }
            Some(((first, bits, cause), ..)) => {
                let told = self.1.insert((*first, *bits), now_ms) == Some(now_ms);
                (!told).then(|| format!("{}/{bits} {}", Ipv6Addr::from(*first), Cause::ALL[*cause].name()))
            }
        }
    }
}

#[test]
fn suspects_are_those_of_a_naive_count_of_every_network() {
    let watch =
        watch(|bans| (bans.malformed_per_min, bans.bad_tokens_per_min, bans.torrents_per_h) = (6, 4, 1000));
    let (mut oracle, mut rng, mut now_ms) = (Oracle::default(), fastrand::Rng::with_seed(7), 0);
    let (mut seen, mut widths) = (0, BTreeSet::new());
    for _ in 0..40_000 {
        // Whole seconds, so that the sum of tokens has no rounding that matters.
        now_ms += 1000 * u64::from(rng.u8(..32) == 0);
        let site = rng.u128(..2) << 80;
        let subnet = if rng.bool() { rng.u128(..3) } else { rng.u128(..3000) };
        let ip = Ipv6Addr::from(0x2001_0db8 << 96 | site | subnet << 64 | rng.u128(..9));
        let (sighting, cause, count, period_s) = match rng.u8(..3) {
            0 => (Sighting::Malformed, Cause::Malformed, 6, 60.0),
            1 => (Sighting::BadToken, Cause::BadToken, 4, 60.0),
            _ => (joining(), Cause::Torrents, 1000, 3600.0),
        };
        watch.observe(ip.into(), sighting, 1, at_ms(now_ms));
        let expected: Vec<String> = oracle.observe(ip, cause, count, period_s, now_ms).into_iter().collect();
        let found = suspects(&watch);
        assert_eq!(found, expected, "{ip} {} at {now_ms} ms", cause.name());
        seen += found.len();
        widths.extend(found.iter().map(|found| found.split_once('/').unwrap().1[..2].to_owned()));
    }
    assert!(seen > 100, "{seen}");
    assert_eq!(widths, ["48", "56", "64"].map(str::to_owned).into());
}

#[test]
fn a_neighbour_in_the_next_network_does_not_suffer_but_many_of_them_do_together() {
    let watch = watch(|bans| bans.malformed_per_min = 10);
    let observe = |ip: &str, times| {
        (0..times).for_each(|_| watch.observe(ip.parse().unwrap(), Sighting::Malformed, 1, at_ms(0)));
    };
    observe("2001:db8:0:1::1", 1000);
    observe("2001:db8:0:2::1", 9);
    assert_eq!(suspects(&watch), ["2001:db8:0:1::/64 malformed"]);
    for number in 0..200 {
        observe(&format!("2001:db8:1:{number:x}00::1"), 2);
    }
    let found: BTreeSet<String> = suspects(&watch).into_iter().collect();
    assert_eq!(found, BTreeSet::from(["2001:db8:1::/48 malformed".to_owned()]));
}

#[test]
fn the_queue_of_suspects_is_bounded() {
    let watch = watch(|bans| bans.malformed_per_min = 1);
    let suspects_max = u32::try_from(SUSPECTS_MAX).unwrap();
    for number in 0..3 * suspects_max {
        let ip = Ipv4Addr::from(0x0b00_0000 + number).into();
        (0..2).for_each(|_| watch.observe(ip, Sighting::Malformed, 1, at_ms(0)));
    }
    assert_eq!(suspects(&watch).len(), SUSPECTS_MAX);
    // A source that found no room is a suspect again.
    let late = Ipv4Addr::from(0x0b00_0000 + 2 * suspects_max).into();
    watch.observe(late, Sighting::Malformed, 1, at_ms(500));
    assert_eq!(suspects(&watch).len(), 1);
}

#[test]
fn changes_of_peer_ids_are_those_of_a_map() {
    let (sources, mut rng) = (SourceRates::new(SECRET), fastrand::Rng::with_seed(8));
    let (mut map, mut wrong) = (HashMap::new(), 0);
    for _ in 0..100_000 {
        let ip: IpAddr = Ipv4Addr::from(0xc000_0200 | rng.u32(..4)).into();
        let (port, torrent, id) = (rng.u16(1..40), InfoHash([rng.u8(..20); 20]), PeerId([rng.u8(..2); 20]));
        let expected = map.insert((ip, port, torrent), id).is_some_and(|before| before != id);
        wrong += usize::from(sources.changes_peer_id((ip, port), &torrent, &id) != expected);
    }
    // 3,000 of 131,072 places: hardly any two share one.
    assert!(wrong < 2000, "{wrong} of 100,000");
}

/// The clients behind one address: each has 50 torrents, which it announces every half an hour. Three in ten have chosen
/// one of two usual ports, and the torrents of all are the same few thousand, the first ones most of all.
struct CarrierNat {
    clients: Vec<(u16, PeerId, Vec<u32>)>,
    /// The peers that the tracker knows.
    members: HashSet<(u16, u32)>,
}

impl CarrierNat {
    const CLIENTS: usize = 5000;
    const TORRENTS: usize = 50;

    fn new(rng: &mut fastrand::Rng) -> Self {
        let clients = (0..Self::CLIENTS).map(|number| {
            let port = match number % 10 {
                0 => 6881,
                1 | 2 => 51_413,
                _ => rng.u16(1024..),
            };
            // Low numbers are drawn more often.
            let torrents =
                (0..Self::TORRENTS).map(|_| (0..3).fold(20_000, |most, _| rng.u32(0..=most))).collect();
            (port, PeerId(core::array::from_fn(|_| rng.u8(..))), torrents)
        });
        Self { clients: clients.collect(), members: HashSet::new() }
    }

    /// Announces the torrent with a number among all of all clients.
    fn announce(&mut self, number: usize, context: &mut Context, now: Now) {
        let (client, torrent) = (number / Self::TORRENTS, number % Self::TORRENTS);
        let (port, peer_id, torrents) = &self.clients[client];
        let torrent = torrents[torrent];
        let mut info_hash = InfoHash([7; 20]);
        info_hash.0[..4].copy_from_slice(&torrent.to_be_bytes());
        let has_joined = self.members.insert((*port, torrent));
        let peer = Some((&info_hash, *port, peer_id));
        let drawn = context.gate.draw();
        context.observe_announce(NAT.into(), Sighting::Announce { has_joined, peer }, drawn, now);
    }
}

const NAT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn context(config: &Config) -> (Context, Arc<SourceRates>) {
    let sources = Arc::new(SourceRates::new(SECRET));
    let policy = Policy::new(config.clone()).with_watch(Watch::of(config, &sources));
    let rng = fastrand::Rng::with_seed(3);
    (Context::new(Protocol::Udp, Arc::new(policy), Tally::default(), rng), sources)
}

#[test]
fn five_thousand_clients_behind_one_address_earn_no_ban() {
    let (mut context, sources) = context(&config(|_| {}));
    let mut rng = fastrand::Rng::with_seed(9);
    let mut nat = CarrierNat::new(&mut rng);
    let all = CarrierNat::CLIENTS * CarrierNat::TORRENTS;
    // Each second of four hours has its part of all announces.
    for s in 0..4 * 3600_usize {
        // The tracker restarts after an hour and forgets all peers. After two, the carrier's line comes back, and all
        // clients announce everything within three minutes.
        if s == 3600 {
            nat.members.clear();
        }
        let part = if (7200..7380).contains(&s) { all.div_ceil(180) } else { all.div_ceil(1800) };
        for number in 0..part {
            nat.announce((s * part + number) % all, &mut context, at_ms(s as u64 * 1000));
        }
        assert_eq!(sources.take_suspects(), [], "after {s} seconds");
    }
}

#[test]
fn a_monitoring_firm_at_one_address_is_banned_within_minutes() {
    let (mut context, sources) = context(&config(|_| {}));
    let mut rng = fastrand::Rng::with_seed(10);
    // 1,000 announces a second in 5,000 torrents, each with a new peer id.
    let banned_s = (0..3600_u64).find(|s| {
        for _ in 0..1000 {
            let mut info_hash = InfoHash([7; 20]);
            info_hash.0[..4].copy_from_slice(&rng.u32(..5000).to_be_bytes());
            let peer_id = PeerId(core::array::from_fn(|_| rng.u8(..)));
            let peer = Some((&info_hash, 6881, &peer_id));
            let (announce, drawn) = (Sighting::Announce { has_joined: false, peer }, context.gate.draw());
            context.observe_announce(NAT.into(), announce, drawn, at_ms(s * 1000));
        }
        sources.take_suspects().iter().any(|suspect| suspect.cause == Cause::PeerIds)
    });
    assert!(banned_s.is_some_and(|banned_s| (200..600).contains(&banned_s)), "{banned_s:?}");
}
