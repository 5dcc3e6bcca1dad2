//! WebTorrent messages: JSON objects whose binary values are strings with one character for each byte.

use serde_json::Value;

/// The fields of a message to a tracker in their order: names without quotes, and values as JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Returns the announce of a leecher without offers and, like the regular announces of clients, without an event.
    pub(super) fn announce(hash: [u8; 20], peer: u16) -> Self {
        Self::action("announce")
            .and("info_hash", &binary(&hash))
            .and("peer_id", &binary(&peer_id(peer)))
            .and("numwant", "10")
            .and("uploaded", "0")
            .and("downloaded", "0")
            .and("left", "1048576")
    }

    /// Returns the announce of a peer that has everything.
    pub(super) fn seeder(hash: [u8; 20], peer: u16) -> Self {
        Self::announce(hash, peer).with("left", "0")
    }

    pub(super) fn answer(hash: [u8; 20], peer: u16, to_peer: u16, offer_id: &[u8], answer: &str) -> Self {
        Self::action("announce")
            .and("info_hash", &binary(&hash))
            .and("peer_id", &binary(&peer_id(peer)))
            .and("to_peer_id", &binary(&peer_id(to_peer)))
            .and("answer", answer)
            .and("offer_id", &binary(offer_id))
    }

    /// Returns a scrape with `info_hash` as JSON text.
    pub(super) fn scrape(info_hash: &str) -> Self {
        Self::action("scrape").and("info_hash", info_hash)
    }

    pub(super) fn action(action: &str) -> Self {
        Self(Vec::new()).and("action", &format!("\"{action}\""))
    }

    pub(super) fn and(mut self, name: &str, value: &str) -> Self {
        self.0.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Replaces the value of a field in place, or appends the field.
    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        match self.0.iter_mut().find(|(found, _)| found == name) {
            Some((_, found)) => value.clone_into(found),
            None => return self.and(name, value),
        }
        self
    }

    pub(super) fn without(mut self, name: &str) -> Self {
        self.0.retain(|(found, _)| found != name);
        self
    }

    pub(super) fn with_event(self, event: &str) -> Self {
        self.with("event", &format!("\"{event}\""))
    }

    /// Sets these offers, as JSON text, and a numwant of their number.
    pub(super) fn offering(self, offers: &[String]) -> Self {
        self.with("numwant", &offers.len().to_string()).with("offers", &format!("[{}]", offers.join(",")))
    }

    pub(super) fn reversed(mut self) -> Self {
        self.0.reverse();
        self
    }

    /// Encodes a JSON object without white space.
    pub(super) fn text(&self) -> String {
        self.text_with("")
    }

    /// Encodes a JSON object with this white space between all tokens.
    pub(super) fn text_with(&self, space: &str) -> String {
        let field = |(name, value): &(String, String)| format!("{space}\"{name}\"{space}:{space}{value}");
        let fields: Vec<String> = self.0.iter().map(field).collect();
        format!("{space}{{{}{space}}}{space}", fields.join(&format!("{space},")))
    }
}

pub(super) fn peer_id(peer: u16) -> [u8; 20] {
    let mut id = *b"-SL0001-conform\xffws00";
    id[18..].copy_from_slice(&peer.to_be_bytes());
    id
}

pub(super) fn offer(id: &[u8], sdp: &str) -> String {
    offer_of(&format!("{{\"type\":\"offer\",\"sdp\":\"{sdp}\"}}"), id)
}

pub(super) fn offer_of(offer: &str, id: &[u8]) -> String {
    format!("{{\"offer\":{offer},\"offer_id\":{}}}", binary(id))
}

pub(super) fn answer(sdp: &str) -> String {
    format!("{{\"type\":\"answer\",\"sdp\":\"{sdp}\"}}")
}

pub(super) fn offer_id(number: u16) -> [u8; 20] {
    let mut id = *b"offer\xe9------------00";
    let bytes = number.to_be_bytes();
    id[18] = bytes[0];
    id[19] = bytes[1];
    id
}

/// Returns a realistic SDP of about this length, as the contents of a JSON string.
pub(super) fn sdp(bytes: usize) -> String {
    const LINE: &str = r"a=candidate:1 1 UDP 2122252543 192.0.2.1 40000 typ host\r\n";
    let lines = LINE.repeat(bytes.div_ceil(LINE.len()));
    // An escape must not be cut in two.
    lines[..bytes].trim_end_matches('\\').to_owned()
}

/// Encodes bytes as a JSON string, with escapes only where JSON requires them.
pub(super) fn binary(bytes: &[u8]) -> String {
    let write = |&byte: &u8| match byte {
        b'"' | b'\\' => format!("\\{}", char::from(byte)),
        0..0x20 => format!("\\u{byte:04x}"),
        _ => char::from(byte).to_string(),
    };
    format!("\"{}\"", bytes.iter().map(write).collect::<String>())
}

/// Encodes bytes as a JSON string with every character escaped.
pub(super) fn escaped(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.iter().map(|byte| format!("\\u{byte:04X}")).collect::<String>())
}

/// Decodes the bytes of such a string.
pub(super) fn bytes_of(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|character| u8::try_from(u32::from(character)).ok()).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Reply,
    Offer,
    Answer,
    Scrape,
    Failure,
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) raw: Vec<u8>,
    /// The opcode, text or binary.
    pub(super) opcode: u8,
    json: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) complete: i64,
    pub(super) incomplete: i64,
}

impl Message {
    /// Parses a message. Returns a description if it is not a JSON object.
    pub(super) fn read(raw: Vec<u8>, opcode: u8) -> Result<Self, String> {
        match serde_json::from_slice(&raw) {
            Ok(json @ Value::Object(_)) => Ok(Self { raw, opcode, json }),
            Ok(_) => Err("JSON that is not an object".to_owned()),
            Err(error) => Err(format!("invalid JSON ({error})")),
        }
    }

    pub(super) fn kind(&self) -> Kind {
        let has = |key: &str| self.json.get(key).is_some_and(|value| !value.is_null());
        match self.text("action") {
            _ if has("failure reason") => Kind::Failure,
            Some("announce") if has("offer") => Kind::Offer,
            Some("announce") if has("answer") => Kind::Answer,
            Some("announce") => Kind::Reply,
            Some("scrape") => Kind::Scrape,
            _ => Kind::Other,
        }
    }

    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.json.get(key)
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.json.get(key)?.as_str()
    }

    pub(super) fn bytes(&self, key: &str) -> Option<Vec<u8>> {
        bytes_of(self.text(key)?)
    }

    pub(super) fn number(&self, key: &str) -> Option<i64> {
        self.json.get(key)?.as_i64()
    }

    /// Returns the counts, if both are present.
    pub(super) fn counts(&self) -> Option<Counts> {
        Some(Counts { complete: self.number("complete")?, incomplete: self.number("incomplete")? })
    }

    pub(super) fn file(&self, hash: &[u8]) -> Option<&Value> {
        let files = self.json.get("files")?.as_object()?;
        files.iter().find(|(key, _)| bytes_of(key).as_deref() == Some(hash)).map(|(_, file)| file)
    }

    pub(super) fn contains(&self, text: &str) -> bool {
        self.raw.windows(text.len()).any(|window| window == text.as_bytes())
    }

    pub(super) fn describe(&self) -> String {
        shown(&self.raw)
    }
}

pub(super) fn shown(message: &[u8]) -> String {
    const SHOWN_MAX: usize = 240;
    let text = String::from_utf8_lossy(message);
    let dots = if text.chars().count() > SHOWN_MAX { " …" } else { "" };
    let text = text.chars().take(SHOWN_MAX).flat_map(|character| {
        let is_shown = !character.is_control();
        let escape = (!is_shown).then(|| character.escape_default());
        is_shown.then_some(character).into_iter().chain(escape.into_iter().flatten())
    });
    format!("{}{dots}", text.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::{Fields, Kind, Message, binary, bytes_of, escaped, sdp, shown};

    #[test]
    fn both_encodings_of_bytes_are_equivalent() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        for text in [binary(&all), escaped(&all)] {
            let read: String = serde_json::from_str(&text).unwrap();
            assert_eq!(bytes_of(&read), Some(all.clone()));
        }
        assert_eq!(bytes_of("\u{100}"), None);
    }

    #[test]
    fn fields_are_changed_in_place() {
        let fields = Fields::action("scrape").and("a", "1").and("b", "[]");
        assert_eq!(fields.clone().with("a", "2").without("b").text(), r#"{"action":"scrape","a":2}"#);
        assert_eq!(fields.clone().reversed().text(), r#"{"b":[],"a":1,"action":"scrape"}"#);
        assert_eq!(Fields::action("x").text_with(" "), " { \"action\" : \"x\" } ");
    }

    #[test]
    fn kinds_of_messages_are_distinguished() {
        for (text, kind) in [
            (r#"{"action":"announce","interval":120}"#, Kind::Reply),
            (r#"{"action":"announce","offer":{}}"#, Kind::Offer),
            (r#"{"action":"announce","answer":{}}"#, Kind::Answer),
            (r#"{"action":"scrape","files":{}}"#, Kind::Scrape),
            (r#"{"action":"scrape","failure reason":"x"}"#, Kind::Failure),
            (r#"{"interval":120}"#, Kind::Other),
        ] {
            assert_eq!(Message::read(text.into(), 1).unwrap().kind(), kind);
        }
        assert!(Message::read(b"[]".to_vec(), 1).is_err());
        assert!(Message::read(b"{".to_vec(), 1).is_err());
    }

    #[test]
    fn an_sdp_is_a_json_string_of_about_that_length() {
        for bytes in [0, 57, 58, 59, 2500] {
            let text = sdp(bytes);
            assert!(serde_json::from_str::<String>(&format!("\"{text}\"")).is_ok(), "{bytes}");
            assert!(text.len() + 1 >= bytes && text.len() <= bytes);
        }
        assert_eq!(shown(b"a\n"), "a\\n");
    }
}
