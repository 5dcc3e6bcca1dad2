//! Messages to clients as a client reads them. [`reply`](super::reply) is how a tracker writes them.

use std::borrow::Cow;

use shoal_types::{InfoHash, PeerId};

use super::Action;
use super::json::{JsonError, Reader};
use super::message::{Field, action_of, number};
use super::text::{NameRoom, OfferId, Text};

/// What a tracker said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received<'m> {
    /// The reply to an announce.
    Announce(AnnounceReply),
    /// Another peer offers to connect.
    Offer(RelayedOffer<'m>),
    /// Another peer answers an offer.
    Answer(RelayedAnswer<'m>),
    /// The reply to a scrape.
    Scrape(ScrapeReply<'m>),
    /// Something is not granted.
    Failure(Failure<'m>),
}

/// The reply to an announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnounceReply {
    /// Which torrent.
    pub info_hash: InfoHash,
    /// Seconds until the next regular announce.
    pub interval_s: u32,
    /// Peers that have everything.
    pub complete: u32,
    /// Peers that still download.
    pub incomplete: u32,
}

/// An offer of another peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayedOffer<'m> {
    /// Which torrent.
    pub info_hash: InfoHash,
    /// Whose it is.
    pub peer_id: PeerId,
    /// What its maker calls it.
    pub offer_id: OfferId<'m>,
    /// The offer as it came: a JSON object.
    pub offer: &'m [u8],
}

/// An answer of another peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayedAnswer<'m> {
    /// Which torrent.
    pub info_hash: InfoHash,
    /// Whose it is.
    pub peer_id: PeerId,
    /// Which offer is answered.
    pub offer_id: OfferId<'m>,
    /// The answer as it came: a JSON object.
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
    /// Peers that have everything.
    pub complete: u32,
    /// Peers that still download.
    pub incomplete: u32,
    /// Downloads completed. Trackers that do not count them may leave it out; then it is 0.
    pub downloaded: u32,
}

/// Something is not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure<'m> {
    /// What is not.
    pub action: Option<Action>,
    /// For which torrent.
    pub info_hash: Option<InfoHash>,
    /// Words for the user.
    pub reason: Cow<'m, str>,
}

/// Why bytes are no message of a tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceivedError {
    /// They are no JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// They are another value than an object.
    #[error("the message is no JSON object")]
    NotAnObject,
    /// A key is missing, or its value is not what it has to be.
    #[error("the message has no valid {key}")]
    Key {
        /// Which.
        key: &'static str,
    },
}

/// Reads a message of a tracker.
///
/// # Errors
/// [`ReceivedError`] for what is none.
pub fn decode(message: &[u8]) -> Result<Received<'_>, ReceivedError> {
    let mut reader = Reader::new(message);
    if reader.kind()? != b'{' {
        reader.value()?;
        reader.end()?;
        return Err(ReceivedError::NotAnObject);
    }
    let mut draft = Draft::default();
    reader.object(|reader, key| draft.member(reader, key))?;
    reader.end()?;
    draft.received()
}

impl<'m> ScrapeReply<'m> {
    /// The torrents and their counts, in the order of the reply.
    pub fn files(self) -> impl Iterator<Item = (InfoHash, ScrapeFile)> + use<'m> {
        entries(self.files).flatten()
    }

    /// The counts of one torrent.
    #[must_use]
    pub fn file(self, info_hash: InfoHash) -> Option<ScrapeFile> {
        self.files().find(|(other, _)| *other == info_hash).map(|(_, file)| file)
    }
}

/// A message as far as it has been read.
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
    fn member(&mut self, reader: &mut Reader<'m>, key: Text<'m>) -> Result<(), JsonError> {
        match key.name(&mut NameRoom::default()) {
            b"action" => self.action = reader.text()?.and_then(action_of),
            b"info_hash" => self.info_hash = Field::of(reader.text()?.and_then(Text::twenty).map(InfoHash)),
            b"peer_id" => self.peer_id = Field::of(reader.text()?.and_then(Text::twenty).map(PeerId)),
            b"offer_id" => self.offer_id = Field::of(reader.text()?.and_then(OfferId::new)),
            b"interval" => self.interval_s = count(reader.value()?),
            b"complete" => self.complete = count(reader.value()?),
            b"incomplete" => self.incomplete = count(reader.value()?),
            b"offer" => self.offer = object(reader.value()?),
            b"answer" => self.answer = object(reader.value()?),
            b"files" => self.files = object(reader.value()?),
            b"failure reason" => self.failure_reason = reader.text()?,
            _ => _ = reader.value()?,
        }
        Ok(())
    }

    /// What has been read, as a whole. A failure may lack everything else.
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

/// The entries of a checked object `files`, each nothing where it is not what it has to be.
fn entries(files: &[u8]) -> impl Iterator<Item = Option<(InfoHash, ScrapeFile)>> {
    let mut reader = Reader::new(files);
    core::iter::from_fn(move || reader.next_member())
        .map(|(info_hash, file)| Some((InfoHash(info_hash.twenty()?), file_of(file)?)))
}

fn file_of(file: &[u8]) -> Option<ScrapeFile> {
    let (mut complete, mut incomplete, mut downloaded) = (None, None, None);
    let mut reader = Reader::new(object(file)?);
    while let Some((key, value)) = reader.next_member() {
        match key.name(&mut NameRoom::default()) {
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
