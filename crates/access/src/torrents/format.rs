//! The formats of lists of torrents, recognised by their content.

use std::borrow::Cow;

use super::line::{Entry, LineError};
use super::table::TableFull;
use super::{Details, TableBuilder};

/// The format of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lines, see [`Entry`].
    Lines,
    /// JSON, see [`read_json`](super::read_json).
    Json,
    /// RSS, Atom or another XML, see [`read_feed`](super::read_feed).
    Feed,
    /// A .torrent file, see [`info_hashes`](super::info_hashes).
    Metainfo,
}

impl Format {
    /// Recognises a format by the beginning of the content. Content that looks only like lines has the format of its
    /// declared media type, if any.
    pub fn of(begin: &[u8], media_type: Option<&str>) -> Self {
        let begin = begin.trim_ascii_start();
        match begin {
            [b'[' | b'{', ..] => Self::Json,
            [b'<', ..] => Self::Feed,
            [b'd', rest @ ..] if is_string(rest) => Self::Metainfo,
            _ => match media_type.unwrap_or_default() {
                "application/json" => Self::Json,
                "application/x-bittorrent" => Self::Metainfo,
                xml if xml.ends_with("/xml") || xml.ends_with("+xml") => Self::Feed,
                _ => Self::Lines,
            },
        }
    }
}

/// Returns whether a bencoded string begins here: digits and a colon.
fn is_string(text: &[u8]) -> bool {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && text.get(digits) == Some(&b':')
}

/// Why a document cannot be read to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct DocumentError {
    /// The number of the line, from 1.
    pub line: u64,
    /// The fault, in words for the operator.
    pub fault: String,
}

/// Maximum length of a fault. A longer one quotes the document.
const FAULT_BYTES_MAX: usize = 300;

impl DocumentError {
    /// Creates the error of a line. A fault that is too long is cut off.
    pub(super) fn new(line: u64, fault: &str) -> Self {
        Self { line, fault: shortened(fault).into_owned() }
    }
}

/// Why a text of a document is not added.
#[derive(Debug)]
pub(super) enum AddError {
    /// The text names no torrent. The item is faulty.
    Item(String),
    /// The table is full.
    Full(TableFull),
}

/// Adds the torrents that a text names, by a hash or a magnet link.
pub(super) fn add(text: &str, builder: &mut TableBuilder, reason: Option<&str>) -> Result<(), AddError> {
    let entry = Entry::parse(text).and_then(|entry| entry.ok_or(LineError::NoInfoHash));
    let entry = entry.map_err(|error| AddError::Item(error.to_string()))?;
    let details = Details { reason: reason.or(entry.reason), ..entry.details() };
    entry
        .info_hashes
        .iter()
        .try_for_each(|info_hash| builder.add(*info_hash, details))
        .map_err(AddError::Full)
}

/// Returns a name in its form for comparisons: `info_hash`, `infoHash` and `info-hash` are the same.
pub(super) fn plain_name(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).take(32).collect()
}

/// Shortens a text of a document for a message.
pub(super) fn shortened(text: &str) -> Cow<'_, str> {
    match text.len() {
        0..=FAULT_BYTES_MAX => Cow::Borrowed(text),
        _ => Cow::Owned(format!("{}...", &text[..text.floor_char_boundary(FAULT_BYTES_MAX)])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_cut_at_a_character() {
        let fault = |text: &str| DocumentError::new(1, text).fault;
        assert_eq!(fault(&"x".repeat(300)), "x".repeat(300));
        assert_eq!(fault(&"x".repeat(301)), "x".repeat(300) + "...");
        assert_eq!(
            fault(&("x".to_owned() + &"\u{e9}".repeat(1000))),
            format!("x{}...", "\u{e9}".repeat(149))
        );
    }

    #[test]
    fn formats_are_recognised() {
        for (begin, media_type, format) in [
            ("", None, Format::Lines),
            ("d4aa", None, Format::Lines),
            ("# [", Some("text/plain"), Format::Lines),
            (" \n[", None, Format::Json),
            ("{", Some("text/html"), Format::Json),
            ("x", Some("application/json"), Format::Json),
            ("<?xml", None, Format::Feed),
            ("x", Some("application/rss+xml"), Format::Feed),
            ("d8:announce", None, Format::Metainfo),
            ("x", Some("application/x-bittorrent"), Format::Metainfo),
        ] {
            assert_eq!(Format::of(begin.as_bytes(), media_type), format, "{begin} {media_type:?}");
        }
    }
}
