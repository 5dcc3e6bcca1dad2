//! Announces: how a peer enters a swarm.

use core::net::IpAddr;

use shoal_base::source::Excess;
use shoal_base::{Action, Counts, Event, InfoHash, PeerChange, PeerId, Transfer};
use shoal_relay::{Announced, Rejection, SwarmKey};
use shoal_wire::webtorrent::{self as wire, Announce, reply};

use super::member::{Member, PEER_IDS_PER_TORRENT_MAX, Peer};
use super::{Inner, as_usize};
use crate::Now;
use crate::access_log::{AnnouncedPeer, saturated};
use crate::caller::Handling;
use crate::counter::{Kind, Outcome};
use crate::policy::{Protocol, Request};
use crate::refusal::{Refusal, Refused};
use crate::tokens::Shown;
use crate::watch::Sighting;

/// The client of an announce, and its announcement.
pub(super) struct Announcement {
    pub(super) ip: IpAddr,
    pub(super) info_hash: InfoHash,
    pub(super) peer_id: PeerId,
    pub(super) event: Event,
    pub(super) transfer: Transfer,
    /// The interval of a rule in seconds, in place of the usual one.
    pub(super) interval_s: Option<u32>,
}

/// A peer that is to enter a swarm.
#[derive(Clone, Copy)]
pub(super) struct Joining {
    pub(super) info_hash: InfoHash,
    pub(super) peer_id: PeerId,
    pub(super) action: Action,
    pub(super) key: SwarmKey,
    /// Whether the peer's source has no limits.
    pub(super) is_exempt: bool,
    /// The number that the gate has drawn for the announce.
    pub(super) drawn: u32,
}

/// Why a peer is not admitted to a swarm.
enum Rejected {
    /// The peer would exceed a limit, but its source may be exempt.
    Excess(Excess),
    For(Refusal),
}

impl From<Rejection> for Rejected {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::MayNotJoin => Self::For(Refusal::TooManyTorrents),
            Rejection::Full => Self::For(Refusal::StoreFull),
            Rejection::OverShare => Self::For(Refusal::SourceOverShare),
            Rejection::Excess(excess) => Self::Excess(excess),
        }
    }
}

impl Inner {
    /// Answers an announce, and relays its offers.
    pub(super) fn announce(&mut self, member: &mut Member, ip: IpAddr, announce: &Announce<'_>, now: Now) {
        self.context.tally.request(member.family, Kind::Announce);
        self.context.policy.refresh_socket_token(&mut member.token, ip, now);
        self.targets.clear();
        let &Announce { info_hash, peer_id, event, .. } = announce;
        let known = |bytes: Option<i64>| bytes.and_then(Transfer::known);
        let transfer = Transfer {
            uploaded: known(announce.uploaded_bytes),
            downloaded: known(announce.downloaded_bytes),
            left: known(announce.left_bytes),
        };
        let mut announcement = Announcement { ip, info_hash, peer_id, event, transfer, interval_s: None };
        let request = Request {
            peer_id: Some(&announce.peer_id),
            event: announce.event,
            left_bytes: announce.left_bytes,
            numwant: announce.numwant,
            shown: Shown::Socket(&member.token),
            drawn: self.context.gate.draw(),
            headers: member.headers,
            ..Request::new(Protocol::WebTorrent, ip, &announce.info_hash)
        };
        let decision = match self.context.policy.admit(&request, now) {
            Ok(decision) => decision,
            Err(refused) => return self.reply(member, &announcement, Err(refused), now),
        };
        announcement.interval_s = decision.interval_s;
        let key = self.swarms.swarm_key(&announce.info_hash);
        let entered = match decision.action {
            Action::Stop => {
                // Another connection's peer with the same id stays.
                let address = member.address(self.dispatcher.worker());
                let left = self.swarms.leave(&key, &announce.peer_id, address);
                if left.was_first {
                    self.record(member, PeerChange::Left, Action::Stop, info_hash, peer_id);
                }
                // This must also happen if the swarm forgot the peer before, so that the peer no longer counts.
                member.remove(&Peer { info_hash: announce.info_hash, peer_id: announce.peer_id });
                Ok(left.counts)
            }
            action => {
                self.name_offers(member, announce, decision.peers_wanted, now);
                let drawn = request.drawn;
                let joining = Joining { info_hash, peer_id, action, key, is_exempt: false, drawn };
                self.enter(member, ip, joining, now).map_err(Refused::from)
            }
        };
        if let Ok(counts) = entered
            && self.context.sampler.is_due()
        {
            self.context.sampler.take(&announce.info_hash, Some(&announce.peer_id), counts);
        }
        let has_entered = entered.is_ok();
        self.reply(member, &announcement, entered, now);
        if has_entered {
            self.relay_offers(member, announce, now);
        }
    }

    pub(super) fn reply(
        &mut self,
        member: &Member,
        announcement: &Announcement,
        entered: Result<Counts, Refused>,
        now: Now,
    ) {
        let info_hash = &announcement.info_hash;
        let outcome = match entered {
            Ok(Counts { seeders, leechers, .. }) => {
                if let Some(credit) = &mut self.context.credit {
                    let request = Request {
                        peer_id: Some(&announcement.peer_id),
                        event: announcement.event,
                        shown: Shown::Socket(&member.token),
                        ..Request::new(Protocol::WebTorrent, announcement.ip, info_hash)
                    };
                    credit.record(&self.context.policy, &request, announcement.transfer, now);
                }
                let interval_s = self.context.ruled_interval_s(announcement.interval_s);
                self.queue_text(member, |out| reply::announce(info_hash, interval_s, seeders, leechers, out));
                self.context.tally.reply(member.family, Kind::Announce, Outcome::Ok);
                Outcome::Ok
            }
            Err(refused) => {
                self.refuse(member, Kind::Announce, (wire::Action::Announce, Some(info_hash)), refused);
                self.is_draining |= refused.refusal == Refusal::Draining;
                Outcome::Refused(refused.refusal)
            }
        };
        let offers = self.targets.len();
        self.log(announcement.ip, Kind::Announce, outcome, |record| {
            record.info_hash = Some(announcement.info_hash);
            let (event, peer_id) = (announcement.event, Some(announcement.peer_id));
            record.announced = Some(AnnouncedPeer { event, port: 0, peer_id });
            if let Ok(Counts { seeders, leechers, .. }) = entered {
                record.counts = Some([seeders, leechers]);
                record.peers = saturated(offers);
            }
        });
    }

    /// Adds or refreshes a peer with the offers in `self.offers`, and stores their targets in `self.targets`.
    pub(super) fn enter(
        &mut self,
        member: &mut Member,
        ip: IpAddr,
        joining: Joining,
        now: Now,
    ) -> Result<Counts, Refusal> {
        match self.enter_or_prune(member, ip, &joining, now) {
            Ok(counts) => Ok(counts),
            Err(Rejected::Excess(excess)) => self.handle_excess(member, ip, joining, excess, now),
            Err(Rejected::For(refusal)) => Err(refusal),
        }
    }

    /// Serves a client whose peer would exceed a limit.
    #[cold]
    fn handle_excess(
        &mut self,
        member: &mut Member,
        ip: IpAddr,
        joining: Joining,
        excess: Excess,
        now: Now,
    ) -> Result<Counts, Refusal> {
        match self.context.policy.handle_excess(ip, excess) {
            Handling::Exempt => {
                let joining = Joining { is_exempt: true, ..joining };
                let entered = self.enter_or_prune(member, ip, &joining, now);
                entered.map_err(|rejected| match rejected {
                    Rejected::Excess(excess) => excess.into(),
                    Rejected::For(refusal) => refusal,
                })
            }
            // No other client could answer its offers, so none is relayed.
            Handling::Answer => {
                self.targets.clear();
                self.context.tally.unregistered(member.family, excess.into());
                Ok(self.swarms.scrape(&joining.key))
            }
            Handling::Refuse(refusal) => Err(refusal),
        }
    }

    /// Adds or refreshes a peer. If the client's list of peers is full, drops those that the swarms have forgotten.
    fn enter_or_prune(
        &mut self,
        member: &mut Member,
        ip: IpAddr,
        joining: &Joining,
        now: Now,
    ) -> Result<Counts, Rejected> {
        let &Joining { info_hash, peer_id, action, .. } = joining;
        let worker = self.dispatcher.worker();
        let torrents_max = as_usize(self.context.policy.config().webtorrent.torrents_per_connection_max);
        // Most announces are of known peers. The list is looked at only if this one is new to the swarm.
        let has_few = member.peers().len() < torrents_max.min(PEER_IDS_PER_TORRENT_MAX);
        let mut announced = self.enter_swarm(member, joining, has_few, now);
        if announced == Err(Rejection::MayNotJoin) {
            if !member.may_add(&self.swarms, worker, &info_hash) {
                return Err(Rejected::For(Refusal::TooManyPeerIds));
            }
            if member.peers().len() < torrents_max
                || member.prune(&self.swarms, worker, &mut self.context.rng)
            {
                announced = self.enter_swarm(member, joining, true, now);
            }
        }
        let Announced { counts, joined, change, older } = announced?;
        self.record(member, change, action, info_hash, peer_id);
        // A socket has few peer ids in a torrent, see `PEER_IDS_PER_TORRENT_MAX`, and browsers behind one address have many.
        let announce = Sighting::Announce { has_joined: joined, peer: None };
        self.context.observe_announce(ip, announce, joining.drawn, now);
        if joined {
            member.add(Peer { info_hash, peer_id });
        }
        if let Some(older) = older {
            self.dispatcher.request_ping(older);
        }
        Ok(counts)
    }

    /// Records a change of a peer, if there are other nodes.
    pub(super) fn record(
        &mut self,
        member: &Member,
        change: PeerChange,
        action: Action,
        info_hash: InfoHash,
        peer_id: PeerId,
    ) {
        if let Some(recorder) = &mut self.context.recorder {
            recorder.record_presence(change, action, info_hash, (peer_id, member.source()));
        }
    }

    fn enter_swarm(
        &mut self,
        member: &Member,
        joining: &Joining,
        may_join: bool,
        now: Now,
    ) -> Result<Announced, Rejection> {
        let &Joining { peer_id, action, ref key, is_exempt, .. } = joining;
        let announce = shoal_relay::Announce {
            address: member.address(self.dispatcher.worker()),
            source: member.source(),
            peer_id,
            action,
            may_join,
            is_exempt,
            offers: &self.offers,
        };
        self.swarms.announce(key, &announce, now.monotonic_s, &mut self.context.rng, &mut self.targets)
    }
}
