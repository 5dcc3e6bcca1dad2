//! The parts of a responder that no protocol has for itself: the policy, the randomness, and the places where requests are
//! counted and recorded.
//!
//! The three responders of a worker hold the same parts, so that an announce leaves the same traces over
//! every protocol. Each responder has its own context, with its own counters, rings and randomness. It must not know a
//! protocol's encoding.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use shoal_base::Delta;

use crate::Now;
use crate::access_log::{AccessLog, LoggedClient, Record};
use crate::caller::Caller;
use crate::counter::{Drop, Family, Kind, Outcome, Tally};
use crate::credit::CreditRecorder;
use crate::insight::Sampler;
use crate::pace::Pace;
use crate::policy::{Gate, Interval, Policy, Protocol};
use crate::replication::Recorder;
use crate::watch::Sighting;

/// The policy of a responder, its randomness and its traces. `T` is a change of a peer, as other nodes are told it.
#[derive(Debug)]
pub struct Context<T = Delta> {
    protocol: Protocol,
    pub(crate) policy: Arc<Policy>,
    pub(crate) pace: Pace,
    /// The interval of the policy at that pace.
    pub(crate) interval: Interval,
    pub(crate) tally: Tally,
    pub(crate) rng: fastrand::Rng,
    /// Draws the announces that count towards limits, and those that are looked at for bans.
    pub(crate) gate: Gate,
    /// Takes samples of announces.
    pub sampler: Sampler,
    /// Records requests; `None` if they are not logged.
    pub access_log: Option<AccessLog>,
    /// Records the changes of peers; `None` if there are no other nodes.
    pub recorder: Option<Recorder<T>>,
    /// Records the announces of users; `None` if users are not credited.
    pub credit: Option<CreditRecorder>,
}

impl<T> Context<T> {
    /// Creates the context of a responder that counts into `tally` and draws from `rng`, and that leaves no other trace. Each
    /// worker needs its own seed; otherwise all workers hand out the same samples.
    pub fn new(protocol: Protocol, policy: Arc<Policy>, tally: Tally, mut rng: fastrand::Rng) -> Self {
        let pace = Pace::default();
        // Clients see the effects of later draws of `rng`, and none of this one.
        let gate = Gate::new(rng.fork());
        Self {
            protocol,
            interval: policy.interval(protocol, pace),
            policy,
            pace,
            tally,
            rng,
            gate,
            sampler: Sampler::off(),
            access_log: None,
            recorder: None,
            credit: None,
        }
    }

    pub(crate) fn set_policy(&mut self, policy: Arc<Policy>) {
        self.interval = policy.interval(self.protocol, self.pace);
        self.policy = policy;
    }

    /// Returns the number of announces that the present one counts as for bans, 0 if it is not looked at. The gate has `drawn`
    /// this number for it.
    pub(crate) fn watched(&self, drawn: u32) -> u32 {
        self.policy.watch().map_or(0, |watch| watch.weight(drawn))
    }

    /// Counts an announce of the client at the canonical `ip` that was served, for which the gate has `drawn` this number,
    /// if it is to be looked at.
    pub(crate) fn observe_announce(&self, ip: IpAddr, announce: Sighting<'_>, drawn: u32, now: Now) {
        let watched = self.watched(drawn);
        if watched > 0 {
            self.policy.observe(ip, announce, watched, now);
        }
    }

    /// Returns whether the client at a canonical address has earned a ban, and if so, counts that it gets no reply.
    #[inline]
    pub(crate) fn drops_banned(&mut self, ip: IpAddr) -> bool {
        let is_banned = self.policy.is_banned(ip);
        if is_banned {
            self.tally.drop(Family::of(ip), Drop::Banned);
        }
        is_banned
    }

    pub(crate) fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
        self.interval = self.policy.interval(self.protocol, pace);
    }

    /// Sets the time at which the requests that follow are logged.
    pub(crate) const fn set_now(&mut self, now: Now) {
        if let Some(log) = &mut self.access_log {
            log.set_now(now);
        }
    }

    /// Draws the number of seconds until a client should announce again, for which a rule may have an interval of its
    /// own.
    #[inline]
    pub(crate) fn ruled_interval_s(&mut self, of_rule: Option<u32>) -> u32 {
        let random = self.rng.u32(..);
        self.drawn_interval_s(of_rule, random)
    }

    /// Does the same with a random number.
    #[inline]
    pub(crate) fn drawn_interval_s(&self, of_rule: Option<u32>, random: u32) -> u32 {
        let of_rule = of_rule.map(|seconds| self.policy.interval_of_rule(self.protocol, seconds));
        of_rule.unwrap_or(self.interval).drawn_s(random)
    }

    /// Returns what an announce of the client at `address` needs.
    #[inline]
    pub(crate) fn caller<'a>(&'a mut self, address: &'a SocketAddr, now: Now) -> Caller<'a> {
        Caller { address, policy: &self.policy, tally: &mut self.tally, now, rng: &mut self.rng }
    }

    /// Logs a request of the client at `ip`, if requests are logged. `describe` adds details. A client with an unknown address
    /// counts as IPv4.
    #[inline]
    pub(crate) fn log(
        &mut self,
        ip: Option<IpAddr>,
        kind: Kind,
        outcome: Outcome,
        describe: impl FnOnce(&mut Record),
    ) {
        let Some(log) = &mut self.access_log else { return };
        log.record(&self.policy.config().log, |settings| {
            let family = ip.map_or(Family::V4, Family::of);
            let client = LoggedClient::new(settings, ip);
            let mut record = Record::new(self.protocol, family, kind, outcome, client);
            describe(&mut record);
            record
        });
    }
}
