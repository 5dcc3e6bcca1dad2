//! The rules that an operator sets: which torrents, clients, networks and ports are served, and how often one may ask.
//!
//! The suite cannot know them, so the user names them as [`OperatorRules`]. A case about a rule that is not named counts
//! neither way.

use std::net::IpAddr;

use super::{Client, Protocol};
use crate::case::{Checked, Unmet, ensure};
use crate::context::{Context, InfoHash};
use crate::peer::{Announce, Announced};

/// Requests beyond a limit that are sent before the case fails. The limit recovers in the meantime.
const REQUESTS_BEYOND_LIMIT: u32 = 500;

/// The rules of the tracker under test, as far as they are to be checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorRules {
    /// A torrent that is denied.
    pub denied_torrent: Option<InfoHash>,
    /// The words that clients see for that torrent.
    pub reason: Option<String>,
    /// A torrent that is not on the allow list.
    pub unlisted_torrent: Option<InfoHash>,
    /// The beginning of peer ids that are denied, at most 20 bytes.
    pub denied_client: Option<Vec<u8>>,
    /// A port that is denied to peers.
    pub denied_port: Option<u16>,
    /// A local address in a denied network.
    pub denied_source: Option<IpAddr>,
    /// The number of requests that a source may send at once.
    pub requests_at_once: Option<u32>,
    /// The local address that sends more than that; the default one if absent.
    pub limited_source: Option<IpAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reaction {
    Served(Announced),
    Refused(Refusal),
    Silence,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) text: String,
    /// Whether it tells when a retry makes sense.
    pub(crate) tells_when: bool,
    pub(crate) described: String,
}

impl Reaction {
    fn describe(&self) -> String {
        match self {
            Self::Served(reply) => {
                format!("an announce reply with {} peers, {}", reply.peers.len(), reply.counts())
            }
            Self::Refused(refusal) => refusal.described.clone(),
            Self::Silence => "no reply".to_owned(),
        }
    }
}

/// Returns a rule that the user has named, or ends the case.
pub(crate) fn named<T: Clone>(rule: Option<&T>, option: &str) -> Checked<T> {
    rule.cloned().ok_or_else(|| Unmet::NotConfigured(format!("name it with {option}")))
}

pub(crate) fn denied_torrent(context: &Context<'_>) -> Checked<[u8; 20]> {
    Ok(named(context.target.rules.denied_torrent.as_ref(), "--denied-torrent")?.0)
}

pub(crate) fn unlisted_torrent(context: &Context<'_>) -> Checked<[u8; 20]> {
    Ok(named(context.target.rules.unlisted_torrent.as_ref(), "--unlisted-torrent")?.0)
}

/// Returns the peer id of a denied client, which is `peer_id` except for its beginning.
pub(crate) fn denied_client(context: &Context<'_>, mut peer_id: [u8; 20]) -> Checked<[u8; 20]> {
    let prefix = named(context.target.rules.denied_client.as_ref(), "--denied-client")?;
    let length = prefix.len().min(peer_id.len());
    peer_id[..length].copy_from_slice(&prefix[..length]);
    Ok(peer_id)
}

pub(crate) fn denied_source(context: &Context<'_>) -> Checked<IpAddr> {
    named(context.target.rules.denied_source.as_ref(), "--denied-source")
}

/// Returns the number of requests that a source may send at once, and the number after which the case fails.
pub(crate) fn limit(context: &Context<'_>) -> Checked<(u32, u32)> {
    let at_once = named(context.target.rules.requests_at_once.as_ref(), "--requests-at-once")?;
    Ok((at_once, at_once.saturating_mul(2).saturating_add(REQUESTS_BEYOND_LIMIT)))
}

pub(crate) fn ensure_text(refusal: &Refusal) -> Checked {
    ensure(!refusal.text.trim().is_empty(), "a text for the user", refusal.described.clone())
}

pub(crate) fn denied_torrent_is_refused<P: Protocol>(context: &Context<'_>) -> Checked {
    is_refused::<P>(context, &Announce::leecher(denied_torrent(context)?, 1001))
}

pub(crate) fn unlisted_torrent_is_refused<P: Protocol>(context: &Context<'_>) -> Checked {
    is_refused::<P>(context, &Announce::leecher(unlisted_torrent(context)?, 1001))
}

pub(crate) fn denied_client_is_refused<P: Protocol>(context: &Context<'_>) -> Checked {
    let announce = Announce::leecher(context.hash(0), 1001);
    is_refused::<P>(context, &Announce { peer_id: denied_client(context, announce.peer_id)?, ..announce })
}

/// Fails the case unless an announce is refused with a text, and the same client is served for another torrent.
fn is_refused<P: Protocol>(context: &Context<'_>, announce: &Announce) -> Checked {
    let client = P::client(context)?;
    ensure_text(&refusal(&client, announce)?)?;
    client.announce(&Announce::leecher(context.hash(0), 1002)).map(drop)
}

fn refusal(client: &impl Client, announce: &Announce) -> Checked<Refusal> {
    match client.react(announce)? {
        Reaction::Refused(refusal) => Ok(refusal),
        other => {
            Err(Unmet::Fail { expected: "an error for this announce".to_owned(), seen: other.describe() })
        }
    }
}

pub(crate) fn refusal_tells_the_reason<P: Protocol>(context: &Context<'_>) -> Checked {
    let words = named(context.target.rules.reason.as_ref(), "--reason")?;
    let announce = Announce::leecher(denied_torrent(context)?, 1001);
    let refusal = refusal(&P::client(context)?, &announce)?;
    ensure(refusal.text.contains(&words), format!("an error with the words {words:?}"), refusal.described)
}

/// A tracker may also drop the packets of such a network, or close its connections.
pub(crate) fn denied_network_is_not_served<P: Protocol>(context: &Context<'_>) -> Checked {
    let source = denied_source(context)?;
    let client = match P::client_at(context, source) {
        Err(Unmet::Fail { .. }) => return Ok(()),
        client => client?,
    };
    match client.react(&Announce::leecher(context.hash(0), 1001)) {
        Ok(served @ Reaction::Served(_)) => ensure(false, "no announce reply", served.describe()),
        Ok(_) | Err(Unmet::Fail { .. }) => Ok(()),
        Err(other) => Err(other),
    }
}

/// The client at such a port may be refused as well.
pub(crate) fn denied_port_is_not_handed_out<P: Protocol>(context: &Context<'_>) -> Checked {
    let port = named(context.target.rules.denied_port.as_ref(), "--denied-port")?;
    let (client, hash) = (P::client(context)?, context.hash(0));
    client.try_announce(&Announce::leecher(hash, port))?;
    // Another peer shows that the tracker hands out some.
    client.announce(&Announce::leecher(hash, 1001))?;
    let reply = client.announce(&Announce::leecher(hash, 1002).wanting(50))?;
    let ports = reply.ports();
    let is_right = ports.contains(&1001) && !ports.contains(&port);
    ensure(is_right, format!("a peer at port 1001, and none at port {port}"), format!("the ports {ports:?}"))
}

/// Returns the first refusal of requests beyond the limit, or `None` if they get no reply.
pub(crate) fn refused_beyond_limit<P: Protocol>(context: &Context<'_>) -> Checked<Option<Refusal>> {
    let (at_once, requests_max) = limit(context)?;
    let client = match context.target.rules.limited_source {
        Some(source) => P::client_at(context, source)?,
        None => P::client(context)?,
    };
    let announce = Announce::leecher(context.hash(0), 1001).wanting(0);
    for _ in 0..requests_max {
        match client.react(&announce)? {
            Reaction::Served(_) => {}
            Reaction::Refused(refusal) => return Ok(Some(refusal)),
            Reaction::Silence => return Ok(None),
        }
    }
    let expected = format!("an error after about {at_once} requests");
    Err(Unmet::Fail { expected, seen: format!("{requests_max} announce replies") })
}
