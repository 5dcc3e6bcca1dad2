//! Lists of torrents in JSON.
//!
//! A list is an array, or an object with such an array in one of the fields [`LISTS`]. Its items are texts with an info
//! hash or a magnet link, as in lines, or objects with one in one of the fields [`HASHES`], and a `reason`. Other
//! fields do not matter. Names of fields are compared without case, `_` and `-`. Any other item is faulty, like a
//! faulty line.
//!
//! The document is read in pieces. A [`Guard`] in front of the parser bounds what it keeps in memory: a text, and the
//! nesting of skipped values.

use core::cell::{Cell, RefCell};
use core::fmt;
use std::io::{self, BufRead, Read};

use arrayvec::ArrayVec;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use shoal_base::InfoHash;

use super::format::{AddError, DocumentError, add, plain_name, shortened};
use super::line::{Entry, HASHES_MAX, LINE_BYTES_MAX, LineError, check_reason};
use super::{Details, TableBuilder};
use crate::faults::Faults;

/// The fields of an object that may contain the array. Shoal's own API uses the last two.
const LISTS: [&str; 3] = ["torrents", "infohashes", "entries"];

/// The fields of an item that name a torrent.
const HASHES: [&str; 3] = ["infohash", "hash", "magnet"];

/// Maximum written size of a text. A longer one loses its end, and is too long for a line anyway.
const TEXT_BYTES_MAX: usize = 2 * LINE_BYTES_MAX;

/// Maximum nesting of values.
const DEPTH_MAX: usize = 4096;

/// Adds the torrents of a document. Counts and skips faulty items. The error says why the document cannot be read to
/// its end; earlier torrents were added.
pub fn read_json(
    document: &mut dyn BufRead,
    builder: &mut TableBuilder,
    faults: &mut Faults,
) -> Result<(), DocumentError> {
    let line = Cell::new(1);
    let target = Target { builder: RefCell::new(builder), faults: RefCell::new(faults), line: &line };
    let guard = Guard { document, line: &line, text: None, depth: 0 };
    // The library limits the depth of relevant values to 128, and skips others without recursion.
    let mut deserializer = serde_json::Deserializer::from_reader(guard);
    let read = Document(&target).deserialize(&mut deserializer).and_then(|()| deserializer.end());
    read.map_err(|error| {
        let (line, text) = (error.line() as u64, error.to_string());
        // The library appends the place, which this crate reports as a line.
        let fault = text.rsplit_once(" at line ").map_or(text.as_str(), |(fault, _)| fault);
        DocumentError::new(line.max(1), fault)
    })
}

/// Reads a document one byte at a time, and bounds what the parser keeps: cuts texts that are too long, and fails if
/// values are nested too deep. Outside of texts, NULs and Ctrl-Z are space.
struct Guard<'d> {
    document: &'d mut dyn BufRead,
    /// The number of the line, from 1.
    line: &'d Cell<u64>,
    text: Option<OpenText>,
    depth: usize,
}

/// A text whose end has not come yet.
#[derive(Default)]
struct OpenText {
    bytes: usize,
    escape: Escape,
    /// Whether the last escape was the first half of a surrogate pair.
    is_half: bool,
    /// Whether the rest of the text is left out.
    is_cut: bool,
}

/// The part of an escape that was read (RFC 8259, 7).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Escape {
    #[default]
    None,
    /// The backslash.
    Begun,
    /// The first digits of a unit of UTF-16.
    Hex { missing: u8, unit: u32 },
}

impl OpenText {
    /// Takes a byte. Returns whether the text has ended, and whether the byte is left out.
    fn take(&mut self, byte: u8) -> (bool, bool) {
        let is_outside = self.escape == Escape::None;
        let is_end = is_outside && byte == b'"';
        let begins_character = is_outside && !self.is_half && byte & 0xc0 != 0x80;
        self.bytes += 1;
        self.is_cut |= self.bytes > TEXT_BYTES_MAX && begins_character;
        self.escape = match self.escape {
            Escape::None if byte == b'\\' => Escape::Begun,
            Escape::Begun if byte == b'u' => Escape::Hex { missing: 4, unit: 0 },
            Escape::Hex { missing: missing @ 2.., unit } => {
                Escape::Hex { missing: missing - 1, unit: unit << 4 | hex(byte) }
            }
            Escape::Hex { unit, .. } => {
                self.is_half = !self.is_half && matches!(unit << 4 | hex(byte), 0xd800..0xdc00);
                Escape::None
            }
            Escape::None | Escape::Begun => {
                self.is_half = false;
                Escape::None
            }
        };
        (is_end, self.is_cut && !is_end)
    }
}

/// Returns the value of a hexadecimal digit. The parser refuses other characters.
fn hex(byte: u8) -> u32 {
    char::from(byte).to_digit(16).unwrap_or(0)
}

impl Guard<'_> {
    /// Returns the next byte for the parser, if any is left.
    fn next(&mut self) -> io::Result<Option<u8>> {
        loop {
            let Some(&byte) = self.document.fill_buf()?.first() else { return Ok(None) };
            self.document.consume(1);
            self.line.set(self.line.get() + u64::from(byte == b'\n'));
            if let Some(text) = &mut self.text {
                let (is_end, is_left_out) = text.take(byte);
                if is_end {
                    self.text = None;
                }
                if is_left_out {
                    continue;
                }
                return Ok(Some(byte));
            }
            match byte {
                b'"' => self.text = Some(OpenText::default()),
                b'[' | b'{' if self.depth == DEPTH_MAX => {
                    return Err(io::Error::other(format!("values are nested deeper than {DEPTH_MAX}")));
                }
                b'[' | b'{' => self.depth += 1,
                b']' | b'}' => self.depth = self.depth.saturating_sub(1),
                0 | 0x1a => return Ok(Some(b' ')),
                _ => {}
            }
            return Ok(Some(byte));
        }
    }
}

impl Read for Guard<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(place) = buffer.first_mut() else { return Ok(0) };
        Ok(match self.next()? {
            Some(byte) => {
                *place = byte;
                1
            }
            None => 0,
        })
    }
}

struct Target<'b> {
    builder: RefCell<&'b mut TableBuilder>,
    faults: RefCell<&'b mut Faults>,
    line: &'b Cell<u64>,
}

impl Target<'_> {
    /// Counts an item, and its fault if it has one.
    fn count(&self, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.faults.borrow_mut().count(),
            Err(fault) => self.faults.borrow_mut().add(self.line.get(), shortened(&fault)),
        }
    }

    /// Counts an item that is no torrent.
    fn refuse<T: Default, E>(&self) -> Result<T, E> {
        self.count(Err("expected an info hash, a magnet link, or an object with one".to_owned()));
        Ok(T::default())
    }
}

struct Document<'b>(&'b Target<'b>);

struct Items<'b>(&'b Target<'b>);

struct Item<'b>(&'b Target<'b>);

/// The text of a field, or `None` if its value is no text. Such a value is skipped without being stored.
struct Text;

/// The name of a field, in its form for comparisons.
struct FieldName;

/// Implements `DeserializeSeed` by the visitor itself.
macro_rules! seed {
    ($($Seed:ident)+) => {
        $(impl<'de> DeserializeSeed<'de> for $Seed<'_> {
            type Value = ();

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
                deserializer.deserialize_any(self)
            }
        })+
    };
}

seed!(Document Items Item);

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of torrents, or an object with one")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        Items(self.0).visit_seq(items)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut has_list = false;
        while let Some(name) = fields.next_key_seed(FieldName)? {
            if LISTS.contains(&&*name) {
                fields.next_value_seed(Items(self.0))?;
                has_list = true;
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        if has_list { Ok(()) } else { Err(de::Error::custom("the object has no list, such as \"torrents\"")) }
    }
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of torrents")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Item(self.0))?.is_some() {}
        Ok(())
    }
}

/// Implements the methods of a visitor for values that it skips.
macro_rules! skips {
    ($Error:ident => $outcome:expr; $($visit:ident($Value:ty))+) => {
        $(fn $visit<$Error: de::Error>(self, _: $Value) -> Result<Self::Value, $Error> {
            let skipped: fn(Self) -> Result<Self::Value, $Error> = $outcome;
            skipped(self)
        })+
    };
}

impl<'de> Visitor<'de> for Item<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an info hash, a magnet link, or an object with one")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        match add(text, &mut self.0.builder.borrow_mut(), None) {
            Ok(()) => self.0.count(Ok(())),
            Err(AddError::Item(fault)) => self.0.count(Err(fault)),
            Err(AddError::Full(full)) => return Err(E::custom(full)),
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let (mut hashes, mut reason, mut fault) = (ArrayVec::<InfoHash, HASHES_MAX>::new(), None, None);
        while let Some(name) = fields.next_key_seed(FieldName)? {
            if HASHES.contains(&&*name) {
                let Some(text) = fields.next_value_seed(Text)? else { continue };
                match Entry::parse(&text).and_then(|entry| entry.ok_or(LineError::NoInfoHash)) {
                    Ok(entry) => {
                        let has_room = entry.info_hashes.iter().all(|hash| hashes.try_push(*hash).is_ok());
                        fault = fault.or((!has_room).then_some(LineError::ManyHashes));
                    }
                    Err(error) => fault = fault.or(Some(error)),
                }
            } else if name == "reason" {
                reason = fields.next_value_seed(Text)?.or(reason);
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        let reason = match reason.as_deref().map(check_reason).transpose() {
            Ok(reason) => reason.flatten(),
            Err(error) => {
                fault = fault.or(Some(error));
                None
            }
        };
        if let Some(fault) = fault {
            self.0.count(Err(fault.to_string()));
            return Ok(());
        }
        if hashes.is_empty() {
            self.0.count(Err("the item has no info hash, such as \"info_hash\"".to_owned()));
            return Ok(());
        }
        self.0.count(Ok(()));
        let mut builder = self.0.builder.borrow_mut();
        hashes
            .iter()
            .try_for_each(|hash| builder.add(*hash, Details::from(reason)))
            .map_err(de::Error::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        IgnoredAny.visit_seq(items)?;
        self.0.refuse()
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.0.refuse()
    }

    skips! { E => |item| item.0.refuse(); visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) }
}

impl<'de> DeserializeSeed<'de> for FieldName {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for FieldName {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<String, E> {
        Ok(plain_name(name))
    }
}

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<String>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Option<String>, E> {
        Ok(Some(text.to_owned()))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Option<String>, A::Error> {
        IgnoredAny.visit_seq(items).map(|_| None)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Option<String>, A::Error> {
        IgnoredAny.visit_map(fields).map(|_| None)
    }

    skips! { E => |_| Ok(None); visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) }
}

#[cfg(test)]
mod tests {
    use shoal_base::InfoHash;

    use super::super::Details;
    use super::*;
    use crate::HashKey;

    const KEY: HashKey = HashKey::new([1, 2, 3, 4]);

    fn hex(byte: u8) -> String {
        format!("{byte:02x}").repeat(20)
    }

    /// The first bytes of the hashes, and the reasons.
    type Entries = Vec<(u8, Option<String>)>;

    /// Returns the entries, the faulty items, and the fault of the document.
    fn read_all(document: &[u8]) -> (Entries, Faults, Result<(), DocumentError>) {
        let (mut builder, mut faults, mut document) = (TableBuilder::default(), Faults::default(), document);
        let outcome = read_json(&mut document, &mut builder, &mut faults);
        let table = builder.build(&KEY);
        let entry =
            |(hash, details): (&InfoHash, Details<'_>)| (hash.0[0], details.reason.map(str::to_owned));
        let mut entries: Entries = table.iter().map(entry).collect();
        entries.sort();
        (entries, faults, outcome)
    }

    fn read(document: &str) -> (Entries, Result<(), DocumentError>) {
        let (entries, faults, outcome) = read_all(document.as_bytes());
        let fault = faults.named.first().map(|fault| DocumentError::new(fault.line, &fault.fault));
        (entries, outcome.and(fault.map_or(Ok(()), Err)))
    }

    #[test]
    fn arrays_of_texts_and_objects_are_read() {
        let (one, two, three) = (hex(1), hex(2), hex(3));
        let items = format!(
            r#"["{one}", {{"name": "x", "infoHash": "{two}", "reason": " a notice ", "more": [1, {{}}]}},
            {{"hash": null, "Magnet": "magnet:?xt=urn:btih:{three}&dn=x"}}, "{one} again"]"#
        );
        let expected = [(1, Some("again".to_owned())), (2, Some("a notice".to_owned())), (3, None)];
        for document in [items.clone(), format!("\n{{\"version\": 1, \"torrents\": {items}}}\0\x1a")] {
            let (entries, outcome) = read(&document);
            assert_eq!((&entries[..], outcome), (&expected[..], Ok(())), "{document}");
        }
        assert_eq!(read("[]"), (Vec::new(), Ok(())));
    }

    #[test]
    fn a_field_that_is_no_text_is_skipped() {
        let numbers = format!("[{}1]", "1,".repeat(10_000));
        // Values that are kept have at most 128 levels.
        let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
        for value in ["null", "true", "-1", "1", "1.5", "{\"a\": [\"b\"]}", &numbers, &format!("[{deep}]")] {
            let items =
                format!("[{{\"hash\": {value}, \"info_hash\": \"{}\", \"reason\": {value}}}]", hex(1));
            assert_eq!(read(&items), (vec![(1, None)], Ok(())), "{value:.20}");
            let error = read(&format!("[{{\"hash\": {value}}}]")).1.unwrap_err();
            assert!(error.fault.contains("the item has no info hash"), "{error}");
        }
    }

    #[test]
    fn a_fault_does_not_quote_a_long_text() {
        let error = read(&format!("\"{}\"", "\u{e9}".repeat(100_000))).1.unwrap_err();
        assert!(error.fault.len() <= 303 && error.fault.ends_with("..."), "{} bytes", error.fault.len());
    }

    #[test]
    fn the_first_fault_is_named_with_its_line() {
        let deep = "[".repeat(1000);
        for (document, line, fault) in [
            ("[\n\"garbage\"]", 2, "it does not begin with an info hash"),
            ("[\n\n{\"name\": 1}]", 3, "the item has no info hash"),
            ("[7]", 1, "expected an info hash"),
            ("{\"error\": 1}", 1, "the object has no list"),
            ("{\"blocklist\": []}", 1, "the object has no list"),
            ("[{\"btih\": \"x\"}]", 1, "the item has no info hash"),
            ("\"x\"", 1, "expected an array of torrents"),
            ("[", 1, "EOF"),
            ("[] x", 1, "trailing characters"),
            (&deep, 1, "EOF"),
            (&format!("{{\"x\": {deep}"), 1, "EOF"),
            (&format!("[{{\"hash\": \"{}\", \"reason\": \"{}\"}}]", hex(1), "x".repeat(300)), 1, "250 bytes"),
        ] {
            let error = read(document).1.unwrap_err();
            assert_eq!(error.line, line, "{document}");
            assert!(error.fault.contains(fault), "{error:?} does not contain {fault}");
        }
        let (entries, outcome) = read(&format!("[\"{}\", x]", hex(1)));
        assert!(entries.len() == 1 && outcome.is_err(), "everything before a fault is read");
    }

    #[test]
    fn faulty_items_are_counted_and_the_others_count() {
        let document = format!(
            r#"["{}", 1, null, true, 1.5, -1, ["x"],
            {{"hash": "x"}}, {{}}, "garbage", {{"hash": "{}"}}]"#,
            hex(1),
            hex(2)
        );
        let (entries, faults, outcome) = read_all(document.as_bytes());
        assert_eq!((entries.len(), faults.lines, faults.faulty, outcome), (2, 11, 9, Ok(())));
        assert_eq!(faults.named[0].line, 1);
    }

    #[test]
    fn an_item_names_few_torrents_and_takes_little_memory() {
        let names = format!("\"hash\": \"{}\",", hex(1)).repeat(1000);
        let (entries, faults, outcome) = read_all(format!("[{{{names} \"reason\": \"x\"}}]").as_bytes());
        assert_eq!((entries.len(), outcome), (0, Ok(())));
        assert_eq!(faults.named[0].fault, LineError::ManyHashes.to_string());
    }

    #[test]
    fn long_texts_lose_their_end_between_two_characters() {
        for piece in ["x", "\u{e9}", "\u{1d11e}", r"\n", r"\u00e9", r"\ud834\udd1e", r"\\", r#"\""#] {
            for shift in 0..6 {
                let long = "y".repeat(shift) + &piece.repeat(TEXT_BYTES_MAX);
                let document = format!(
                    "[\"{}\", {{\"{long}\": \"{long}\", \"hash\": \"{}\"}}, \"{long}\"]",
                    hex(1),
                    hex(2)
                );
                let (entries, faults, outcome) = read_all(document.as_bytes());
                assert_eq!((entries.len(), faults.faulty, outcome), (2, 1, Ok(())), "{piece}");
            }
        }
    }

    #[test]
    fn values_that_are_skipped_are_not_nested_without_an_end() {
        let deep = format!("[{{\"x\": {}", "[".repeat(1 << 20));
        let error = read(&deep).1.unwrap_err();
        assert!(error.fault.contains("deeper than 4096"), "{error}");
    }
}
