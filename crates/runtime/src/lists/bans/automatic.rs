//! The bans that sources have earned.
//!
//! Each further ban of a source takes twice as long as the one before. So a ban that has ended is kept for as long as a
//! ban may take, without effect. The number of bans is bounded: a new one takes the place of the one that ends first,
//! which is usually one that has ended already. `shoal_engine::watch` says who earns a ban.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use shoal_access::networks::{Network, NetworkTable};
use shoal_config::{BansConfig, Config};
use shoal_engine::watch::{self, Suspect};

use super::{Ban, EARNED_BAN_BYTES, network};

/// The author of bans that sources have earned.
pub(in crate::lists) const BY: &str = "automatic";

/// Returns whether the source has earned a ban, and no operator has set it.
pub(in crate::lists) fn is_automatic(ban: &Ban) -> bool {
    ban.by == BY
}

/// Returns the networks of those bans of `before` that sources have earned, whose time is not over, and that `after`
/// lacks.
pub(in crate::lists) fn lifted_between(before: &[Ban], after: &[Ban], now_unix_s: u64) -> BTreeSet<IpNet> {
    let after: BTreeSet<IpNet> = after.iter().map(|ban| ban.network).collect();
    let earned = before.iter().filter(|ban| is_automatic(ban) && end(ban) > now_unix_s);
    earned.map(|ban| ban.network).filter(|network| !after.contains(network)).collect()
}

/// The bans, present and former.
#[derive(Debug, Default)]
pub(in crate::lists) struct AutomaticBans {
    bans: BTreeMap<IpNet, Ban>,
    /// The ends of all of them, in order.
    ends: BTreeSet<End>,
    /// The present ones.
    active: usize,
    settings: BansConfig,
    /// The maximum number that memory allows, if that is limited.
    affordable: Option<usize>,
    /// The networks that are never banned.
    spared: Vec<Network>,
    /// Whether the file lacks some of them.
    pub(super) is_unwritten: bool,
}

/// When a ban ends. Of bans that end in the same second, the one of a site comes after those of its networks. An IPv4
/// address is as narrow as an IPv6 /64.
type End = (u64, Reverse<u8>, IpNet);

fn end_of(ban: &Ban) -> End {
    let width = if ban.network.addr().is_ipv4() { 64 } else { ban.network.prefix_len() };
    (end(ban), Reverse(width), ban.network)
}

fn end(ban: &Ban) -> u64 {
    ban.until_unix_s.unwrap_or(u64::MAX)
}

impl AutomaticBans {
    /// Adopts the settings. Bans beyond a new maximum go.
    pub(in crate::lists) fn configure(&mut self, config: &Config, now_unix_s: u64) {
        self.settings = config.bans.clone();
        self.spared = watch::spared(config);
        if !self.settings.automatic && !self.bans.is_empty() {
            (self.bans, self.ends) = Default::default();
            self.is_unwritten = true;
        }
        while self.bans.len() > self.bans_max() {
            self.remove_first();
        }
        self.count_active(now_unix_s);
    }

    /// Limits the memory of all bans from the next [`configure`](Self::configure) on.
    pub(in crate::lists) fn limit(&mut self, bytes_max: u64) {
        self.affordable = usize::try_from(bytes_max / EARNED_BAN_BYTES).ok();
    }

    fn bans_max(&self) -> usize {
        let sources_max = self.settings.sources_max as usize;
        self.affordable.map_or(sources_max, |affordable| affordable.min(sources_max))
    }

    /// Adds bans of the file. With `bans.automatic = false`, they go.
    pub(super) fn add_all(&mut self, bans: Vec<Ban>, now_unix_s: u64) {
        if self.settings.automatic {
            bans.into_iter().for_each(|ban| self.insert(ban));
        } else if !bans.is_empty() {
            // The file still has them.
            self.is_unwritten = true;
        }
        self.count_active(now_unix_s);
    }

    /// Bans a suspect, unless it is banned or spared. Returns its ban. After some of them, the caller calls
    /// [`count_active`](Self::count_active), which looks at all bans.
    pub(in crate::lists) fn ban(&mut self, suspect: &Suspect, now_unix_s: u64) -> Option<Ban> {
        let BansConfig { first_s, longest_s, automatic, .. } = self.settings;
        if !automatic || self.spared.iter().any(|network| network.contains(suspect.ip)) {
            return None;
        }
        let network = IpNet::new(suspect.ip, suspect.prefix_length).ok()?.trunc();
        let duration_s = match self.bans.get(&network) {
            Some(ban) if end(ban) > now_unix_s => return None,
            Some(former) => end(former).saturating_sub(former.since_unix_s).saturating_mul(2),
            None => first_s.into(),
        };
        let duration_s = duration_s.clamp(first_s.into(), longest_s.max(first_s).into());
        let ban = Ban {
            network,
            reason: suspect.cause.reason().to_owned(),
            by: BY.to_owned(),
            since_unix_s: now_unix_s,
            until_unix_s: Some(now_unix_s.saturating_add(duration_s)),
        };
        self.insert(ban.clone());
        self.is_unwritten = true;
        Some(ban)
    }

    fn insert(&mut self, ban: Ban) {
        self.remove(&ban.network);
        while self.bans.len() >= self.bans_max() && !self.bans.is_empty() {
            self.remove_first();
        }
        self.ends.insert(end_of(&ban));
        self.bans.insert(ban.network, ban);
    }

    fn remove(&mut self, network: &IpNet) -> Option<Ban> {
        let ban = self.bans.remove(network)?;
        self.ends.remove(&end_of(&ban));
        Some(ban)
    }

    fn remove_first(&mut self) {
        if let Some((_, _, network)) = self.ends.pop_first() {
            self.bans.remove(&network);
        }
    }

    /// Lifts the bans of networks, and forgets that there were any. Returns them, with those that had ended already.
    pub(in crate::lists) fn lift(&mut self, networks: &BTreeSet<IpNet>, now_unix_s: u64) -> Vec<Ban> {
        let lifted: Vec<Ban> = networks.iter().filter_map(|network| self.remove(network)).collect();
        self.is_unwritten |= !lifted.is_empty();
        self.count_active(now_unix_s);
        lifted
    }

    /// Lifts all bans, and forgets them. Returns them, with those that had ended already.
    pub(in crate::lists) fn lift_all(&mut self) -> Vec<Ban> {
        self.expect_write();
        (self.ends, self.active) = (BTreeSet::new(), 0);
        core::mem::take(&mut self.bans).into_values().collect()
    }

    /// Notes that the file lacks all bans, or has other ones.
    pub(super) fn expect_write(&mut self) {
        self.is_unwritten |= !self.bans.is_empty();
    }

    /// Forgets bans that have ended long ago. Returns whether any has ended since the last call.
    pub(super) fn expire(&mut self, now_unix_s: u64) -> bool {
        let forgotten = now_unix_s.saturating_sub(self.settings.longest_s.into());
        while self.ends.first().is_some_and(|(end, ..)| *end <= forgotten) {
            self.remove_first();
        }
        let before = self.active;
        self.count_active(now_unix_s);
        self.active != before
    }

    /// Counts the bans that apply now.
    pub(in crate::lists) fn count_active(&mut self, now_unix_s: u64) {
        self.active = self.active(now_unix_s).count();
    }

    /// Returns the bans that apply, the one that ends first as the first.
    pub(in crate::lists) fn active(&self, now_unix_s: u64) -> impl Iterator<Item = &Ban> {
        let first = now_unix_s.saturating_add(1);
        let ends = self.ends.iter().skip_while(move |(end, ..)| *end < first);
        ends.filter_map(|(_, _, network)| self.bans.get(network))
    }

    /// Returns the number of bans that applied at the last change.
    pub(in crate::lists) const fn active_count(&self) -> usize {
        self.active
    }

    /// Returns all bans, and those that have ended but still count.
    pub(super) fn all(&self) -> impl Iterator<Item = &Ban> {
        self.bans.values()
    }

    /// Returns the bans of an address, present and former.
    pub(in crate::lists) fn around(&self, ip: IpAddr) -> impl Iterator<Item = &Ban> {
        let ip = ip.to_canonical();
        let lengths: &[u8] = if ip.is_ipv4() { &[32] } else { &[64, 56, 48] };
        let networks = lengths.iter().filter_map(move |length| Some(IpNet::new(ip, *length).ok()?.trunc()));
        networks.filter_map(|network| self.bans.get(&network))
    }

    /// Returns the present ban of an address that ends last.
    pub(super) fn of(&self, ip: IpAddr, now_unix_s: u64) -> Option<&Ban> {
        self.around(ip).filter(|ban| end(ban) > now_unix_s).max_by_key(|ban| end(ban))
    }

    /// Returns when the next ban ends, in seconds since 1970, of those that applied at the last change.
    pub(super) fn next_end(&self) -> u64 {
        let ended = self.ends.len() - self.active;
        self.ends.iter().nth(ended).map_or(u64::MAX, |(end, ..)| *end)
    }

    /// Returns the table of all present bans and of the `shared` ones, or `None` if there are none, or none apply.
    pub(in crate::lists) fn table<'b>(
        &'b self,
        shared: impl Iterator<Item = &'b Ban>,
        now_unix_s: u64,
    ) -> Option<NetworkTable> {
        if !self.settings.automatic {
            return None;
        }
        let is_spared = |banned: &Network| self.spared.iter().any(|network| network.contains(banned.first()));
        let bans = self.active(now_unix_s).chain(shared).map(network);
        let mut bans = bans.filter(|banned| !is_spared(banned)).peekable();
        bans.peek()?;
        // A spared network within a banned one has the longer prefix.
        let all = [IpAddr::from([0_u8; 4]), IpAddr::from([0_u16; 8])];
        let all = all.into_iter().filter_map(|ip| Network::new(ip, 0));
        Some(NetworkTable::of(Some(all.chain(self.spared.iter().copied())), bans))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_engine::watch::Cause;

    fn bans(change: impl FnOnce(&mut Config)) -> AutomaticBans {
        let mut config = Config::default();
        change(&mut config);
        let mut bans = AutomaticBans::default();
        bans.configure(&config, 0);
        bans
    }

    fn suspect(ip: &str, prefix_length: u8) -> Suspect {
        Suspect { ip: ip.parse().unwrap(), prefix_length, cause: Cause::Malformed }
    }

    #[test]
    fn each_further_ban_takes_twice_as_long_until_a_source_was_good_for_long() {
        let mut bans = bans(|config| (config.bans.first_s, config.bans.longest_s) = (100, 350));
        let mut now_s = 1000;
        for duration_s in [100, 200, 350, 350] {
            let ban = bans.ban(&suspect("192.0.2.1", 32), now_s).unwrap();
            assert_eq!((ban.since_unix_s, ban.until_unix_s), (now_s, Some(now_s + duration_s)));
            assert_eq!(bans.ban(&suspect("192.0.2.1", 32), now_s), None, "it is banned");
            bans.count_active(now_s);
            assert_eq!((bans.active_count(), bans.next_end()), (1, now_s + duration_s));
            assert!(!bans.expire(now_s + duration_s - 1) && bans.expire(now_s + duration_s));
            assert_eq!((bans.active_count(), bans.next_end()), (0, u64::MAX));
            now_s += duration_s;
        }
        assert!(!bans.expire(now_s + 350));
        assert_eq!(bans.ban(&suspect("192.0.2.1", 32), now_s + 350).unwrap().until_unix_s, Some(now_s + 450));
    }

    #[test]
    fn bans_of_a_file_and_of_other_nodes_do_not_apply_where_they_are_turned_off() {
        let earned = bans(|_| ()).ban(&suspect("192.0.2.1", 32), 10).unwrap();
        for automatic in [true, false] {
            let mut bans = bans(|config| config.bans.automatic = automatic);
            bans.add_all(vec![earned.clone()], 10);
            assert_eq!((bans.all().count(), bans.is_unwritten), (usize::from(automatic), !automatic));
            let shared = [earned.clone()];
            assert_eq!(bans.table(shared.iter(), 10).is_some(), automatic);
        }
    }

    #[test]
    fn a_full_table_stays_full_and_loses_the_ban_that_ends_first() {
        const BANS_MAX: u32 = 1000;
        let mut bans = bans(|config| config.bans.sources_max = BANS_MAX);
        // Every /64 of some /48 in turn, as a flood of prefixes can prove them.
        for number in 0..5000_u32 {
            let ip = format!("2001:db8:{:x}:{:x}::", number / 100, number % 100);
            assert!(bans.ban(&suspect(&ip, 64), 1000 + u64::from(number)).is_some());
            assert_eq!(bans.bans.len(), bans.ends.len());
            assert!(bans.bans.len() <= BANS_MAX as usize);
        }
        assert_eq!(bans.of("2001:db8:0:1::1".parse().unwrap(), 1000), None);
        assert!(bans.of("2001:db8:31:63::1".parse().unwrap(), 6000).is_some());
        // In the same second, the ban of a site outlasts those of its networks.
        bans.ban(&suspect("2001:db8:ffff::", 48), 9000).unwrap();
        for number in 0..2 * BANS_MAX {
            bans.ban(&suspect(&format!("2001:db8:ffff:{number:x}::"), 64), 9000).unwrap();
        }
        assert!(bans.of("2001:db8:ffff:ffff::1".parse().unwrap(), 9000).is_some());
        // A smaller maximum applies at once.
        let mut config = Config::default();
        config.bans.sources_max = 10;
        bans.configure(&config, 6000);
        assert_eq!((bans.bans.len(), bans.active_count()), (10, 10));
        bans.limit(5 * EARNED_BAN_BYTES);
        bans.configure(&config, 6000);
        assert_eq!((bans.bans.len(), bans.active_count()), (5, 5));
    }

    #[test]
    fn spared_networks_are_never_banned_and_neighbours_are_served() {
        let mut bans = bans(|config| {
            config.limits.exempt = vec!["198.51.100.0/24".parse().unwrap()];
            config.limits.exempt.push("2001:db8:0:7::/64".parse().unwrap());
        });
        for spared in ["198.51.100.9", "127.0.0.1", "10.1.2.3", "::1", "fd00::1"] {
            assert_eq!(bans.ban(&suspect(spared, 32), 10), None, "{spared}");
        }
        bans.ban(&suspect("2001:db8::", 48), 10).unwrap();
        bans.ban(&suspect("2001:db8:1:1::", 64), 10).unwrap();
        bans.ban(&suspect("192.0.2.1", 32), 10).unwrap();
        let table = bans.table(core::iter::empty(), 10).unwrap();
        for (ip, is_served) in [
            ("2001:db8:0:6::1", false),
            ("2001:db8:0:7::1", true),
            ("2001:db8:1::1", true),
            ("2001:db8:1:1::1", false),
            ("2001:db8:1:2::1", true),
            ("192.0.2.1", false),
            ("192.0.2.2", true),
            ("0.0.0.1", true),
        ] {
            assert_eq!(table.serves(ip.parse().unwrap()), is_served, "{ip}");
        }
        let around = |bans: &AutomaticBans, ip: &str| -> BTreeSet<IpNet> {
            bans.around(ip.parse().unwrap()).map(|ban| ban.network).collect()
        };
        let networks = around(&bans, "2001:db8:1:1::5");
        assert_eq!(networks, BTreeSet::from(["2001:db8:1:1::/64".parse::<IpNet>().unwrap()]));
        assert_eq!((bans.lift(&networks, 10).len(), bans.lift(&networks, 10).len()), (1, 0));
        // A former ban is forgotten as well.
        let networks = around(&bans, "192.0.2.1");
        assert_eq!(bans.lift(&networks, u64::MAX).len(), 1);
        assert_eq!((bans.lift_all().len(), bans.lift_all().len()), (1, 0));
        assert!(bans.table(core::iter::empty(), 10).is_none());
    }

    #[test]
    fn a_shared_ban_that_goes_before_its_end_was_lifted() {
        let earned = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|ip| {
            let since_s = if ip.ends_with('1') { 0 } else { 1000 };
            bans(|config| config.bans.first_s = 100).ban(&suspect(ip, 32), since_s).unwrap()
        });
        let mut before = earned.to_vec();
        before.push(Ban {
            network: "192.0.2.4/32".parse().unwrap(),
            by: "kim".to_owned(),
            ..earned[1].clone()
        });
        let lifted = lifted_between(&before, &earned[2..], 1050);
        assert_eq!(lifted, BTreeSet::from([earned[1].network]));
    }
}
