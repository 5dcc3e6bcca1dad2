//! Lists of torrents in JSON.
//!
//! A list is an array, or an object with such an array in one of the fields [`LISTS`]. Its items are texts with an info
//! hash or a magnet link, as lines are, or objects with one in one of the fields [`HASHES`], and a `reason`. Other fields
//! do not matter. Names of fields are compared without case, `_` and `-`.

use core::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::TableBuilder;
use super::format::{DocumentError, add, plain_name};
use super::line::check_reason;

/// The fields of an object that may contain the array.
const LISTS: [&str; 7] = ["torrents", "infohashes", "hashes", "entries", "items", "blocklist", "list"];

/// The fields of an item that name a torrent.
const HASHES: [&str; 8] =
    ["infohash", "hash", "infohashv1", "infohashv2", "btih", "magnet", "magneturi", "magnetlink"];

/// Adds the torrents of a document.
///
/// # Errors
/// Returns the first fault. Everything before it was added.
pub fn read_json(document: &[u8], builder: &mut TableBuilder) -> Result<(), DocumentError> {
    let document = document.strip_prefix(b"\xef\xbb\xbf").unwrap_or(document);
    // The library limits the depth of values that matter to 128, and skips others without recursion.
    let mut deserializer = serde_json::Deserializer::from_slice(document);
    let read = Document(builder).deserialize(&mut deserializer).and_then(|()| deserializer.end());
    read.map_err(|error| {
        let (line, text) = (error.line() as u64, error.to_string());
        // The library appends the place, which is told by lines everywhere else.
        let fault = text.rsplit_once(" at line ").map_or(text.as_str(), |(fault, _)| fault);
        DocumentError::new(line.max(1), fault)
    })
}

/// The whole document.
struct Document<'b>(&'b mut TableBuilder);

/// The array of items.
struct Items<'b>(&'b mut TableBuilder);

/// An item.
struct Item<'b>(&'b mut TableBuilder);

/// The text of a field, or `None` if its value is no text, which is skipped without being kept.
struct Text;

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
        while let Some(name) = fields.next_key::<String>()? {
            if LISTS.contains(&&*plain_name(&name)) {
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

impl<'de> Visitor<'de> for Item<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an info hash, a magnet link, or an object with one")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        add(text, self.0, None).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let (mut names, mut reason) = (Vec::new(), None);
        while let Some(name) = fields.next_key::<String>()? {
            let name = plain_name(&name);
            if HASHES.contains(&&*name) {
                names.extend(fields.next_value_seed(Text)?);
            } else if name == "reason" {
                reason = fields.next_value_seed(Text)?.or(reason);
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        if names.is_empty() {
            return Err(de::Error::custom("the item has no info hash, such as \"info_hash\""));
        }
        let reason = reason.as_deref().map(check_reason).transpose().map_err(de::Error::custom)?.flatten();
        names.iter().try_for_each(|text| add(text, self.0, reason).map_err(de::Error::custom))
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

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Option<String>, A::Error> {
        IgnoredAny.visit_seq(items).map(|_| None)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Option<String>, A::Error> {
        IgnoredAny.visit_map(fields).map(|_| None)
    }
}

#[cfg(test)]
mod tests {
    use shoal_types::InfoHash;

    use super::super::Details;
    use super::*;
    use crate::HashKey;

    const KEY: HashKey = HashKey::new([1, 2, 3, 4]);

    fn hex(byte: u8) -> String {
        format!("{byte:02x}").repeat(20)
    }

    /// The first bytes of the hashes, and the reasons.
    type Entries = Vec<(u8, Option<String>)>;

    fn read(document: &str) -> (Entries, Result<(), DocumentError>) {
        let mut builder = TableBuilder::default();
        let outcome = read_json(document.as_bytes(), &mut builder);
        let table = builder.build(&KEY);
        let entry =
            |(hash, details): (&InfoHash, Details<'_>)| (hash.0[0], details.reason.map(str::to_owned));
        let mut entries: Entries = table.iter().map(entry).collect();
        entries.sort();
        (entries, outcome)
    }

    #[test]
    fn arrays_of_texts_and_objects_are_read() {
        let (one, two, three) = (hex(1), hex(2), hex(3));
        let items = format!(
            r#"["{one}", {{"name": "x", "infoHash": "{two}", "reason": " a notice ", "more": [1, {{}}]}},
            {{"hash": null, "magnet_uri": "magnet:?xt=urn:btih:{three}&dn=x"}}, "{one} again"]"#
        );
        let expected = [(1, Some("again".to_owned())), (2, Some("a notice".to_owned())), (3, None)];
        for document in [items.clone(), format!("\u{feff}\n{{\"version\": 1, \"torrents\": {items}}}")] {
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
            let items = format!("[{{\"hash\": {value}, \"btih\": \"{}\", \"reason\": {value}}}]", hex(1));
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
            ("\"x\"", 1, "expected an array of torrents"),
            ("[", 1, "EOF"),
            ("[] x", 1, "trailing characters"),
            (&deep, 1, "expected an info hash"),
            (&format!("{{\"x\": {deep}"), 1, "EOF"),
            (&format!("[{{\"hash\": \"{}\", \"reason\": \"{}\"}}]", hex(1), "x".repeat(300)), 1, "250 bytes"),
        ] {
            let error = read(document).1.unwrap_err();
            assert_eq!(error.line, line, "{document}");
            assert!(error.fault.contains(fault), "{error:?} does not contain {fault}");
        }
        let (entries, outcome) = read(&format!("[\"{}\", 1]", hex(1)));
        assert!(entries.len() == 1 && outcome.is_err(), "everything before a fault is read");
    }
}
