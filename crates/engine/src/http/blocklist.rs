//! The published deny list, piece by piece: at most one piece is in memory, and no lock is held between two pieces.

use core::fmt::Write;

use shoal_access::torrents::{DenyWalk, Details, Outdated, TorrentLists};
use shoal_base::InfoHash;

/// Size in bytes at which a piece is complete.
const PIECE_BYTES: usize = 20 << 10;

/// Number of entries that a step adds to a piece. One takes less than 4 KiB, even if its whole text needs escapes.
const STEP_ENTRIES: usize = 16;

/// Maximum number of steps per piece, in case an earlier table has most of the entries. An entry takes some tens of
/// nanoseconds for each table.
const STEPS_MAX: usize = 64;

/// The first line of the text form. A program that reads the text as its own list takes it as a comment.
const HEAD: &str = "# torrents that this tracker does not serve\n";

/// The last line of the text form. A list without it is incomplete.
const END: &str = "# end\n";

/// The forms in which the list is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlocklistFormat {
    /// A line for each torrent, in the form that `access.torrents_deny` accepts.
    Text,
    /// An array with an object for each torrent.
    Json,
}

/// The rest of a list.
#[derive(Debug)]
pub struct Blocklist {
    format: BlocklistFormat,
    walk: DenyWalk,
    has_begun: bool,
    has_entries: bool,
    entry: String,
}

impl BlocklistFormat {
    /// Returns the value of the field Content-Type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; charset=utf-8",
            Self::Json => "application/json",
        }
    }
}

impl Blocklist {
    /// Begins the list, or returns `None` if it is not published.
    pub(super) fn new(lists: &TorrentLists, format: BlocklistFormat) -> Option<Self> {
        let walk = DenyWalk::new(lists, lists.publication()?.fields);
        Some(Self { format, walk, has_begun: false, has_entries: false, entry: String::new() })
    }

    /// Returns the size of its heap memory.
    pub const fn held_bytes(&self) -> usize {
        self.walk.held_bytes() + self.entry.capacity()
    }

    /// Appends the next piece to `body`: at most about 80 KiB, sometimes nothing. Returns whether there is more. Must
    /// not be called again after the last piece. Fails if the list has changed. The caller then cuts the reply off.
    pub fn next(&mut self, body: &mut Vec<u8>) -> Result<bool, Outdated> {
        if !self.has_begun {
            body.extend_from_slice(match self.format {
                BlocklistFormat::Text => HEAD.as_bytes(),
                BlocklistFormat::Json => b"[",
            });
            self.has_begun = true;
        }
        let piece_end = body.len() + PIECE_BYTES;
        let Self { format, walk, has_entries, entry, .. } = self;
        for _ in 0..STEPS_MAX {
            let has_more = walk.next(STEP_ENTRIES, |info_hash, details| {
                entry.clear();
                match format {
                    BlocklistFormat::Text => write_line(info_hash, details, entry),
                    BlocklistFormat::Json => {
                        entry.push_str(if *has_entries { ",\n" } else { "\n" });
                        write_object(info_hash, details, entry);
                    }
                }
                *has_entries = true;
                body.extend_from_slice(entry.as_bytes());
            })?;
            if !has_more {
                body.extend_from_slice(match self.format {
                    BlocklistFormat::Text => END.as_bytes(),
                    BlocklistFormat::Json => b"\n]\n",
                });
                return Ok(false);
            }
            if body.len() >= piece_end {
                break;
            }
        }
        Ok(true)
    }
}

fn write_line(info_hash: &InfoHash, details: Details<'_>, out: &mut String) {
    writeln!(out, "{info_hash:?}{details}").expect("writing to a string never fails");
}

fn write_object(info_hash: &InfoHash, details: Details<'_>, out: &mut String) {
    write!(out, "{{\"info_hash\":\"{info_hash:?}\"").expect("writing to a string never fails");
    let fields = [("date", details.date), ("reference", details.reference), ("reason", details.reason)];
    for (name, value) in fields {
        if let Some(value) = value {
            write!(out, ",\"{name}\":\"").expect("writing to a string never fails");
            value.chars().for_each(|c| push_escaped(c, out));
            out.push('"');
        }
    }
    out.push('}');
}

/// Appends a character of a JSON string (RFC 8259, section 7).
fn push_escaped(c: char, out: &mut String) {
    match c {
        '"' | '\\' => out.extend(['\\', c]),
        c if c < ' ' => write!(out, "\\u{:04x}", u32::from(c)).expect("writing to a string never fails"),
        c => out.push(c),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shoal_access::HashKey;
    use shoal_access::torrents::{Publication, PublishedFields, TableBuilder, TorrentTable};

    use super::*;

    const KEY: HashKey = HashKey::new([1, 2, 3, 4]);

    fn table(torrents: u32) -> Arc<TorrentTable> {
        let mut builder = TableBuilder::default();
        for number in 0..torrents {
            let mut bytes = [0; 20];
            bytes[..4].copy_from_slice(&number.to_be_bytes());
            let reason = Some("a \"b\"\\ \tc");
            let details = Details { date: Some("2026-01-31"), reference: Some("case"), reason };
            builder.add(InfoHash(bytes), details).unwrap();
        }
        Arc::new(builder.build(&KEY))
    }

    /// Reads a whole list of these tables. Returns it with the lengths of its pieces.
    fn read(tables: Vec<Arc<TorrentTable>>, format: BlocklistFormat) -> (String, Vec<usize>) {
        let fields = PublishedFields { date: true, reference: false, reason: true };
        let publication = Publication { fields, digest: 1, since_unix_s: 2 };
        let lists = TorrentLists::new(KEY, None, tables).with_publication(Some(publication));
        let (mut list, mut body, mut pieces) =
            (Blocklist::new(&lists, format).unwrap(), Vec::new(), Vec::new());
        let mut has_more = true;
        while has_more {
            let before = body.len();
            has_more = list.next(&mut body).unwrap();
            pieces.push(body.len() - before);
        }
        (String::from_utf8(body).unwrap(), pieces)
    }

    fn whole(torrents: u32, format: BlocklistFormat) -> (String, usize) {
        let (text, pieces) = read(vec![table(torrents)], format);
        (text, pieces.into_iter().max().unwrap())
    }

    #[test]
    fn both_forms_tell_what_is_published() {
        let hash = "0".repeat(40);
        let (text, _) = whole(1, BlocklistFormat::Text);
        assert_eq!(text, format!("{HEAD}{hash} 2026-01-31 a \"b\"\\ \tc\n{END}"));
        let (json, _) = whole(1, BlocklistFormat::Json);
        let object = format!(r#"{{"info_hash":"{hash}","date":"2026-01-31","reason":"a \"b\"\\ \u0009c"}}"#);
        assert_eq!(json, format!("[\n{object}\n]\n"));
        assert_eq!(whole(0, BlocklistFormat::Json).0, "[\n]\n");
        assert_eq!(whole(0, BlocklistFormat::Text).0, format!("{HEAD}{END}"));
    }

    #[test]
    fn a_long_list_comes_in_pieces() {
        for format in [BlocklistFormat::Text, BlocklistFormat::Json] {
            let (text, longest) = whole(5000, format);
            assert_eq!(text.matches("2026-01-31").count(), 5000);
            assert!(longest < 2 * PIECE_BYTES, "{longest}");
        }
    }

    #[test]
    fn a_piece_may_be_empty_but_never_examines_a_whole_list() {
        for format in [BlocklistFormat::Text, BlocklistFormat::Json] {
            let (text, pieces) = read(vec![table(20_000), table(20_000)], format);
            assert_eq!(text.matches("2026-01-31").count(), 20_000);
            let empty = pieces.iter().filter(|bytes| **bytes == 0).count();
            assert_eq!(empty, 20_000 / (STEPS_MAX * STEP_ENTRIES) - 1, "the first piece has the head");
        }
    }
}
