//! A list of torrents as text, read piece by piece.

use crate::HashKey;

use super::line::{Entry, LINE_BYTES_MAX, LineError};
use super::table::{TEXTS_BYTES_MAX, TORRENTS_MAX, TableBuilder, TorrentTable};

/// The mark with which some editors begin a file in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a list of torrents, whose text may arrive in pieces of any size.
#[derive(Debug, Default)]
pub struct ListReader {
    builder: TableBuilder,
    /// The beginning of a line whose end has not arrived yet.
    line: Vec<u8>,
    /// The number of lines that have ended.
    lines: u64,
    /// The first line that cannot be read, and the number of such lines.
    fault: Option<ListError>,
}

/// Why a list cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// Some lines cannot be read.
    #[error("line {line}: {error}{}", more(*.faulty_lines))]
    Line {
        /// The number of the first one, from 1.
        line: u64,
        /// The fault of that line.
        error: LineError,
        /// The number of such lines.
        faulty_lines: u64,
    },
    /// The list has too many torrents, or too many details.
    #[error("it has more than {TORRENTS_MAX} torrents, or more than {} MiB of details", TEXTS_BYTES_MAX >> 20)]
    Full,
}

/// Tells of further faulty lines.
fn more(faulty_lines: u64) -> String {
    if faulty_lines > 1 { format!(" (and {} more lines)", faulty_lines - 1) } else { String::new() }
}

impl ListReader {
    /// Creates a reader for text that follows this number of lines, so that faults name the right ones.
    #[must_use]
    pub fn after(lines: u64) -> Self {
        Self { lines, ..Self::default() }
    }

    /// Returns the number of lines that have ended, together with those before the text.
    #[must_use]
    pub const fn lines(&self) -> u64 {
        self.lines
    }

    /// Returns whether the table is full, so that there is no use in further pieces.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self.fault, Some(ListError::Full))
    }

    /// Reads the next piece. A full table takes nothing more.
    pub fn read(&mut self, piece: &[u8]) {
        let mut rest = piece;
        while !self.is_full()
            && let Some(end) = rest.iter().position(|byte| *byte == b'\n')
        {
            if self.line.is_empty() {
                self.end_line(&rest[..end]);
            } else {
                self.keep(&rest[..end]);
                let line = core::mem::take(&mut self.line);
                self.end_line(&line);
            }
            rest = &rest[end + 1..];
        }
        self.keep(rest);
    }

    /// Ends the list, and returns the table of all lines that could be read. The second value tells why others could
    /// not.
    #[must_use]
    pub fn finish(mut self, key: &HashKey) -> (TorrentTable, Option<ListError>) {
        if !self.line.is_empty() {
            let line = core::mem::take(&mut self.line);
            self.end_line(&line);
        }
        (self.builder.build(key), self.fault)
    }

    /// Keeps the beginning of a line. A line that is too long stays too long without the rest.
    fn keep(&mut self, part: &[u8]) {
        let room = (BYTE_ORDER_MARK.len() + LINE_BYTES_MAX + 1).saturating_sub(self.line.len());
        self.line.extend_from_slice(&part[..part.len().min(room)]);
    }

    fn end_line(&mut self, line: &[u8]) {
        if self.is_full() {
            return;
        }
        self.lines += 1;
        let line = if self.lines == 1 { line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line) } else { line };
        match Entry::parse(line) {
            Ok(None) => {}
            Ok(Some(entry)) => {
                let details = entry.details();
                for info_hash in entry.info_hashes {
                    if self.builder.add(info_hash, details).is_err() {
                        self.fault = Some(ListError::Full);
                    }
                }
            }
            Err(error) => self.fault = Some(self.another_fault(error)),
        }
    }

    fn another_fault(&self, error: LineError) -> ListError {
        match self.fault {
            None => ListError::Line { line: self.lines, error, faulty_lines: 1 },
            Some(ListError::Line { line, error, faulty_lines }) => {
                ListError::Line { line, error, faulty_lines: faulty_lines + 1 }
            }
            Some(ListError::Full) => ListError::Full,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shoal_types::InfoHash;

    use super::*;

    const KEY: HashKey = HashKey::new([1, 2, 3, 4]);

    fn read(pieces: &[&[u8]]) -> (Vec<(InfoHash, Option<String>)>, Option<ListError>) {
        let mut reader = ListReader::default();
        pieces.iter().for_each(|piece| reader.read(piece));
        let (table, fault) = reader.finish(&KEY);
        let mut entries: Vec<_> =
            table.iter().map(|(hash, details)| (*hash, details.reason.map(str::to_owned))).collect();
        entries.sort();
        (entries, fault)
    }

    #[test]
    fn faulty_lines_are_counted_and_the_first_is_named() {
        let hash = "ab".repeat(20);
        let text = format!("\u{feff}# a list\r\n{hash} why\r\n\nbad\n{hash}\n{}\nalso bad", "cd".repeat(20));
        let (entries, fault) = read(&[text.as_bytes()]);
        assert_eq!(entries, [(InfoHash([0xab; 20]), Some("why".to_owned())), (InfoHash([0xcd; 20]), None)]);
        let expected = ListError::Line { line: 4, error: LineError::NoInfoHash, faulty_lines: 2 };
        assert_eq!(fault, Some(expected));
        assert!(expected.to_string().starts_with("line 4: it does not begin with an info hash"));
        assert!(expected.to_string().ends_with("(and 1 more lines)"));
    }

    #[test]
    fn a_line_without_an_end_takes_bounded_memory() {
        let mut reader = ListReader::default();
        for _ in 0..100 {
            reader.read(&[b'a'; 4096]);
        }
        assert!(reader.line.capacity() <= 4 * LINE_BYTES_MAX);
        let expected = ListError::Line { line: 1, error: LineError::LongLine, faulty_lines: 1 };
        assert_eq!(reader.finish(&KEY).1, Some(expected));
    }

    #[test]
    fn a_full_table_takes_nothing_more() {
        let mut reader = ListReader::default();
        reader.builder.texts_bytes = TEXTS_BYTES_MAX;
        let [one, two, three] = ["01", "02", "03"].map(|byte| byte.repeat(20));
        reader.read(format!("{one}\n{two} why").as_bytes());
        assert!(!reader.is_full());
        reader.read(format!("\n{three}\nbad\n{three}").as_bytes());
        assert!(reader.is_full());
        let (table, fault) = reader.finish(&KEY);
        assert_eq!((table.len(), fault), (1, Some(ListError::Full)));
        assert!(ListError::Full.to_string().ends_with("512 MiB of details"));
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_are_read_as_one_text(
            text in "([0-9a-f]{39,40}( [a-z#]{0,9})?|[a-z]{0,3})(\n([0-9a-f]{40}|[a-z]{0,3})){0,9}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            cuts.sort_unstable();
            let (mut pieces, mut begin) = (Vec::new(), 0);
            for cut in cuts {
                pieces.push(&text.as_bytes()[begin..cut]);
                begin = cut;
            }
            pieces.push(&text.as_bytes()[begin..]);
            prop_assert_eq!(read(&pieces), read(&[text.as_bytes()]));
        }
    }
}
