//! Messages of clients.

use core::ops::Range;

use shoal_types::{Event, InfoHash, PeerId};

use super::Action;
use super::json::{JsonError, Reader};
use super::text::{NameRoom, OfferId, Text};

/// How much of a message is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most offers of an announce; further ones are left out.
    pub offers_max: usize,
    /// Most bytes of one offer or one answer, as a JSON object.
    pub offer_bytes_max: usize,
    /// Most torrents of a scrape; further ones are left out.
    pub info_hashes_max: usize,
}

/// Where the parts of a message are noted of which there may be many. It is to be used again and again: it grows to the
/// largest message within the [`Limits`], and from then on nothing is allocated.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    offers: Vec<OfferPlace>,
    info_hashes: Vec<InfoHash>,
}

/// What a client wants.
#[derive(Clone, Copy, Debug)]
pub enum Request<'m> {
    /// It takes part in a swarm, and has offers for others.
    Announce(Announce<'m>),
    /// It answers an offer.
    Answer(Answer<'m>),
    /// It asks how large these swarms are. One that names none, asks for none.
    Scrape(&'m [InfoHash]),
}

/// An announce.
#[derive(Clone, Copy, Debug)]
pub struct Announce<'m> {
    /// Which torrent.
    pub info_hash: InfoHash,
    /// What the peer calls itself.
    pub peer_id: PeerId,
    /// What happened. Unknown events count as an update, such as `paused` (BEP 21).
    pub event: Event,
    /// Bytes that the peer still lacks, at least 0. Unknown where it is absent, negative or no number, as `null` before
    /// the metadata is there. What is out of range becomes the end of the range.
    pub left_bytes: Option<i64>,
    /// How many peers are wanted, if that is said; out of range becomes the end of the range.
    pub numwant: Option<i64>,
    /// One for each peer that it would connect to.
    pub offers: Offers<'m>,
}

/// The offers of an announce: the first good ones, in their order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offers<'m> {
    message: &'m [u8],
    places: &'m [OfferPlace],
}

/// An offer to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer<'m> {
    /// The offer as it came: a JSON object. What is in it is between the peers.
    pub offer: &'m [u8],
    /// What its maker calls it.
    pub offer_id: OfferId<'m>,
}

/// An answer to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'m> {
    /// Which torrent.
    pub info_hash: InfoHash,
    /// Who answers.
    pub peer_id: PeerId,
    /// Who made the offer.
    pub to_peer_id: PeerId,
    /// The answer as it came: a JSON object.
    pub answer: &'m [u8],
    /// Which offer is answered.
    pub offer_id: OfferId<'m>,
}

/// A message that cannot be granted, and what is known of it all the same: clients of one socket tell by that whom an
/// error is for. Where the JSON breaks off, it is what stood before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct Unreadable {
    /// What it is about.
    pub action: Option<Action>,
    /// The torrent, if it is about one.
    pub info_hash: Option<InfoHash>,
    /// What is wrong, in words for the user of a client.
    pub fault: Fault,
}

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is no JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// It is another value than an object.
    #[error("the message is no JSON object")]
    NotAnObject,
    /// A key is not there.
    #[error("{key} is missing")]
    Missing {
        /// Its name.
        key: &'static str,
    },
    /// The action is not known.
    #[error("action is neither announce nor scrape")]
    UnknownAction,
    /// A value is no binary string of 20 bytes.
    #[error("{key} is not 20 characters up to U+00FF")]
    NotTwentyBytes {
        /// Its name.
        key: &'static str,
    },
    /// The id of an answered offer is none.
    #[error("offer_id is no string of at most {} characters up to U+00FF", super::OFFER_ID_BYTES_MAX)]
    OfferId,
    /// An answer has more bytes than are passed on.
    #[error("answer is too large")]
    AnswerTooLarge,
}

/// Reads a message of a client. All of it is checked to be JSON, also what nobody needs.
///
/// # Errors
/// [`Unreadable`] for what cannot be granted.
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
    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The offers in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Offer<'m>> + use<'m> {
        let message = self.message;
        self.places.iter().map(|place| Offer {
            offer: &message[place.offer.clone()],
            offer_id: OfferId::of_checked(&message[place.offer_id.clone()]),
        })
    }
}

/// Where an offer stands in its message.
#[derive(Clone, Debug)]
struct OfferPlace {
    offer: Range<usize>,
    offer_id: Range<usize>,
}

/// What is known of a value that has to have a certain form.
#[derive(Clone, Copy, Default)]
pub(super) enum Field<T> {
    #[default]
    Absent,
    /// It has another form.
    Bad,
    Good(T),
}

/// What `info_hash` has said. The info hashes themselves are in the storage.
#[derive(Clone, Copy, Default)]
enum Torrents {
    #[default]
    Absent,
    Bad,
    One,
    List,
}

/// A message as far as it has been read.
#[derive(Default)]
struct Draft<'m> {
    action: Field<Action>,
    torrents: Torrents,
    peer_id: Field<PeerId>,
    to_peer_id: Field<PeerId>,
    event: Event,
    left_bytes: Option<i64>,
    numwant: Option<i64>,
    answer: Option<&'m [u8]>,
    offer_id: Field<OfferId<'m>>,
}

impl<'m> Draft<'m> {
    fn read(&mut self, message: &'m [u8], limits: &Limits, storage: &mut Storage) -> Result<(), Fault> {
        storage.offers.clear();
        storage.info_hashes.clear();
        let mut reader = Reader::new(message);
        let is_object = reader.kind()? == b'{';
        if is_object {
            reader.object(|reader, key| self.member(reader, key, limits, storage))?;
        } else {
            reader.value()?;
        }
        reader.end()?;
        if is_object { Ok(()) } else { Err(Fault::NotAnObject) }
    }

    fn member(
        &mut self,
        reader: &mut Reader<'m>,
        key: Text<'m>,
        limits: &Limits,
        storage: &mut Storage,
    ) -> Result<(), JsonError> {
        match key.name(&mut NameRoom::default()) {
            b"action" => self.action = reader.text()?.map_or(Field::Bad, |text| Field::of(action_of(text))),
            b"info_hash" => self.torrents = read_torrents(reader, limits, storage)?,
            b"peer_id" => self.peer_id = read_peer_id(reader)?,
            b"to_peer_id" => self.to_peer_id = read_peer_id(reader)?,
            b"event" => self.event = reader.text()?.map_or(Event::Update, event_of),
            b"left" => self.left_bytes = number(reader.value()?).filter(|&left_bytes| left_bytes >= 0),
            b"numwant" => self.numwant = number(reader.value()?),
            b"offers" => read_offers(reader, limits, storage)?,
            b"answer" => self.answer = Some(reader.value()?).filter(|answer| answer.starts_with(b"{")),
            b"offer_id" => {
                self.offer_id = reader.text()?.map_or(Field::Bad, |text| Field::of(OfferId::new(text)))
            }
            _ => _ = reader.value()?,
        }
        Ok(())
    }

    /// What has been read, as a whole. A message with an answer is no announce, whatever else it has.
    fn request(
        &self,
        message: &'m [u8],
        limits: &Limits,
        storage: &'m Storage,
    ) -> Result<Request<'m>, Fault> {
        match (self.action.require("action", Fault::UnknownAction)?, self.answer) {
            (Action::Scrape, _) => self.scrape(storage),
            (Action::Announce, Some(answer)) => self.answer(answer, limits, storage),
            (Action::Announce, None) => self.announce(message, storage),
        }
    }

    fn scrape(&self, storage: &'m Storage) -> Result<Request<'m>, Fault> {
        match self.torrents {
            Torrents::Bad => Err(Fault::NotTwentyBytes { key: "info_hash" }),
            Torrents::Absent | Torrents::One | Torrents::List => Ok(Request::Scrape(&storage.info_hashes)),
        }
    }

    fn answer(&self, answer: &'m [u8], limits: &Limits, storage: &Storage) -> Result<Request<'m>, Fault> {
        let answer = Answer {
            info_hash: self.torrents.require_one(storage)?,
            peer_id: self.peer_id.require_twenty("peer_id")?,
            to_peer_id: self.to_peer_id.require_twenty("to_peer_id")?,
            answer,
            offer_id: self.offer_id.require("offer_id", Fault::OfferId)?,
        };
        if answer.answer.len() > limits.offer_bytes_max {
            return Err(Fault::AnswerTooLarge);
        }
        Ok(Request::Answer(answer))
    }

    fn announce(&self, message: &'m [u8], storage: &'m Storage) -> Result<Request<'m>, Fault> {
        Ok(Request::Announce(Announce {
            info_hash: self.torrents.require_one(storage)?,
            peer_id: self.peer_id.require_twenty("peer_id")?,
            event: self.event,
            left_bytes: self.left_bytes,
            numwant: self.numwant,
            offers: Offers { message, places: &storage.offers },
        }))
    }
}

impl<T: Copy> Field<T> {
    /// A value that is there.
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
    /// The torrent, if there is exactly one.
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

/// One info hash, an array of them, or none.
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

/// What is no array is as good as an empty one: `null` is what some clients send.
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

/// An offer, unless something about it is wrong.
fn read_offer(reader: &mut Reader<'_>, limits: &Limits) -> Result<Option<OfferPlace>, JsonError> {
    if reader.kind()? != b'{' {
        return reader.value().map(|_| None);
    }
    let (mut offer, mut offer_id) = (None, None);
    reader.object(|reader, key| {
        if key.is("offer") {
            let raw = reader.value()?;
            let is_good = raw.starts_with(b"{") && raw.len() <= limits.offer_bytes_max;
            offer = is_good.then(|| reader.place_of(raw));
        } else if key.is("offer_id") {
            let good = reader.text()?.and_then(OfferId::new);
            offer_id = good.map(|id| reader.place_of(id.raw()));
        } else {
            reader.value()?;
        }
        Ok(())
    })?;
    Ok(offer.zip(offer_id).map(|(offer, offer_id)| OfferPlace { offer, offer_id }))
}

pub(super) fn action_of(text: Text<'_>) -> Option<Action> {
    [Action::Announce, Action::Scrape].into_iter().find(|action| text.is(action.name()))
}

fn event_of(text: Text<'_>) -> Event {
    match text.name(&mut NameRoom::default()) {
        b"started" => Event::Started,
        b"completed" => Event::Completed,
        b"stopped" => Event::Stopped,
        _ => Event::Update,
    }
}

/// Reads a number, also one in quotes if it is whole. A fraction goes to the next number away from zero, so that only
/// zero is zero; what is out of range becomes the end of the range. Anything else is no number.
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
