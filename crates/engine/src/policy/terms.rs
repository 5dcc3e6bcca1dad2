//! The rules of announces that differ between protocols: when a client should announce again, and how many peers it gets.

use super::{Policy, Protocol};
use crate::pace::{Overload, Pace};

/// The time until clients should announce again. The random part keeps them from announcing at the same time.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    least_s: u32,
    jitter_s: u32,
}

impl Interval {
    /// Draws the number of seconds for one client.
    #[inline]
    pub fn draw_s(self, rng: &mut fastrand::Rng) -> u32 {
        self.drawn_s(rng.u32(..))
    }

    /// Returns the number of seconds for one client, from a random number.
    #[inline]
    pub(crate) fn drawn_s(self, random: u32) -> u32 {
        // The upper half of the product is at most the jitter. It is not exactly uniform, which does not matter here.
        let jitter_s = (u64::from(random) * (u64::from(self.jitter_s) + 1)) >> 32;
        self.least_s.saturating_add(u32::try_from(jitter_s).unwrap_or(self.jitter_s))
    }
}

/// The rules of announces that differ between protocols.
struct Terms {
    interval_s: u32,
    interval_s_max: u32,
    interval_jitter_s: u32,
    min_interval_s: u32,
    peer_timeout_s: u32,
    numwant_default: u32,
    numwant_max: u32,
}

impl Terms {
    /// Returns the longest interval that leaves a client an eighth of the timeout for its next announce, at most one
    /// and a half times the usual one.
    fn permitted_s(&self) -> u32 {
        let by_timeout_s = self.peer_timeout_s - self.peer_timeout_s / 8;
        self.interval_s.saturating_add(self.interval_s / 2).min(by_timeout_s)
    }
}

impl Policy {
    /// Returns the interval of a protocol at the pace of the worker. Without jitter, every client gets the same
    /// interval.
    pub fn interval(&self, protocol: Protocol, pace: Pace) -> Interval {
        let terms = self.terms(protocol);
        let raised_s = pace.interval_s(terms.interval_s, terms.interval_s_max);
        let usual = Interval { least_s: raised_s, jitter_s: terms.interval_jitter_s };
        let is_spread = pace.is_cold() || pace.overload() >= Overload::Intervals;
        if !is_spread || terms.interval_jitter_s == 0 {
            return usual;
        }
        let least_s = if pace.is_cold() {
            (terms.interval_s / 2).max(terms.min_interval_s).min(raised_s)
        } else {
            raised_s
        };
        let longest_s = raised_s.saturating_add(terms.interval_jitter_s).max(terms.permitted_s());
        Interval { least_s, jitter_s: longest_s - least_s }
    }

    /// Returns the interval of a rule, with the usual jitter of a protocol. Load does not change it.
    pub(crate) fn interval_of_rule(&self, protocol: Protocol, seconds: u32) -> Interval {
        Interval { least_s: seconds, jitter_s: self.terms(protocol).interval_jitter_s }
    }

    /// Returns the number of seconds that a client must wait in any case, if the operator has set one. It grows with
    /// the interval, and never exceeds `interval_s`, the interval in the reply.
    pub fn min_interval_s(&self, protocol: Protocol, pace: Pace, interval_s: u32) -> Option<u32> {
        let Terms { interval_s: usual_s, interval_s_max, min_interval_s, .. } = self.terms(protocol);
        let raised = u64::from(min_interval_s) * u64::from(pace.interval_s(usual_s, interval_s_max))
            / u64::from(usual_s.max(1));
        (min_interval_s > 0).then(|| u32::try_from(raised).unwrap_or(u32::MAX).min(interval_s))
    }

    pub(super) fn peers_wanted(&self, protocol: Protocol, numwant: Option<i64>) -> usize {
        let Terms { numwant_default, numwant_max, .. } = self.terms(protocol);
        let wanted = match numwant {
            Some(numwant @ 0..) => u32::try_from(numwant).unwrap_or(u32::MAX),
            Some(..0) | None => numwant_default,
        };
        usize::try_from(wanted.min(numwant_max)).unwrap_or(usize::MAX)
    }

    fn terms(&self, protocol: Protocol) -> Terms {
        match protocol {
            Protocol::Udp | Protocol::Http => {
                let announce = &self.config.announce;
                Terms {
                    interval_s: announce.interval_s,
                    interval_s_max: announce.interval_s_max,
                    interval_jitter_s: announce.interval_jitter_s,
                    min_interval_s: announce.min_interval_s,
                    peer_timeout_s: announce.peer_timeout_s,
                    numwant_default: announce.numwant_default,
                    numwant_max: announce.numwant_max,
                }
            }
            // A client wants a peer for each offer, unless it says otherwise. No reply can carry a minimum interval.
            Protocol::WebTorrent => {
                let webtorrent = &self.config.webtorrent;
                Terms {
                    interval_s: webtorrent.interval_s,
                    interval_s_max: self.config.webtorrent_interval_s_max(),
                    interval_jitter_s: self.config.webtorrent_jitter_s(),
                    min_interval_s: 0,
                    peer_timeout_s: webtorrent.peer_timeout_s,
                    numwant_default: webtorrent.offers_max,
                    numwant_max: webtorrent.offers_max,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use shoal_config::Config;

    use super::super::tests::{behind, policy};
    use super::*;
    use crate::pace::Load;

    const BUSY: Load = Load { busy: 1000, is_behind: false };

    #[test]
    fn intervals_spread_over_the_whole_jitter() {
        let policy = policy(|config| {
            (config.announce.interval_s, config.announce.interval_jitter_s) = (1800, 3);
            config.webtorrent.interval_s = 1800;
        });
        for (protocol, least_s) in
            [(Protocol::Udp, 1800), (Protocol::Http, 1800), (Protocol::WebTorrent, 1800)]
        {
            let mut rng = fastrand::Rng::with_seed(1);
            let mut seen = [false; 4];
            for _ in 0..200 {
                let late_s = policy.interval(protocol, Pace::default()).draw_s(&mut rng) - least_s;
                seen[usize::try_from(late_s).unwrap()] = true;
            }
            assert_eq!(seen, [true; 4]);
        }
    }

    #[test]
    fn the_least_interval_is_none_or_no_more_than_the_interval() {
        let least_s = |min_interval_s, interval_s| {
            policy(|config| config.announce.min_interval_s = min_interval_s).min_interval_s(
                Protocol::Http,
                Pace::default(),
                interval_s,
            )
        };
        assert_eq!(least_s(0, 1800), None);
        assert_eq!(least_s(300, 1800), Some(300));
        assert_eq!(least_s(300, 60), Some(60));
    }

    #[test]
    fn both_intervals_grow_under_load() {
        let policy = policy(|config| {
            let announce = &mut config.announce;
            (announce.interval_s, announce.interval_jitter_s) = (1800, 0);
            (announce.interval_s_max, announce.min_interval_s) = (3600, 300);
        });
        let (full, rng) = (Pace::default().after(u64::MAX, BUSY), &mut fastrand::Rng::with_seed(1));
        assert_eq!(policy.interval(Protocol::Udp, Pace::default()).draw_s(rng), 1800);
        assert_eq!(policy.interval(Protocol::Udp, full).draw_s(rng), 3600);
        assert_eq!(policy.min_interval_s(Protocol::Http, full, 3600), Some(600));
        assert_eq!(policy.min_interval_s(Protocol::Http, full, 400), Some(400));
        assert_eq!(policy.interval(Protocol::WebTorrent, full).draw_s(rng), 240, "by the same factor");
    }

    #[test]
    fn the_interval_of_webtorrent_grows_as_far_as_no_peer_times_out() {
        let interval_s = |interval_s_max| {
            let policy = policy(|config| {
                (config.announce.interval_s_max, config.announce.interval_jitter_s) = (interval_s_max, 0);
            });
            let full = Pace::default().after(u64::MAX, BUSY);
            policy.interval(Protocol::WebTorrent, full).draw_s(&mut fastrand::Rng::with_seed(1))
        };
        assert_eq!(interval_s(0), 120, "without a bound, nothing grows");
        assert_eq!(interval_s(21_600), 599);
    }

    /// Returns the intervals that a million clients are told at this pace.
    fn told(policy: &Policy, protocol: Protocol, pace: Pace) -> Vec<u32> {
        let (interval, mut rng) = (policy.interval(protocol, pace), fastrand::Rng::with_seed(1));
        (0..1_000_000).map(|_| interval.draw_s(&mut rng)).collect()
    }

    #[test]
    fn after_a_cold_start_the_second_wave_of_a_million_clients_is_flat() {
        const WITHIN_S: u32 = 10;
        let policy = policy(|_| {});
        for (protocol, range_s, timeout_s) in [
            (Protocol::Udp, 900..=2363, policy.config().announce.peer_timeout_s),
            (Protocol::WebTorrent, 60..=180, policy.config().webtorrent.peer_timeout_s),
        ] {
            let told = told(&policy, protocol, Pace::cold());
            assert!(told.iter().all(|told_s| range_s.contains(told_s) && *told_s < timeout_s * 9 / 10));
            // Client `n` came in second `n % WITHIN_S` after the start.
            let mut returns = vec![0_u32; 3000];
            for (came_s, told_s) in (0..WITHIN_S).cycle().zip(told) {
                returns[usize::try_from(came_s + told_s).unwrap()] += 1;
            }
            let flat = 1_000_000 / (range_s.end() - range_s.start());
            let most = *returns.iter().max().unwrap();
            assert!(most < flat * 5 / 4, "{most} in a second, {flat} on average");
        }
    }

    #[test]
    fn an_overloaded_worker_draws_intervals_from_all_that_the_timeout_permits() {
        let policy = policy(|_| {});
        let told = told(&policy, Protocol::Http, behind(1));
        assert_eq!((told.iter().min(), told.iter().max()), (Some(&1800), Some(&2363)));
    }

    #[test]
    fn no_interval_is_spread_beyond_the_timeout_or_below_the_least_or_without_jitter() {
        let bounds = |change: fn(&mut Config), pace| {
            let Interval { least_s, jitter_s } = policy(change).interval(Protocol::Udp, pace);
            (least_s, least_s + jitter_s)
        };
        let tight: fn(&mut Config) = |config| config.announce.peer_timeout_s = 2101;
        assert_eq!(bounds(tight, Pace::cold()), (900, 2100));
        assert_eq!(bounds(tight, behind(9)), (1800, 2100));
        assert_eq!(bounds(|config| config.announce.min_interval_s = 1200, Pace::cold()), (1200, 2363));
        assert_eq!(bounds(|config| config.announce.min_interval_s = 9000, Pace::cold()), (1800, 2363));
        assert_eq!(bounds(|config| config.announce.interval_jitter_s = 0, Pace::cold()), (1800, 1800));
        assert_eq!(bounds(|config| config.announce.peer_timeout_s = 86_400, Pace::cold()), (900, 2700));
    }

    #[test]
    fn extreme_intervals() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut interval_s = |interval_s, interval_jitter_s| {
            let policy = policy(|config| {
                (config.announce.interval_s, config.announce.interval_jitter_s) =
                    (interval_s, interval_jitter_s);
            });
            policy.interval(Protocol::Udp, Pace::default()).draw_s(&mut rng)
        };
        assert_eq!(interval_s(1800, 0), 1800);
        assert_eq!(interval_s(u32::MAX, u32::MAX), u32::MAX);
    }
}
