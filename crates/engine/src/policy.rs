//! The rules that hold for every tracker protocol: who may announce, in which role, for how many peers, and when
//! again. A front end says what it was asked in these terms, whatever its encoding.

use core::net::IpAddr;

use shoal_types::{Action, Event};

use crate::refusal::Refusal;
use crate::{Settings, address};

/// The rules, as the operator set them.
#[derive(Clone, Debug)]
pub struct Policy {
    interval_s: u32,
    interval_jitter_s: u32,
    min_interval_s: u32,
    numwant_default: u32,
    numwant_max: u32,
    refuse_private_addresses: bool,
}

/// An announce in the terms of no protocol.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// Where it came from, canonical: a v4-mapped v6 address is to be given as the v4 address that it is.
    pub ip: IpAddr,
    /// Where the client says it accepts peers; 0 where it accepts none.
    pub port: u16,
    /// What happens to the client.
    pub event: Event,
    /// Bytes that the client lacks, if it says so. Negative or huge numbers are those of clients that do not know.
    pub left_bytes: Option<i64>,
    /// How many peers the client wants, if it says so. Negative means that it does not.
    pub numwant: Option<i64>,
}

/// What is done about an announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// What happens to the announcing peer.
    pub action: Action,
    /// How many other peers it is handed, if there are as many and the reply has room.
    pub peers_wanted: usize,
    /// Whether the swarm is to know of it. A peer that accepts no connections can still open them: it is handed peers and
    /// told the counts, but enters no swarm, because nobody could reach it.
    pub registers: bool,
}

impl Policy {
    /// Takes the rules from the settings.
    #[must_use]
    pub const fn new(settings: &Settings) -> Self {
        Self {
            interval_s: settings.interval_s,
            interval_jitter_s: settings.interval_jitter_s,
            min_interval_s: settings.min_interval_s,
            numwant_default: settings.numwant_default,
            numwant_max: settings.numwant_max,
            refuse_private_addresses: settings.refuse_private_addresses,
        }
    }

    /// Decides about an announce.
    ///
    /// # Errors
    /// [`Refusal`] where the announcer must not enter a swarm. One that leaves may have any address and port.
    pub fn decide(&self, wish: &Wish) -> Result<Grant, Refusal> {
        let action = action(wish.event, wish.left_bytes);
        if action == Action::Stop {
            return Ok(Grant { action, peers_wanted: 0, registers: true });
        }
        address::check(wish.ip, self.refuse_private_addresses)?;
        Ok(Grant { action, peers_wanted: self.peers_wanted(wish.numwant), registers: wish.port != 0 })
    }

    /// Seconds until a client is to announce again: jittered, so that a restart of the tracker does not synchronise
    /// the announces of the world.
    pub fn interval_s(&self, rng: &mut fastrand::Rng) -> u32 {
        self.interval_s.saturating_add(rng.u32(0..=self.interval_jitter_s))
    }

    /// Seconds that a client told to come again after `interval_s` is to let pass in any case, if the operator says so.
    #[must_use]
    pub fn min_interval_s(&self, interval_s: u32) -> Option<u32> {
        (self.min_interval_s > 0).then(|| self.min_interval_s.min(interval_s))
    }

    fn peers_wanted(&self, numwant: Option<i64>) -> usize {
        let wanted = match numwant {
            Some(numwant @ 0..) => u32::try_from(numwant).unwrap_or(u32::MAX),
            Some(..0) | None => self.numwant_default,
        };
        usize::try_from(wanted.min(self.numwant_max)).unwrap_or(usize::MAX)
    }
}

/// What an announce does to its peer. A client that does not know what it lacks still downloads; one that has just
/// completed has everything, whatever it says it lacks.
pub(crate) const fn action(event: Event, left_bytes: Option<i64>) -> Action {
    match (event, left_bytes) {
        (Event::Stopped, _) => Action::Stop,
        (Event::Completed, _) => Action::Complete,
        (Event::Started | Event::Update, Some(0)) => Action::Seed,
        (Event::Started | Event::Update, _) => Action::Leech,
    }
}

/// Whether the peer of an announce has everything.
pub(crate) const fn seeds(action: Action) -> bool {
    matches!(action, Action::Seed | Action::Complete)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_id::ConnectionKey;

    fn settings() -> Settings {
        Settings::new(ConnectionKey::new([0; 16]))
    }

    fn wish() -> Wish {
        Wish {
            ip: "192.0.2.1".parse().unwrap(),
            port: 6881,
            event: Event::Update,
            left_bytes: Some(1),
            numwant: None,
        }
    }

    #[test]
    fn roles() {
        let action = |event, left_bytes| {
            Policy::new(&settings()).decide(&Wish { event, left_bytes, ..wish() }).unwrap().action
        };
        for event in [Event::Update, Event::Started] {
            assert_eq!(action(event, Some(0)), Action::Seed);
            for unknown_or_more in [None, Some(1), Some(-1), Some(i64::MIN), Some(i64::MAX)] {
                assert_eq!(action(event, unknown_or_more), Action::Leech);
            }
        }
        for left_bytes in [None, Some(0), Some(1), Some(-1)] {
            assert_eq!(action(Event::Completed, left_bytes), Action::Complete);
            assert_eq!(action(Event::Stopped, left_bytes), Action::Stop);
        }
    }

    #[test]
    fn numwant() {
        let policy = Policy::new(&Settings { numwant_default: 50, numwant_max: 200, ..settings() });
        let wanted = |numwant| policy.decide(&Wish { numwant, ..wish() }).unwrap().peers_wanted;
        for absent in [None, Some(-1), Some(-2), Some(i64::MIN)] {
            assert_eq!(wanted(absent), 50);
        }
        for exact in [0_u8, 1, 2, 3, 49, 50, 51, 199, 200] {
            assert_eq!(wanted(Some(exact.into())), usize::from(exact));
        }
        for too_many in [201, 1000, i64::from(u32::MAX) + 1, i64::MAX] {
            assert_eq!(wanted(Some(too_many)), 200);
        }
    }

    #[test]
    fn the_default_numwant_obeys_the_cap() {
        let policy = Policy::new(&Settings { numwant_default: 50, numwant_max: 30, ..settings() });
        assert_eq!(policy.decide(&wish()).unwrap().peers_wanted, 30);
    }

    #[test]
    fn a_peer_at_port_0_is_served_but_not_registered() {
        let policy = Policy::new(&Settings { refuse_private_addresses: true, ..settings() });
        for event in [Event::Update, Event::Started, Event::Completed] {
            let reachable = policy.decide(&Wish { event, ..wish() }).unwrap();
            let hidden = policy.decide(&Wish { port: 0, event, ..wish() }).unwrap();
            assert!(reachable.registers && !hidden.registers);
            assert_eq!(hidden, Grant { registers: false, ..reachable });
        }
        let private = Wish { ip: "10.0.0.1".parse().unwrap(), port: 0, ..wish() };
        assert_eq!(policy.decide(&private), Err(Refusal::PrivateAddress));
    }

    #[test]
    fn unusable_and_private_addresses_are_refused() {
        let at = |ip: &str, refuse_private_addresses| {
            Policy::new(&Settings { refuse_private_addresses, ..settings() })
                .decide(&Wish { ip: ip.parse().unwrap(), ..wish() })
                .map(|_| ())
        };
        assert_eq!(at("224.0.0.1", false), Err(Refusal::UnusableAddress));
        assert_eq!(at("10.0.0.1", true), Err(Refusal::PrivateAddress));
        assert_eq!(at("10.0.0.1", false), Ok(()));
    }

    #[test]
    fn leaving_is_granted_to_anybody_and_brings_no_peers() {
        let policy = Policy::new(&Settings { refuse_private_addresses: true, ..settings() });
        for ip in ["0.0.0.0", "255.255.255.255", "ff02::1", "127.0.0.1", "192.0.2.1"] {
            for port in [0, 6881] {
                let ip = ip.parse().unwrap();
                let leave = Wish { ip, port, event: Event::Stopped, numwant: Some(50), ..wish() };
                let granted = Grant { action: Action::Stop, peers_wanted: 0, registers: true };
                assert_eq!(policy.decide(&leave), Ok(granted));
            }
        }
    }

    #[test]
    fn intervals_spread_over_the_whole_jitter() {
        let policy = Policy::new(&Settings { interval_s: 1800, interval_jitter_s: 3, ..settings() });
        let mut rng = fastrand::Rng::with_seed(1);
        let mut seen = [false; 4];
        for _ in 0..200 {
            let late_s = policy.interval_s(&mut rng) - 1800;
            seen[usize::try_from(late_s).unwrap()] = true;
        }
        assert_eq!(seen, [true; 4]);
    }

    #[test]
    fn the_least_interval_is_none_or_no_more_than_the_interval() {
        let least_s = |min_interval_s, interval_s| {
            Policy::new(&Settings { min_interval_s, ..settings() }).min_interval_s(interval_s)
        };
        assert_eq!(least_s(0, 1800), None);
        assert_eq!(least_s(300, 1800), Some(300));
        assert_eq!(least_s(300, 60), Some(60));
    }

    #[test]
    fn extreme_intervals() {
        let mut rng = fastrand::Rng::with_seed(1);
        let interval_s = |interval_s, interval_jitter_s, rng: &mut _| {
            Policy::new(&Settings { interval_s, interval_jitter_s, ..settings() }).interval_s(rng)
        };
        assert_eq!(interval_s(1800, 0, &mut rng), 1800);
        assert_eq!(interval_s(u32::MAX, u32::MAX, &mut rng), u32::MAX);
    }
}
