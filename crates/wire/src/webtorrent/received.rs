//! Messages to clients, decoded for clients. [`reply`](super::reply) encodes them for trackers.

use std::borrow::Cow;

use shoal_base::{InfoHash, PeerId};

use super::Action;
use super::json::{JsonError, Reader};
use super::message::{Field, action_of, number};
use super::text::{NameBuffer, OfferId, Text};

/// A message of a tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received<'m> {
    /// The reply to an announce.
    Announce(AnnounceReply),
    /// An offer of another peer.
    Offer(RelayedOffer<'m>),
    /// An answer of another peer to an offer.
    Answer(RelayedAnswer<'m>),
    /// The reply to a scrape.
    Scrape(ScrapeReply<'m>),
    /// A refusal.
    Failure(Failure<'m>),
}

/// The reply to an announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnounceReply {
    /// The torrent.
    pub info_hash: InfoHash,
    /// Seconds until the next regular announce.
    pub interval_s: u32,
    /// The number of seeders.
    pub complete: u32,
    /// The number of leechers.
    pub incomplete: u32,
}

/// An offer of another peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayedOffer<'m> {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The peer that sent it.
    pub peer_id: PeerId,
    /// The id that the offerer chose.
    pub offer_id: OfferId<'m>,
    /// The offer as received: a JSON object.
    pub offer: &'m [u8],
}

/// An answer of another peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayedAnswer<'m> {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The peer that sent it.
    pub peer_id: PeerId,
    /// The id of the answered offer.
    pub offer_id: OfferId<'m>,
    /// The answer as received: a JSON object.
    pub answer: &'m [u8],
}

/// The reply to a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrapeReply<'m> {
    /// The checked object.
    files: &'m [u8],
}

/// The counts of a torrent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrapeFile {
    /// The number of seeders.
    pub complete: u32,
    /// The number of leechers.
    pub incomplete: u32,
    /// The number of completed downloads. It is 0 if a tracker omits it.
    pub downloaded: u32,
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure<'m> {
    /// The refused action.
    pub action: Option<Action>,
    /// The torrent.
    pub info_hash: Option<InfoHash>,
    /// The reason, for the user.
    pub reason: Cow<'m, str>,
}

/// The reason why bytes are not a message of a tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceivedError {
    /// The bytes are not JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The bytes are JSON, but not an object.
    #[error("the message is not a JSON object")]
    NotAnObject,
    /// A key is missing or has an invalid value.
    #[error("the message has no valid {key}")]
    Key {
        /// The name of the key.
        key: &'static str,
    },
}

/// Decodes a message of a tracker. Fails if the bytes are not such a message.
pub fn decode(message: &[u8]) -> Result<Received<'_>, ReceivedError> {
    let mut reader = Reader::new(message);
    if reader.kind()? != b'{' {
        reader.value()?;
        reader.end()?;
        return Err(ReceivedError::NotAnObject);
    }
    let mut draft = Draft::default();
    reader.object(|reader, key| {
        match key.name(&mut NameBuffer::default()) {
            b"action" => draft.action = reader.text()?.and_then(action_of),
            b"info_hash" => draft.info_hash = Field::of(reader.text()?.and_then(Text::twenty).map(InfoHash)),
            b"peer_id" => draft.peer_id = Field::of(reader.text()?.and_then(Text::twenty).map(PeerId)),
            b"offer_id" => draft.offer_id = Field::of(reader.text()?.and_then(OfferId::new)),
            b"interval" => draft.interval_s = count(reader.value()?),
            b"complete" => draft.complete = count(reader.value()?),
            b"incomplete" => draft.incomplete = count(reader.value()?),
            b"offer" => draft.offer = object(reader.value()?),
            b"answer" => draft.answer = object(reader.value()?),
            b"files" => draft.files = object(reader.value()?),
            b"failure reason" => draft.failure_reason = reader.text()?,
            _ => _ = reader.value()?,
        }
        Ok(())
    })?;
    reader.end()?;
    draft.received()
}

impl<'m> ScrapeReply<'m> {
    /// Returns the torrents and their counts, in the order of the reply.
    pub fn files(self) -> impl Iterator<Item = (InfoHash, ScrapeFile)> + use<'m> {
        entries(self.files).flatten()
    }

    /// Returns the counts of one torrent.
    pub fn file(self, info_hash: InfoHash) -> Option<ScrapeFile> {
        self.files().find(|(other, _)| *other == info_hash).map(|(_, file)| file)
    }
}

/// The part of a message that has been read.
#[derive(Default)]
struct Draft<'m> {
    action: Option<Action>,
    info_hash: Field<InfoHash>,
    peer_id: Field<PeerId>,
    offer_id: Field<OfferId<'m>>,
    interval_s: Option<u32>,
    complete: Option<u32>,
    incomplete: Option<u32>,
    offer: Option<&'m [u8]>,
    answer: Option<&'m [u8]>,
    files: Option<&'m [u8]>,
    failure_reason: Option<Text<'m>>,
}

impl<'m> Draft<'m> {
    /// Returns the whole message. A failure may lack all other keys.
    fn received(self) -> Result<Received<'m>, ReceivedError> {
        if let Some(reason) = self.failure_reason {
            let (action, info_hash) = (self.action, self.info_hash.good());
            return Ok(Received::Failure(Failure { action, info_hash, reason: reason.for_display() }));
        }
        if let Action::Scrape = require("action", self.action)? {
            let files = require("files", self.files)?;
            require("files", entries(files).all(|entry| entry.is_some()).then_some(()))?;
            return Ok(Received::Scrape(ScrapeReply { files }));
        }
        let info_hash = require("info_hash", self.info_hash.good())?;
        let peer_id = || require("peer_id", self.peer_id.good());
        let offer_id = || require("offer_id", self.offer_id.good());
        Ok(match (self.offer, self.answer) {
            (_, Some(answer)) => Received::Answer(RelayedAnswer {
                info_hash,
                peer_id: peer_id()?,
                offer_id: offer_id()?,
                answer,
            }),
            (Some(offer), None) => {
                Received::Offer(RelayedOffer { info_hash, peer_id: peer_id()?, offer_id: offer_id()?, offer })
            }
            (None, None) => Received::Announce(AnnounceReply {
                info_hash,
                interval_s: require("interval", self.interval_s)?,
                complete: require("complete", self.complete)?,
                incomplete: require("incomplete", self.incomplete)?,
            }),
        })
    }
}

fn require<T>(key: &'static str, value: Option<T>) -> Result<T, ReceivedError> {
    value.ok_or(ReceivedError::Key { key })
}

/// Returns the entries of a checked object `files`. An invalid entry gives `None`.
fn entries(files: &[u8]) -> impl Iterator<Item = Option<(InfoHash, ScrapeFile)>> {
    let mut reader = Reader::new(files);
    core::iter::from_fn(move || reader.next_member())
        .map(|(info_hash, file)| Some((InfoHash(info_hash.twenty()?), file_of(file)?)))
}

fn file_of(file: &[u8]) -> Option<ScrapeFile> {
    let (mut complete, mut incomplete, mut downloaded) = (None, None, None);
    let mut reader = Reader::new(object(file)?);
    while let Some((key, value)) = reader.next_member() {
        match key.name(&mut NameBuffer::default()) {
            b"complete" => complete = count(value),
            b"incomplete" => incomplete = count(value),
            b"downloaded" => downloaded = count(value),
            _ => {}
        }
    }
    Some(ScrapeFile { complete: complete?, incomplete: incomplete?, downloaded: downloaded.unwrap_or(0) })
}

fn count(value: &[u8]) -> Option<u32> {
    number(value).and_then(|number| u32::try_from(number).ok())
}

fn object(value: &[u8]) -> Option<&[u8]> {
    Some(value).filter(|value| value.starts_with(b"{"))
}
