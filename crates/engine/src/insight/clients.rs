//! The software of the clients of about the last hour, by its share of the announces.
//!
//! Each name has its own counter, so no client can displace a name. Versions share a table of 256 (space-saving) that
//! surely has each version with more than 1/256 of the announces. Counts decay by e in half an hour.

use crate::insight::sample::Sample;
use crate::insight::software::{Software, Version, identify};

/// The time in seconds after which an announce counts for 1/e: an hour ago, 14 % of a current one.
const DECAY_S: f64 = 1800.0;

/// Number of versions, over all software, that are counted.
const VERSIONS_MAX: usize = 256;

/// Maximum number of versions that are listed for each software.
const LISTED_VERSIONS_MAX: usize = 8;

/// Weights are scaled down after this many time constants, long before they overflow.
const SCALED_AFTER: f64 = 50.0;

/// Smaller shares are part of `other`.
const SHARE_MIN: f64 = 1e-5;

/// Decayed counts below this are zero.
const ANNOUNCES_MIN: f64 = 0.5;

/// The counts of announces by software and version.
///
/// Each name of a fixed list has a counter, so no client can displace a name. Clients choose their versions, which
/// share a table of 256. A new version takes the place of the least frequent one, together with its count (Metwally,
/// Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in data streams", 2005). So each
/// version with more than 1/256 of the announces is in the table, and a count is too large by at most 1/256 of them.
#[derive(Debug)]
pub struct Clients {
    software: Box<[f64]>,
    versions: Vec<VersionCount>,
    /// The time at which an announce has the weight 1. Later announces weigh more, so that earlier ones need no
    /// update.
    origin_s: u32,
}

#[derive(Clone, Copy, Debug)]
struct VersionCount {
    software: Software,
    version: Version,
    count: f64,
    /// The count of the displaced entry, by which this count may be too large.
    error: f64,
}

/// The share of one software.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientShare {
    /// The name, in ASCII.
    pub software: &'static str,
    /// Its share of all announces, from 0 to 1.
    pub share: f64,
    /// Its most frequent versions and their shares of all announces.
    pub versions: Vec<(String, f64)>,
}

impl Default for Clients {
    fn default() -> Self {
        Self {
            software: vec![0.0; Software::COUNT].into(),
            versions: Vec::with_capacity(VERSIONS_MAX),
            origin_s: 0,
        }
    }
}

impl Clients {
    /// Counts a sample, at a time in seconds of any monotonic clock.
    pub fn add(&mut self, sample: &Sample, now_s: u32) {
        if self.age(now_s) > SCALED_AFTER {
            self.scale(now_s);
        }
        let weight = f64::from(sample.weight) * self.age(now_s).exp();
        let (software, version) = identify(&sample.peer_id);
        self.software[software.index()] += weight;
        if version != Version::default() {
            self.add_version(software, version, weight);
        }
    }

    /// Returns the `max` largest shares in descending order. The last entry has the name `other` and the share of all
    /// other software. Empty if there were no recent announces.
    pub fn shares(&self, max: usize, now_s: u32) -> Vec<ClientShare> {
        let total: f64 = self.software.iter().sum();
        if total * (-self.age(now_s)).exp() < ANNOUNCES_MIN {
            return Vec::new();
        }
        let mut known: Vec<(Software, f64)> =
            Software::all().map(|software| (software, self.software[software.index()])).collect();
        known.retain(|(software, count)| *count > total * SHARE_MIN && *software != Software::OTHER);
        known.sort_by(|one, other| other.1.total_cmp(&one.1));
        known.truncate(max);
        let listed: f64 = known.iter().map(|(_, count)| count).sum();
        let share = |(software, count): (Software, f64)| ClientShare {
            software: software.name(),
            share: count / total,
            versions: self.versions_of(software, total),
        };
        let other = ClientShare {
            software: Software::OTHER.name(),
            share: ((total - listed) / total).max(0.0),
            versions: Vec::new(),
        };
        known.into_iter().map(share).chain([other]).collect()
    }

    fn versions_of(&self, software: Software, total: f64) -> Vec<(String, f64)> {
        // If the error is most of a count, the version may be a rare one.
        let is_sure = |entry: &&VersionCount| entry.software == software && entry.error < entry.count / 2.0;
        let mut versions: Vec<_> = self.versions.iter().filter(is_sure).collect();
        versions.sort_by(|one, other| other.count.total_cmp(&one.count));
        versions.truncate(LISTED_VERSIONS_MAX);
        versions.into_iter().map(|entry| (entry.version.as_str().to_owned(), entry.count / total)).collect()
    }

    fn add_version(&mut self, software: Software, version: Version, weight: f64) {
        let is_it = |entry: &&mut VersionCount| entry.software == software && entry.version == version;
        if let Some(entry) = self.versions.iter_mut().find(is_it) {
            entry.count += weight;
        } else if self.versions.len() < VERSIONS_MAX {
            self.versions.push(VersionCount { software, version, count: weight, error: 0.0 });
        } else if let Some(least) =
            self.versions.iter_mut().min_by(|one, other| one.count.total_cmp(&other.count))
        {
            *least = VersionCount { software, version, count: least.count + weight, error: least.count };
        }
    }

    /// Returns the time since the origin, in time constants.
    fn age(&self, now_s: u32) -> f64 {
        f64::from(now_s.saturating_sub(self.origin_s)) / DECAY_S
    }

    fn scale(&mut self, now_s: u32) {
        let factor = (-self.age(now_s)).exp();
        self.software.iter_mut().for_each(|count| *count *= factor);
        for entry in &mut self.versions {
            entry.count *= factor;
            entry.error *= factor;
        }
        self.origin_s = now_s;
    }
}

#[cfg(test)]
mod tests {
    use shoal_base::{InfoHash, PeerId};

    use super::*;

    fn add(clients: &mut Clients, peer_id: &str, weight: u32, now_s: u32) {
        let mut bytes = [b'x'; 20];
        bytes[..peer_id.len()].copy_from_slice(peer_id.as_bytes());
        let sample = Sample { info_hash: InfoHash([0; 20]), peer_id: PeerId(bytes), peers: 1, weight };
        clients.add(&sample, now_s);
    }

    fn named(shares: &[ClientShare]) -> Vec<(&str, u32)> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share is between 0 and 1"
        )]
        let per_mille = |share: f64| (share * 1000.0).round() as u32;
        shares.iter().map(|share| (share.software, per_mille(share.share))).collect()
    }

    #[test]
    fn shares_add_up() {
        let mut clients = Clients::default();
        add(&mut clients, "-qB4650-", 600, 100);
        add(&mut clients, "-qB5000-", 100, 100);
        add(&mut clients, "-TR4060-", 200, 100);
        add(&mut clients, "-lt0D80-", 50, 100);
        add(&mut clients, "?", 50, 100);
        let shares = clients.shares(2, 100);
        assert_eq!(named(&shares), [("qBittorrent", 700), ("Transmission", 200), ("other", 100)]);
        assert_eq!(shares[0].versions.len(), 2);
        assert_eq!(shares[0].versions[0].0, "4.6.5");
    }

    #[test]
    fn the_past_fades() {
        let mut clients = Clients::default();
        add(&mut clients, "-qB4650-", 1000, 0);
        add(&mut clients, "-TR4060-", 1000, 3600);
        assert_eq!(
            named(&clients.shares(5, 3600)),
            [("Transmission", 881), ("qBittorrent", 119), ("other", 0)]
        );
        // After days without announces there are none, and after months the counts are still finite.
        assert_eq!(clients.shares(5, 1_000_000), []);
        for now_s in (1_000_000..u32::MAX).step_by(10_000_000) {
            add(&mut clients, "-qB4650-", 1000, now_s);
            assert_eq!(named(&clients.shares(5, now_s)), [("qBittorrent", 1000), ("other", 0)]);
        }
    }

    #[test]
    fn hostile_versions_displace_no_frequent_one() {
        let mut clients = Clients::default();
        for number in 0..100_000_u32 {
            add(&mut clients, "-TR4060-", 1, 1);
            let code = |shift: u32| char::from(b'a' + u8::try_from((number >> shift) % 26).unwrap());
            let peer_id = format!("-qB{}{}{}{}-", code(0), code(4), code(8), code(12));
            add(&mut clients, &peer_id, 9, 1);
        }
        assert_eq!(clients.versions.len(), VERSIONS_MAX);
        let shares = clients.shares(30, 1);
        assert_eq!(named(&shares), [("qBittorrent", 900), ("Transmission", 100), ("other", 0)]);
        assert_eq!(shares[1].versions[0].0, "4.0.6");
        assert_eq!(shares[0].versions, [], "none of them is frequent");
    }
}
