//! Messages of clients, decoded for trackers.

use core::ops::Range;

use shoal_base::{Event, InfoHash, PeerId};

use super::Action;
use super::json::{JsonError, Reader};
use super::text::{NameBuffer, OfferId, Text};

/// Limits on the content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of offers of an announce. More are dropped.
    pub offers_max: usize,
    /// The maximum length in bytes of one offer or one answer, as JSON.
    pub offer_bytes_max: usize,
    /// The maximum number of torrents of a scrape. More are dropped.
    pub info_hashes_max: usize,
}

/// Storage for the parts of a message that can be numerous. Callers reuse it: it grows to the largest message within
/// the [`Limits`], and then nothing is allocated.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    offers: Vec<OfferRange>,
    info_hashes: Vec<InfoHash>,
}

/// A client's request.
#[derive(Clone, Copy, Debug)]
pub enum Request<'m> {
    /// The client takes part in a swarm, and has offers for other peers.
    Announce(Announce<'m>),
    /// The client answers an offer.
    Answer(Answer<'m>),
    /// The client requests the counts of these swarms. A scrape without torrents requests none.
    Scrape(&'m [InfoHash]),
}

/// An announce.
#[derive(Clone, Copy, Debug)]
pub struct Announce<'m> {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The peer id.
    pub peer_id: PeerId,
    /// The event. Unknown events count as an update, such as `paused` (BEP 21).
    pub event: Event,
    /// The number of bytes that the peer still needs, at least 0. `None` if the key is absent, negative or not a
    /// number, such as `null` before the metadata is known. A number out of range becomes the nearest bound.
    pub left_bytes: Option<i64>,
    /// The number of bytes that the peer has uploaded, at least 0, if the client sends it.
    pub uploaded_bytes: Option<i64>,
    /// The number of bytes that the peer has downloaded, at least 0, if the client sends it.
    pub downloaded_bytes: Option<i64>,
    /// The number of peers that the client wants, if it sends one. A number out of range becomes the nearest bound.
    pub numwant: Option<i64>,
    /// The offers, one for each peer to which the client would connect.
    pub offers: Offers<'m>,
}

/// The valid offers of an announce up to the limit, in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offers<'m> {
    message: &'m [u8],
    ranges: &'m [OfferRange],
}

/// An offer to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer<'m> {
    /// The offer as received: a JSON object or, from some applications, a string. Its content is only for the peers.
    pub offer: &'m [u8],
    /// The id that the offerer chose.
    pub offer_id: OfferId<'m>,
}

/// An answer to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'m> {
    /// The torrent.
    pub info_hash: InfoHash,
    /// The answerer.
    pub peer_id: PeerId,
    /// The offerer.
    pub to_peer_id: PeerId,
    /// The answer as received: a JSON object or a string.
    pub answer: &'m [u8],
    /// The id of the answered offer.
    pub offer_id: OfferId<'m>,
}

/// A refused message, with the values that were found in it: a client with one socket for several torrents needs them
/// to assign the error. If the JSON is malformed, these are the values before the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct Unreadable {
    /// The subject of the message.
    pub action: Option<Action>,
    /// The torrent, if the message concerns exactly one.
    pub info_hash: Option<InfoHash>,
    /// The fault, in words for the user of a client.
    pub fault: Fault,
}

/// A fault of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The message is not JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The message is JSON, but not an object.
    #[error("the message is not a JSON object")]
    NotAnObject,
    /// A key is missing.
    #[error("{key} is missing")]
    Missing {
        /// The name of the key.
        key: &'static str,
    },
    /// The action is unknown.
    #[error("action is neither announce nor scrape")]
    UnknownAction,
    /// A value is not a binary string of 20 bytes.
    #[error("{key} is not 20 characters up to U+00FF")]
    NotTwentyBytes {
        /// The name of the key.
        key: &'static str,
    },
    /// The id of the answered offer is invalid.
    #[error("offer_id is not a string of at most {} characters up to U+00FF", super::OFFER_ID_BYTES_MAX)]
    OfferId,
    /// An answer does not have the form that clients use.
    #[error("answer is neither an object nor a string")]
    Answer,
    /// An answer exceeds the limit.
    #[error("answer is too large")]
    AnswerTooLarge,
}

/// Decodes a message of a client. The whole message is checked to be JSON, including unused values. Fails if the
/// message must be refused.
pub fn decode<'m>(
    message: &'m [u8],
    limits: &Limits,
    storage: &'m mut Storage,
) -> Result<Request<'m>, Unreadable> {
    let mut draft = Draft::default();
    let read = draft.read(message, limits, storage);
    let storage: &'m Storage = storage;
    read.and_then(|()| draft.request(message, limits, storage)).map_err(|fault| Unreadable {
        action: draft.action.good(),
        info_hash: draft.torrents.only(storage),
        fault,
    })
}

impl<'m> Offers<'m> {
    /// Returns the number of offers.
    pub const fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns whether there are no offers.
    pub const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the offers in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Offer<'m>> + use<'m> {
        let message = self.message;
        self.ranges.iter().map(|range| Offer {
            offer: &message[range.offer.clone()],
            offer_id: OfferId::of_checked(&message[range.offer_id.clone()]),
        })
    }
}

/// The position of an offer in its message.
#[derive(Clone, Debug)]
struct OfferRange {
    offer: Range<usize>,
    offer_id: Range<usize>,
}

/// The state of a value that must have a certain form.
#[derive(Clone, Copy, Default)]
pub(super) enum Field<T> {
    #[default]
    Absent,
    /// The value has another form.
    Bad,
    Good(T),
}

/// The state of `info_hash`. The info hashes themselves are in the storage.
#[derive(Clone, Copy, Default)]
enum Torrents {
    #[default]
    Absent,
    Bad,
    One,
    List,
}

/// The part of a message that has been read.
#[derive(Default)]
struct Draft<'m> {
    action: Field<Action>,
    torrents: Torrents,
    peer_id: Field<PeerId>,
    to_peer_id: Field<PeerId>,
    event: Event,
    left_bytes: Option<i64>,
    uploaded_bytes: Option<i64>,
    downloaded_bytes: Option<i64>,
    numwant: Option<i64>,
    /// `null` counts as absent, like for `to_peer_id`.
    answer: Field<&'m [u8]>,
    offer_id: Field<OfferId<'m>>,
}

impl<'m> Draft<'m> {
    fn read(&mut self, message: &'m [u8], limits: &Limits, storage: &mut Storage) -> Result<(), Fault> {
        storage.offers.clear();
        storage.info_hashes.clear();
        let mut reader = Reader::new(message);
        let is_object = reader.kind()? == b'{';
        if is_object {
            reader.object(|reader, key| {
                match key.name(&mut NameBuffer::default()) {
                    b"action" => {
                        self.action = reader.text()?.map_or(Field::Bad, |text| Field::of(action_of(text)));
                    }
                    b"info_hash" => self.torrents = read_torrents(reader, limits, storage)?,
                    b"peer_id" => self.peer_id = read_peer_id(reader)?,
                    b"to_peer_id" if reader.kind()? == b'n' => {
                        reader.value()?;
                        self.to_peer_id = Field::Absent;
                    }
                    b"to_peer_id" => self.to_peer_id = read_peer_id(reader)?,
                    b"event" => self.event = reader.text()?.map_or(Event::Update, event_of),
                    b"left" => self.left_bytes = number(reader.value()?).filter(|&bytes| bytes >= 0),
                    b"uploaded" => self.uploaded_bytes = number(reader.value()?).filter(|&bytes| bytes >= 0),
                    b"downloaded" => {
                        self.downloaded_bytes = number(reader.value()?).filter(|&bytes| bytes >= 0);
                    }
                    b"numwant" => self.numwant = number(reader.value()?),
                    b"offers" => read_offers(reader, limits, storage)?,
                    b"answer" => {
                        self.answer = match reader.value()? {
                            b"null" => Field::Absent,
                            raw => Field::of(is_description(raw).then_some(raw)),
                        };
                    }
                    b"offer_id" => {
                        self.offer_id =
                            reader.text()?.map_or(Field::Bad, |text| Field::of(OfferId::new(text)));
                    }
                    _ => _ = reader.value()?,
                }
                Ok(())
            })?;
        } else {
            reader.value()?;
        }
        reader.end()?;
        if is_object { Ok(()) } else { Err(Fault::NotAnObject) }
    }

    /// Returns the request. A message with an answer, or with the peer id of an offerer, is never an announce, even
    /// with other keys or if malformed: as an announce, it would change the state of its sender.
    fn request(
        &self,
        message: &'m [u8],
        limits: &Limits,
        storage: &'m Storage,
    ) -> Result<Request<'m>, Fault> {
        let is_answer = !matches!((&self.answer, &self.to_peer_id), (Field::Absent, Field::Absent));
        match (self.action.require("action", Fault::UnknownAction)?, is_answer) {
            (Action::Scrape, _) if matches!(self.torrents, Torrents::Bad) => {
                Err(Fault::NotTwentyBytes { key: "info_hash" })
            }
            (Action::Scrape, _) => Ok(Request::Scrape(&storage.info_hashes)),
            (Action::Announce, true) => self.answer(limits, storage),
            (Action::Announce, false) => Ok(Request::Announce(Announce {
                info_hash: self.torrents.require_one(storage)?,
                peer_id: self.peer_id.require_twenty("peer_id")?,
                event: self.event,
                left_bytes: self.left_bytes,
                uploaded_bytes: self.uploaded_bytes,
                downloaded_bytes: self.downloaded_bytes,
                numwant: self.numwant,
                offers: Offers { message, ranges: &storage.offers },
            })),
        }
    }

    fn answer(&self, limits: &Limits, storage: &Storage) -> Result<Request<'m>, Fault> {
        let answer = Answer {
            info_hash: self.torrents.require_one(storage)?,
            peer_id: self.peer_id.require_twenty("peer_id")?,
            to_peer_id: self.to_peer_id.require_twenty("to_peer_id")?,
            answer: self.answer.require("answer", Fault::Answer)?,
            offer_id: self.offer_id.require("offer_id", Fault::OfferId)?,
        };
        if answer.answer.len() > limits.offer_bytes_max {
            return Err(Fault::AnswerTooLarge);
        }
        Ok(Request::Answer(answer))
    }
}

impl<T: Copy> Field<T> {
    /// Returns the field for a value that is present.
    pub(super) fn of(value: Option<T>) -> Self {
        value.map_or(Self::Bad, Self::Good)
    }

    pub(super) const fn good(self) -> Option<T> {
        if let Self::Good(value) = self { Some(value) } else { None }
    }

    fn require(self, key: &'static str, bad: Fault) -> Result<T, Fault> {
        match self {
            Self::Absent => Err(Fault::Missing { key }),
            Self::Bad => Err(bad),
            Self::Good(value) => Ok(value),
        }
    }

    fn require_twenty(self, key: &'static str) -> Result<T, Fault> {
        self.require(key, Fault::NotTwentyBytes { key })
    }
}

impl Torrents {
    /// Returns the torrent, if there is exactly one.
    fn only(self, storage: &Storage) -> Option<InfoHash> {
        match (self, storage.info_hashes.as_slice()) {
            (Self::One | Self::List, [only]) => Some(*only),
            _ => None,
        }
    }

    fn require_one(self, storage: &Storage) -> Result<InfoHash, Fault> {
        let field = match self {
            Self::Absent => Field::Absent,
            Self::Bad | Self::List => Field::Bad,
            Self::One => Field::of(self.only(storage)),
        };
        field.require_twenty("info_hash")
    }
}

fn read_peer_id(reader: &mut Reader<'_>) -> Result<Field<PeerId>, JsonError> {
    Ok(reader.text()?.map_or(Field::Bad, |text| Field::of(text.twenty().map(PeerId))))
}

/// Reads one info hash, an array of them, or none.
fn read_torrents(
    reader: &mut Reader<'_>,
    limits: &Limits,
    storage: &mut Storage,
) -> Result<Torrents, JsonError> {
    let info_hashes = &mut storage.info_hashes;
    info_hashes.clear();
    match reader.kind()? {
        b'[' => {
            let mut are_good = true;
            reader.array(|reader| {
                let info_hash = reader.text()?.and_then(Text::twenty).map(InfoHash);
                are_good &= info_hash.is_some();
                info_hashes.extend(info_hash.filter(|_| info_hashes.len() < limits.info_hashes_max));
                Ok(())
            })?;
            Ok(if are_good { Torrents::List } else { Torrents::Bad })
        }
        b'n' => reader.value().map(|_| Torrents::Absent),
        _ => {
            let info_hash = reader.text()?.and_then(Text::twenty).map(InfoHash);
            info_hashes.extend(info_hash);
            Ok(info_hash.map_or(Torrents::Bad, |_| Torrents::One))
        }
    }
}

/// Returns whether a JSON value may be an offer or an answer: browsers send objects, some applications strings.
const fn is_description(raw: &[u8]) -> bool {
    matches!(raw.first(), Some(b'{' | b'"'))
}

/// Reads the offers. Any value other than an array counts as an empty array: some clients send `null`.
fn read_offers(reader: &mut Reader<'_>, limits: &Limits, storage: &mut Storage) -> Result<(), JsonError> {
    storage.offers.clear();
    if reader.kind()? != b'[' {
        return reader.value().map(drop);
    }
    reader.array(|reader| {
        let offer = read_offer(reader, limits)?;
        storage.offers.extend(offer.filter(|_| storage.offers.len() < limits.offers_max));
        Ok(())
    })
}

fn read_offer(reader: &mut Reader<'_>, limits: &Limits) -> Result<Option<OfferRange>, JsonError> {
    if reader.kind()? != b'{' {
        return reader.value().map(|_| None);
    }
    let (mut offer, mut offer_id) = (None, None);
    reader.object(|reader, key| {
        if key.is("offer") {
            let raw = reader.value()?;
            let is_good = is_description(raw) && raw.len() <= limits.offer_bytes_max;
            offer = is_good.then(|| reader.position_of(raw));
        } else if key.is("offer_id") {
            let good = reader.text()?.and_then(OfferId::new);
            offer_id = good.map(|id| reader.position_of(id.raw()));
        } else {
            reader.value()?;
        }
        Ok(())
    })?;
    Ok(offer.zip(offer_id).map(|(offer, offer_id)| OfferRange { offer, offer_id }))
}

pub(super) fn action_of(text: Text<'_>) -> Option<Action> {
    [Action::Announce, Action::Scrape].into_iter().find(|action| text.is(action.name()))
}

fn event_of(text: Text<'_>) -> Event {
    match text.name(&mut NameBuffer::default()) {
        b"started" => Event::Started,
        b"completed" => Event::Completed,
        b"stopped" => Event::Stopped,
        _ => Event::Update,
    }
}

/// Parses a number. A whole number may be in quotes. A fraction is rounded away from zero, so that only zero gives
/// zero. A number out of range becomes the nearest bound. Any other value gives `None`.
pub(super) fn number(value: &[u8]) -> Option<i64> {
    let text = core::str::from_utf8(value).ok()?;
    let whole = text.trim_matches('"').parse().ok();
    whole.or_else(|| {
        let is_number = value.first().is_some_and(|&first| first == b'-' || first.is_ascii_digit());
        let float: f64 = text.parse().ok().filter(|_| is_number)?;
        #[expect(clippy::cast_possible_truncation, reason = "a cast from floating point ends at the range")]
        Some(if float < 0.0 { float.floor() } else { float.ceil() } as i64)
    })
}
