//! The handling of messages: swarms of clients, and relayed offers and answers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::fault::Fault;
use crate::reply::interval_s;
use crate::tracker::State;

const OFFERS_MAX: usize = 10;
const TORRENTS_MAX: usize = 20;

type Hash = [u8; 20];

/// The identity of a peer: the peer id and a part that some faults add.
type Name = (Vec<u8>, u64);

/// A pending offer: torrent, offerer, offer id, and answerer.
type PendingOffer = (Hash, Vec<u8>, Vec<u8>, Vec<u8>);

#[derive(Default)]
pub(crate) struct Swarms {
    swarms: HashMap<(bool, Hash), Swarm>,
    pending: HashSet<PendingOffer>,
}

#[derive(Default)]
struct Swarm {
    peers: BTreeMap<Name, Peer>,
    completed: u32,
}

struct Peer {
    socket: u64,
    /// The socket before the peer reconnected.
    first_socket: u64,
    ip: IpAddr,
    is_seeder: bool,
    has_completed: bool,
}

#[derive(Default)]
pub(super) struct Outgoing {
    pub(super) messages: Vec<(u64, Vec<u8>)>,
    /// Whether the socket of the sender ends.
    pub(super) ends: bool,
}

/// The fields of a message, as JSON text.
type Fields<'m> = BTreeMap<String, &'m RawValue>;

struct Refusal {
    action: Option<&'static str>,
    hash: Option<Hash>,
    reason: &'static str,
}

struct Announced<'m> {
    hash: Hash,
    peer_id: Vec<u8>,
    name: Name,
    fields: Fields<'m>,
}

impl Swarms {
    pub(crate) fn peers(&self) -> usize {
        self.swarms.values().map(|swarm| swarm.peers.len()).sum()
    }

    pub(super) fn leave(&mut self, fault: Fault, socket: u64) {
        let is_of = |peer: &Peer| {
            peer.socket == socket || (fault == Fault::WsOldSocketRemovesPeer && peer.first_socket == socket)
        };
        for swarm in self.swarms.values_mut() {
            swarm.peers.retain(|_, peer| !is_of(peer));
        }
    }

    /// Detaches the peers of a socket, so that they stay.
    pub(super) fn forget_socket(&mut self, socket: u64) {
        let peers = self.swarms.values_mut().flat_map(|swarm| swarm.peers.values_mut());
        peers.filter(|peer| peer.socket == socket).for_each(|peer| peer.socket = u64::MAX);
    }
}

pub(super) fn handle_message(state: &mut State, from: (u64, IpAddr), message: &[u8]) -> Outgoing {
    let fault = state.fault;
    let text = String::from_utf8_lossy(message);
    let depth = text.chars().filter(|character| matches!(character, '[' | '{')).count();
    state.is_dead |= depth > 5000 && fault == Fault::WsEndsOnDeepJson || message == b"die";
    let mut outgoing = Outgoing::default();
    let refusal = match dispatch(state, from, &text, &mut outgoing) {
        Ok(()) => return outgoing,
        Err(refusal) => refusal,
    };
    let is_json = serde_json::from_str::<&RawValue>(&text).is_ok_and(|value| value.get().starts_with('{'));
    state.is_dead |= !is_json && fault == Fault::WsEndsOnMangled && text.contains("candidate");
    outgoing.ends |= !is_json && fault == Fault::WsBadJsonCloses;
    let is_silent = match fault {
        Fault::WsBadJsonIsSilent => !is_json,
        Fault::WsUnknownActionIsSilent => is_json && refusal.action.is_none(),
        Fault::WsFullScrapeIsSilent => refusal.reason == "everything",
        _ => false,
    };
    if !is_silent {
        let mut reply = json!({ "failure reason": refusal.reason });
        let action = match fault {
            Fault::WsRefusalAlwaysIsAnAnnounce => Some("announce"),
            _ => refusal.action.filter(|&action| action != "announce" || refusal.hash.is_some()),
        };
        if let Some(action) = action {
            reply["action"] = action.into();
        }
        if let Some(hash) = refusal.hash.filter(|_| fault != Fault::WsRefusalHasNoInfoHash) {
            reply["info_hash"] = string(&hash).into();
        }
        outgoing.messages.push((from.0, reply.to_string().into_bytes()));
    }
    outgoing
}

fn string(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

fn bytes(raw: &RawValue) -> Option<Vec<u8>> {
    let text: String = serde_json::from_str(raw.get()).ok()?;
    text.chars().map(|character| u8::try_from(u32::from(character)).ok()).collect()
}

fn hash(raw: &RawValue) -> Option<Hash> {
    bytes(raw)?.try_into().ok()
}

fn dispatch(
    state: &mut State,
    from: (u64, IpAddr),
    text: &str,
    outgoing: &mut Outgoing,
) -> Result<(), Refusal> {
    let fault = state.fault;
    let refusal = |reason| Refusal { action: None, hash: None, reason };
    let fields: Fields<'_> = serde_json::from_str(text).map_err(|_| refusal("no JSON object"))?;
    let is_odd = match fault {
        Fault::WsNeedsActionFirst => !text.trim_start_matches(['{', ' ']).starts_with("\"action\""),
        Fault::WsUnknownFieldIsError => fields.contains_key("trackerid"),
        Fault::WsRawFieldNamesOnly => !text.contains("\"action\""),
        _ => false,
    };
    if is_odd {
        return Err(refusal("odd"));
    }
    let action = fields.get("action").and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    match action.as_deref() {
        Some("announce") => announce(state, from, fields, outgoing),
        Some("scrape") => scrape(state, from, &fields, outgoing),
        _ => Err(refusal("unknown action")),
    }
}

/// Returns the value of a field; null counts as absent.
fn value(fields: &Fields<'_>, name: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(fields.get(name)?.get()).ok()?;
    Some(value).filter(|value| !value.is_null())
}

fn announce(
    state: &mut State,
    from: (u64, IpAddr),
    fields: Fields<'_>,
    outgoing: &mut Outgoing,
) -> Result<(), Refusal> {
    let fault = state.fault;
    let refuse = |hash, reason| Refusal { action: Some("announce"), hash, reason };
    let name_bytes = |raw: &&RawValue| match fault {
        Fault::WsWideCharacters => {
            let text: String = serde_json::from_str(raw.get()).ok()?;
            Some(text.chars().map(|character| u32::from(character).to_le_bytes()[0]).collect())
        }
        _ => bytes(raw),
    };
    let mut read: Option<Vec<u8>> = fields.get("info_hash").and_then(name_bytes);
    if let Some(bytes) = read.as_mut().filter(|_| fault == Fault::WsAnyHashLength) {
        bytes.resize(20, 0);
    }
    let hash: Hash =
        read.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| refuse(None, "invalid info_hash"))?;
    let peer_id = fields.get("peer_id").and_then(name_bytes);
    let peer_id = peer_id.filter(|id| id.len() == 20 || fault == Fault::WsAnyPeerIdLength);
    let peer_id = peer_id.ok_or_else(|| refuse(Some(hash), "invalid peer_id"))?;
    if is_refused(fault, &fields) {
        return Err(refuse(Some(hash), "odd"));
    }
    let is_leaving = value(&fields, "event").is_some_and(|event| event == "stopped");
    let refusal = state.requests.refusal(fault, from.1, hash, &peer_id).filter(|_| !is_leaving);
    if refusal.is_none() {
        state.info_hashes.insert(hash);
    }
    let name = match fault {
        Fault::HostIsIdentity => (from.1.to_string().into_bytes(), 0),
        Fault::WsOnePeerASocket => (Vec::new(), from.0),
        Fault::WsEveryAnnounceIsAPeer => (peer_id.clone(), state.rng.u64(..)),
        _ => (peer_id.clone(), 0),
    };
    let announced = Announced { hash, peer_id, name, fields };
    if announced.fields.contains_key("answer") {
        answer(state, from, &announced, outgoing);
        return Ok(());
    }
    if let Some(reason) = refusal {
        if fault == Fault::WsDeniedTorrentIsRelayed {
            let _ = join(state, from, &announced);
            outgoing.messages.extend(relay(state, from, &announced).unwrap_or_default());
        }
        outgoing.ends = fault == Fault::WsRuleEndsSocket;
        return Err(refuse(Some(hash), reason));
    }
    join(state, from, &announced).map_err(|reason| refuse(Some(hash), reason))?;
    let is_stopped = value(&announced.fields, "event").is_some_and(|event| event == "stopped");
    let mut offers = Vec::new();
    if !is_stopped || fault == Fault::WsStoppedRelays {
        offers = relay(state, from, &announced).map_err(|reason| refuse(Some(hash), reason))?;
    }
    let reply = (from.0, reply(state, from, &announced).into_bytes());
    let has_reply = !is_stopped || fault != Fault::StoppedIsSilent;
    if fault == Fault::WsOffersBeforeReply {
        outgoing.messages.append(&mut offers);
    }
    outgoing.messages.extend(has_reply.then_some(reply));
    outgoing.messages.extend(offers);
    Ok(())
}

fn is_refused(fault: Fault, fields: &Fields<'_>) -> bool {
    let raw = |name: &str| fields.get(name).map(|raw| raw.get());
    let event = value(fields, "event");
    match fault {
        Fault::WsEmptyOffersAreError => raw("offers") == Some("[]"),
        Fault::WsNullOffersAreError => raw("offers") == Some("null"),
        Fault::WsNullLeftIsError => raw("left") == Some("null"),
        Fault::WsNeedsEvent => !fields.contains_key("event") && !fields.contains_key("answer"),
        Fault::UnknownEventIsError => {
            fields.contains_key("event")
                && !event.is_some_and(|event| {
                    ["started", "stopped", "completed", "update"].iter().any(|known| event == **known)
                })
        }
        Fault::WsOddNumwantIsError => raw("numwant").is_some_and(|numwant| numwant.len() > 3),
        _ => false,
    }
}

fn join(
    state: &mut State,
    (socket, ip): (u64, IpAddr),
    announced: &Announced<'_>,
) -> Result<(), &'static str> {
    let fault = state.fault;
    let torrents =
        state.web.swarms.values().filter(|swarm| swarm.peers.values().any(|peer| peer.socket == socket));
    if fault == Fault::WsFewTorrents && torrents.count() >= TORRENTS_MAX {
        return Err("too many torrents");
    }
    let event = value(&announced.fields, "event");
    let is_event = |word: &str| event.as_ref().is_some_and(|event| event == word);
    let left = value(&announced.fields, "left");
    let left_0 = left.as_ref().is_some_and(|left| left.as_i64() == Some(0));
    let is_negative = left.and_then(|left| left.as_i64()).is_some_and(|left| left < 0);
    let is_seeder = match fault {
        Fault::WsAlwaysLeecher => is_event("completed"),
        Fault::CompletedIsLeecher if is_event("completed") => false,
        Fault::CompletedGoesByLeft => left_0,
        Fault::NegativeLeftIsSeeder if is_negative => true,
        _ => left_0 || is_event("completed"),
    };
    let key = key(fault, ip, announced.hash);
    let swarm = state.web.swarms.entry(key).or_default();
    let known = swarm.peers.get(&announced.name);
    let is_foreign =
        known.is_some_and(|peer| peer.socket != socket && (peer.ip != ip || fault == Fault::WsNoReconnect));
    if is_foreign && fault != Fault::WsAnyHostTakesOver {
        return Err("peer id taken");
    }
    if is_event("stopped") && !(fault == Fault::StoppedJoins && known.is_none()) {
        if fault != Fault::StoppedStays {
            swarm.peers.remove(&announced.name);
        }
        return Ok(());
    }
    let joins = known.is_none();
    let (was_seeder, has_completed) =
        known.map_or((is_seeder, false), |peer| (peer.is_seeder, peer.has_completed));
    let may_change = match fault {
        Fault::SeederStays => !was_seeder,
        Fault::LeecherStays => was_seeder || is_event("completed"),
        _ => true,
    };
    let is_download = match fault {
        Fault::NoDownloads => false,
        Fault::EveryCompletedIsADownload => is_event("completed"),
        Fault::EverySeederIsADownload => is_seeder && !has_completed,
        _ => is_event("completed") && !has_completed,
    };
    swarm.completed += u32::from(is_download);
    let first_socket = known.map_or(socket, |peer| peer.first_socket);
    let is_seeder = if may_change { is_seeder } else { was_seeder };
    // One that joins as a seeder has downloaded nothing.
    let has_completed = has_completed || is_download || joins && is_seeder;
    let peer = Peer { socket, first_socket, ip, is_seeder, has_completed };
    swarm.peers.insert(announced.name.clone(), peer);
    Ok(())
}

fn key(fault: Fault, ip: IpAddr, hash: Hash) -> (bool, Hash) {
    match fault {
        Fault::OneSwarm => (true, [0; 20]),
        Fault::WsFamiliesApart => (ip.is_ipv4(), hash),
        _ => (true, hash),
    }
}

fn counts(state: &State, ip: IpAddr, hash: Hash, without: Option<&Name>) -> (usize, usize, u32) {
    let swarm = state.web.swarms.get(&key(state.fault, ip, hash));
    let peers = swarm.iter().flat_map(|swarm| &swarm.peers).filter(|(name, _)| Some(*name) != without);
    let (seeders, leechers): (Vec<_>, Vec<_>) = peers.partition(|(_, peer)| peer.is_seeder);
    let others = match state.fault {
        Fault::WsCountsHttp => state.swarm(ip.is_ipv4(), hash).map_or(0, |swarm| swarm.peers.len()),
        _ => 0,
    };
    (seeders.len(), leechers.len() + others, swarm.map_or(0, |swarm| swarm.completed))
}

fn reply(state: &mut State, (_, ip): (u64, IpAddr), announced: &Announced<'_>) -> String {
    let fault = state.fault;
    let own = (fault == Fault::AnnouncerIsNotCounted).then_some(&announced.name);
    let (complete, incomplete, _) = counts(state, ip, announced.hash, own);
    let info_hash = match fault {
        Fault::WsHashesAreAscii => string(&announced.hash.map(|byte| byte & 127)),
        _ => string(&announced.hash),
    };
    let mut reply = json!({
        "action": "announce",
        "info_hash": info_hash,
        "interval": interval_s(state),
        "complete": complete,
        "incomplete": incomplete,
    });
    let left_out: &[&str] = match fault {
        Fault::WsNoInfoHash => &["info_hash"],
        Fault::WsNoInterval => &["interval"],
        Fault::WsNoCounts => &["complete", "incomplete"],
        _ => &[],
    };
    for name in left_out {
        reply.as_object_mut().unwrap().remove(*name);
    }
    reply.to_string()
}

/// Returns the text of an offer or answer as it is relayed.
fn relayed(fault: Fault, raw: &RawValue, loses: Fault) -> String {
    let value: Value = serde_json::from_str(raw.get()).unwrap();
    match fault {
        Fault::WsReencodes => value.to_string(),
        fault if fault == loses => json!({ "type": value["type"] }).to_string(),
        _ => raw.get().to_owned(),
    }
}

/// Decodes an item of `offers`: the object, the offer id, and its JSON text.
fn offer<'m>(fault: Fault, item: &'m RawValue) -> Option<(&'m RawValue, Vec<u8>, &'m RawValue)> {
    let item: Fields<'m> = serde_json::from_str(item.get()).ok()?;
    let (offer, raw_id) = (*item.get("offer")?, *item.get("offer_id")?);
    let object: serde_json::Map<String, Value> = serde_json::from_str(offer.get()).ok()?;
    let id = bytes(raw_id)?;
    let is_skipped = match fault {
        Fault::WsTypedOffersOnly => !object.contains_key("sdp"),
        Fault::WsSmallOffers => offer.get().len() > 3000,
        Fault::WsOfferIdHas20 => id.len() != 20,
        _ => false,
    };
    (!is_skipped).then_some((offer, id, raw_id))
}

/// Returns the offers of an announce with their receivers.
fn relay(
    state: &mut State,
    (_, ip): (u64, IpAddr),
    announced: &Announced<'_>,
) -> Result<Vec<(u64, Vec<u8>)>, &'static str> {
    let fault = state.fault;
    let Some(raw) = announced.fields.get("offers") else { return Ok(Vec::new()) };
    let items: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
    let offers: Vec<_> = items.iter().filter_map(|item| offer(fault, item)).collect();
    if fault == Fault::WsBadOfferIsError && offers.len() < items.len() {
        return Err("bad offer");
    }
    let numwant = match value(&announced.fields, "numwant").and_then(|numwant| numwant.as_i64()) {
        Some(numwant) if fault != Fault::WsIgnoresNumwant => usize::try_from(numwant).unwrap_or(usize::MAX),
        None if fault == Fault::WsNumwantAbsentIsNone => 0,
        _ => usize::MAX,
    };
    let cap = match fault {
        Fault::WsFiveOffers => 5,
        Fault::WsNoOffers => 0,
        _ => OFFERS_MAX,
    };
    let targets = targets(state, ip, announced);
    let mut messages = Vec::new();
    for (at, (offer, id, raw_id)) in offers.into_iter().take(cap.min(numwant)).enumerate() {
        let target = if fault == Fault::WsOneTarget { targets.first() } else { targets.get(at) };
        let Some((peer_id, to)) = target else { break };
        let pending_id = match fault {
            Fault::WsOfferIdBySpelling => raw_id.get().as_bytes().to_vec(),
            _ => id.clone(),
        };
        let answerer = if fault == Fault::WsAnswerOfAnyPeer { Vec::new() } else { peer_id.clone() };
        state.web.pending.insert((announced.hash, announced.peer_id.clone(), pending_id, answerer));
        let id =
            if fault == Fault::WsOfferIdIsAscii { id.iter().map(|byte| byte & 127).collect() } else { id };
        let head = json!({
            "action": "announce",
            "info_hash": string(&announced.hash),
            "peer_id": string(&announced.peer_id),
            "offer_id": string(&id),
        });
        let head = head.to_string();
        let offer = relayed(fault, offer, Fault::WsOfferLosesFields);
        messages.push((*to, format!("{},\"offer\":{offer}}}", &head[..head.len() - 1]).into_bytes()));
    }
    Ok(messages)
}

/// Returns the receivers of offers in their order: peer id and socket.
fn targets(state: &mut State, ip: IpAddr, announced: &Announced<'_>) -> Vec<(Vec<u8>, u64)> {
    let fault = state.fault;
    let own = key(fault, ip, announced.hash);
    let is_seeder = state.web.swarms.get(&own).and_then(|swarm| swarm.peers.get(&announced.name));
    let is_seeder = is_seeder.is_some_and(|peer| peer.is_seeder);
    let is_target = |name: &Name, peer: &Peer| {
        let is_self = *name == announced.name && fault != Fault::AnnouncerIsHandedOut;
        let is_useless = is_seeder && peer.is_seeder && fault == Fault::WsSeedersApart;
        let is_passed_over = fault == Fault::LeechersOnly && peer.is_seeder;
        !is_self && !is_useless && !is_passed_over
    };
    let swarms = state.web.swarms.iter();
    let swarms = swarms.filter(|(key, _)| **key == own || fault == Fault::WsOffersEverywhere);
    let mut targets: Vec<(bool, (Vec<u8>, u64))> = swarms
        .flat_map(|(_, swarm)| &swarm.peers)
        .filter(|(name, peer)| is_target(name, peer))
        .map(|(name, peer)| (peer.is_seeder, (name.0.clone(), peer.socket)))
        .collect();
    if fault != Fault::FirstPeersOnly {
        state.rng.shuffle(&mut targets);
    }
    if is_seeder && fault != Fault::SeedersToSeeders {
        targets.sort_by_key(|(is_seeder, _)| *is_seeder);
    }
    targets.into_iter().map(|(_, target)| target).collect()
}

/// Relays an answer if its offer is pending.
fn answer(state: &mut State, from: (u64, IpAddr), announced: &Announced<'_>, outgoing: &mut Outgoing) {
    let fault = state.fault;
    if fault == Fault::WsAnswerIsAnnounce {
        let _ = join(state, from, announced);
    }
    if fault == Fault::WsAnswerIsReplied {
        let reply = reply(state, from, announced);
        outgoing.messages.push((from.0, reply.into_bytes()));
    }
    let field = |name: &str| announced.fields.get(name).copied();
    let (Some(raw_to), Some(raw_id), Some(answer)) =
        (field("to_peer_id"), field("offer_id"), field("answer"))
    else {
        return;
    };
    let (Some(to_peer), Some(id)) = (bytes(raw_to), bytes(raw_id)) else { return };
    let pending_id = match fault {
        Fault::WsOfferIdBySpelling => raw_id.get().as_bytes().to_vec(),
        _ => id.clone(),
    };
    let answerer = if fault == Fault::WsAnswerOfAnyPeer { Vec::new() } else { announced.peer_id.clone() };
    let pending = (announced.hash, to_peer.clone(), pending_id, answerer);
    let is_pending = match fault {
        Fault::WsAnswersTwice => state.web.pending.contains(&pending),
        _ => state.web.pending.remove(&pending),
    };
    let swarm = state.web.swarms.get(&key(fault, from.1, announced.hash));
    let to = swarm.and_then(|swarm| swarm.peers.get(&(to_peer, 0)));
    if to.is_none() && fault == Fault::WsEndsOnVanishedTarget {
        state.is_dead = true;
        return;
    }
    let Some(to) = to.filter(|_| is_pending || fault == Fault::WsAnyAnswer) else { return };
    if fault == Fault::WsNoAnswers {
        return;
    }
    let head = json!({
        "action": "announce",
        "info_hash": string(&announced.hash),
        "peer_id": string(&announced.peer_id),
        "offer_id": string(&id),
    });
    let head = head.to_string();
    let answer = relayed(fault, answer, Fault::WsAnswerLosesFields);
    let text = format!("{},\"answer\":{answer}}}", &head[..head.len() - 1]);
    outgoing.messages.push((to.socket, text.into_bytes()));
}

fn scrape(
    state: &mut State,
    from: (u64, IpAddr),
    fields: &Fields<'_>,
    outgoing: &mut Outgoing,
) -> Result<(), Refusal> {
    let fault = state.fault;
    let refuse = |reason| Refusal { action: Some("scrape"), hash: None, reason };
    let raw =
        *fields.get("info_hash").filter(|raw| raw.get() != "null").ok_or_else(|| refuse("everything"))?;
    state.is_dead |= raw.get().starts_with('{') && fault == Fault::WsEndsOnOtherTypes;
    let hashes: Vec<Hash> = match serde_json::from_str::<Vec<&RawValue>>(raw.get()) {
        Ok(_) if fault == Fault::WsScrapeOfOneOnly => return Err(refuse("one only")),
        Ok(list) => list.into_iter().filter_map(hash).collect(),
        Err(_) if fault == Fault::WsBadScrapeIsZeros => vec![hash(raw).unwrap_or([b'x'; 20])],
        Err(_) => vec![hash(raw).ok_or_else(|| refuse("invalid info_hash"))?],
    };
    let mut files = serde_json::Map::new();
    for hash in hashes {
        state.info_hashes.insert(hash);
        if fault == Fault::WsScrapeJoins {
            let swarm = state.web.swarms.entry(key(fault, from.1, hash)).or_default();
            let peer = Peer {
                socket: from.0,
                first_socket: from.0,
                ip: from.1,
                is_seeder: false,
                has_completed: false,
            };
            swarm.peers.insert((Vec::new(), from.0), peer);
        }
        let is_known = state.web.swarms.contains_key(&key(fault, from.1, hash));
        if !is_known && fault == Fault::UnknownIsLeftOut {
            continue;
        }
        let (mut complete, mut incomplete, downloaded) = counts(state, from.1, hash, None);
        if fault == Fault::ScrapeSwapsFields {
            (complete, incomplete) = (incomplete, complete);
        }
        let mut file = json!({ "complete": complete, "incomplete": incomplete });
        if fault != Fault::WsNoDownloaded {
            file["downloaded"] = downloaded.into();
        }
        let hex = || hash.iter().map(|byte| format!("{byte:02x}")).collect();
        files.insert(if fault == Fault::WsScrapeKeysAreHex { hex() } else { string(&hash) }, file);
    }
    let reply = json!({ "action": "scrape", "files": files });
    outgoing.messages.push((from.0, reply.to_string().into_bytes()));
    Ok(())
}
