//! The parts of the service that the operator has suspended: all announces while the tracker drains, and the requests of
//! single protocols and address families while these are paused.
//!
//! Clients that leave are served in any case, so that no swarm hands out peers that are gone. A drain serves scrapes as
//! well, since its clients are to go elsewhere soon; a pause refuses them, since it is to take load away.
//! WebSockets stay open in a pause, since a client that is closed would connect again at once, which costs more than a
//! refused announce. UDP clients still get connection ids, without which they could not read the reason.

use core::net::IpAddr;
use std::sync::Arc;

use crate::counter::Family;
use crate::policy::Protocol;
use crate::refusal::{Refusal, Refused, Words};

/// A protocol over one address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The protocol.
    pub protocol: Protocol,
    /// The address family of the clients.
    pub family: Family,
}

/// Why and for how long a part is paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The operator's words.
    pub reason: String,
    /// The number of minutes after which clients should try again.
    pub retry_in_minutes: u32,
    /// The name of the operator's token that has paused the part.
    pub by: String,
    /// When, in seconds since 1970.
    pub since_unix_s: u64,
    /// Whether a restart keeps the pause.
    pub is_kept: bool,
    /// The text for clients. A UDP error has no other place for the time of the next try.
    message: String,
}

/// Everything that is out of service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspension {
    /// Whether clients should leave this tracker.
    pub is_draining: bool,
    paused: [Option<Arc<Pause>>; Part::COUNT],
}

impl Part {
    const COUNT: usize = Protocol::ALL.len() * Family::ALL.len();

    /// Returns every part, by protocol and then by family.
    pub fn all() -> impl Iterator<Item = Self> {
        let of = |protocol| Family::ALL.map(|family| Self { protocol, family });
        Protocol::ALL.into_iter().flat_map(of)
    }

    const fn index(self) -> usize {
        self.protocol as usize * Family::ALL.len() + self.family as usize
    }
}

impl Pause {
    /// Creates the pause of a part.
    pub fn new(
        reason: String,
        retry_in_minutes: u32,
        (by, since_unix_s): (String, u64),
        is_kept: bool,
    ) -> Self {
        let unit = if retry_in_minutes == 1 { "minute" } else { "minutes" };
        let message = format!("{reason}; try again in {retry_in_minutes} {unit}");
        Self { reason, retry_in_minutes, by, since_unix_s, is_kept, message }
    }

    /// Returns the text for clients.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl Suspension {
    /// Returns the pause of a part, if it is paused.
    pub fn pause(&self, part: Part) -> Option<&Arc<Pause>> {
        self.paused[part.index()].as_ref()
    }

    /// Pauses a part, or with `None`, serves it again.
    pub fn set_pause(&mut self, part: Part, pause: Option<Arc<Pause>>) {
        self.paused[part.index()] = pause;
    }

    /// Returns the parts that are paused.
    pub fn paused(&self) -> impl Iterator<Item = (Part, &Arc<Pause>)> {
        Part::all().filter_map(|part| Some((part, self.pause(part)?)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.is_draining && self.paused.iter().all(Option::is_none)
    }

    /// Decides about an announce of a client that stays.
    pub(crate) fn check_announce(&self, protocol: Protocol, ip: IpAddr) -> Result<(), Refused> {
        if self.is_draining {
            return Err(Refusal::Draining.into());
        }
        self.check(protocol, ip)
    }

    /// Decides about any request of a paused part.
    pub(crate) fn check(&self, protocol: Protocol, ip: IpAddr) -> Result<(), Refused> {
        let part = Part { protocol, family: Family::of(ip) };
        match self.pause(part) {
            Some(_) => Err(Refused { refusal: Refusal::Paused, reason: Some(Words::Pause(part)) }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use shoal_base::{Event, InfoHash};
    use shoal_config::Config;

    use shoal_access::rules::HeaderMatch;

    use super::*;
    use crate::Now;
    use crate::pace::Pace;
    use crate::policy::{Policy, Request, ScrapeRequest, Torrents};
    use crate::tokens::Shown;

    fn pause(reason: &str, retry_in_minutes: u32) -> Option<Arc<Pause>> {
        Some(Arc::new(Pause::new(reason.to_owned(), retry_in_minutes, ("kim".to_owned(), 1), false)))
    }

    /// Returns the outcomes of an announce, of a scrape and of a leave over a part: the refusal, its text, and the time of
    /// the next try.
    fn outcomes(policy: &Policy, part: Part) -> [Option<(Refusal, &str, Option<u32>)>; 3] {
        let ip = if part.family == Family::V4 { "192.0.2.1" } else { "2001:db8::1" };
        let (ip, protocol) = (ip.parse().unwrap(), part.protocol);
        let announce = |event| {
            let request = Request { event, ..Request::new(protocol, ip, &InfoHash([1; 20])) };
            policy.admit(&request, Now::default()).map(drop)
        };
        let (torrents, shown, headers) = (Torrents::Named(&[]), Shown::Nothing, HeaderMatch::default());
        let scrape = ScrapeRequest { protocol, ip, torrents, shown, headers };
        let scraped = policy.admit_scrape(&scrape, Pace::default(), Now::default());
        [announce(Event::Started), scraped, announce(Event::Stopped)].map(|outcome| {
            let refused = outcome.err()?;
            Some((refused.refusal, policy.message(refused), policy.retry_in_minutes(refused)))
        })
    }

    #[test]
    fn a_pause_refuses_one_part_and_lets_its_clients_leave() {
        for paused in Part::all() {
            let policy = Policy::new(Config::default())
                .suspend(|suspension| suspension.set_pause(paused, pause("moving", 30)));
            for part in Part::all() {
                let refused = (part == paused).then_some((
                    Refusal::Paused,
                    "moving; try again in 30 minutes",
                    Some(30),
                ));
                assert_eq!(outcomes(&policy, part), [refused, refused, None], "{paused:?} {part:?}");
            }
            let served = policy.suspend(|suspension| suspension.set_pause(paused, None));
            assert!(served.suspension().is_none());
        }
    }

    #[test]
    fn each_part_has_its_own_words_beside_a_drain() {
        let mut parts = Part::all();
        let [one, other, last] = [parts.next(), parts.next(), parts.last()].map(Option::unwrap);
        let policy = Policy::new(Config::default()).suspend(|suspension| {
            suspension.set_pause(one, pause("first", 1));
            suspension.set_pause(other, pause("second", 2));
        });
        let texts = [one, other].map(|part| outcomes(&policy, part)[1].unwrap().1);
        assert_eq!(texts, ["first; try again in 1 minute", "second; try again in 2 minutes"]);
        let draining = policy.with_draining(true);
        assert_eq!(outcomes(&draining, last)[0].unwrap().0, Refusal::Draining);
        assert_eq!(outcomes(&draining, last)[1], None, "a drain serves scrapes");
        assert_eq!(outcomes(&draining, one)[1].unwrap().0, Refusal::Paused);
        assert_eq!(draining.with_draining(false).suspension().unwrap().paused().count(), 2);
    }
}
