//! Replies of the test tracker, with their faults.

use std::net::{IpAddr, SocketAddr};

use crate::fault::Fault;
use crate::tracker::{Announced, Name, Peer, State, Swarm};

const NUMWANT_DEFAULT: usize = 50;
const NUMWANT_MAX: usize = 60;

pub(crate) fn announce_reply(
    state: &mut State,
    swarm: &Swarm,
    to: &Announced,
    transaction_id: u32,
) -> Vec<u8> {
    let fault = state.fault;
    let interval_s = interval_s(state);
    let (seeders, leechers) = counts_for(fault, swarm, to);
    let transaction_id = if fault == Fault::AnnounceForgetsTransactionId { 5 } else { transaction_id };
    let mut reply: Vec<u8> =
        [1, transaction_id, interval_s, leechers, seeders].into_iter().flat_map(u32::to_be_bytes).collect();
    for peer in choose(state, swarm, to) {
        write_peer(&mut reply, peer, to.is_v4 != (fault == Fault::PeersOfOtherSize));
    }
    reply
}

pub(crate) fn interval_s(state: &mut State) -> u32 {
    match state.fault {
        Fault::ShortInterval => state.rng.u32(0..5),
        Fault::ConstantInterval => 1800,
        _ => state.rng.u32(1800..2000),
    }
}

pub(crate) fn counts_for(fault: Fault, swarm: &Swarm, to: &Announced) -> (u32, u32) {
    let is_counted = |name: &Name| fault != Fault::AnnouncerIsNotCounted || *name != to.name;
    counts(swarm.peers.iter().filter(|(name, _)| is_counted(name)).map(|(_, peer)| peer))
}

pub(crate) fn counts<'p>(peers: impl Iterator<Item = &'p Peer>) -> (u32, u32) {
    peers.fold(
        (0, 0),
        |(seeders, leechers), peer| {
            if peer.is_seeder { (seeders + 1, leechers) } else { (seeders, leechers + 1) }
        },
    )
}

pub(crate) fn choose(state: &mut State, swarm: &Swarm, to: &Announced) -> Vec<SocketAddr> {
    let fault = state.fault;
    let wanted = match to.numwant {
        _ if to.is_stopped && fault != Fault::StoppedGetsPeers => 0,
        -1 if fault == Fault::DefaultIsNone => 0,
        ..=-2 if fault == Fault::NegativeIsNone => 0,
        0 if fault == Fault::ZeroIsDefault => NUMWANT_DEFAULT,
        ..0 => NUMWANT_DEFAULT,
        some => {
            let some = usize::try_from(some).unwrap();
            let some = if fault == Fault::OddIsOneLess { some & !1 } else { some };
            if fault == Fault::NoCap { some } else { some.min(NUMWANT_MAX) }
        }
    };
    let is_offered = |name: &Name, peer: &Peer| {
        let is_other = *name != to.name || fault == Fault::AnnouncerIsHandedOut;
        let is_useful = match (to.is_seeder, peer.is_seeder) {
            (true, true) => fault == Fault::SeedersToSeeders,
            (true, false) => fault != Fault::NothingToSeeders,
            (false, true) => fault != Fault::LeechersOnly,
            (false, false) => true,
        };
        is_other && is_useful
    };
    let offered = swarm.peers.iter().filter(|(name, peer)| is_offered(name, peer));
    let mut chosen: Vec<SocketAddr> = offered.map(|(_, peer)| peer.address).collect();
    if fault != Fault::FirstPeersOnly {
        state.rng.shuffle(&mut chosen);
    }
    chosen.truncate(wanted);
    if fault == Fault::Duplicates
        && let [first, .., last] = &mut chosen[..]
    {
        *last = *first;
    }
    chosen
}

pub(crate) fn write_peer(reply: &mut Vec<u8>, peer: SocketAddr, is_v4: bool) {
    match (peer.ip(), is_v4) {
        (IpAddr::V4(ip), true) => reply.extend(ip.octets()),
        (IpAddr::V4(ip), false) => reply.extend(ip.to_ipv6_mapped().octets()),
        (IpAddr::V6(_), true) => reply.extend([0; 4]),
        (IpAddr::V6(ip), false) => reply.extend(ip.octets()),
    }
    reply.extend(peer.port().to_be_bytes());
}

pub(crate) fn scrape_reply(
    fault: Fault,
    hashes: &[[u8; 20]],
    swarms: &[Option<Swarm>],
    transaction_id: u32,
) -> Vec<u8> {
    let transaction_id = if fault == Fault::ScrapeForgetsTransactionId { 5 } else { transaction_id };
    let mut reply = [2_u32.to_be_bytes(), transaction_id.to_be_bytes()].concat();
    let mut entries: Vec<[u32; 3]> = Vec::new();
    for (index, swarm) in swarms.iter().enumerate() {
        let is_unknown = swarm.as_ref().is_none_or(|swarm| swarm.peers.is_empty());
        let is_repeated = hashes[..index].contains(&hashes[index]);
        let is_left_out = (is_unknown && fault == Fault::UnknownIsLeftOut)
            || (is_repeated && fault == Fault::RepeatedIsLeftOut);
        if is_left_out {
            continue;
        }
        let swarm = swarm.clone().unwrap_or_default();
        let (seeders, leechers) = counts(swarm.peers.values());
        entries.push(match fault {
            Fault::ScrapeSwapsFields => [leechers, swarm.completed, seeders],
            _ if hashes.len() > swarms.len() && fault == Fault::TooLargeScrapeIsNonsense => [7, 7, 7],
            _ => [seeders, swarm.completed, leechers],
        });
    }
    if fault == Fault::ScrapeReverses {
        entries.reverse();
    }
    reply.extend(entries.into_iter().flatten().flat_map(u32::to_be_bytes));
    reply
}
