//! A list of torrents as text, read piece by piece.

use crate::HashKey;
use crate::faults::Faults;
use crate::text::{Lines, decode};

use super::line::{Entry, LINE_BYTES_MAX};
use super::table::{TableBuilder, TableError, TableFull, TorrentTable};

/// Reads a list of torrents, whose text may arrive in pieces of any size.
#[derive(Debug)]
pub struct ListReader {
    lines: Lines,
    entries: EntryReader,
}

#[derive(Debug)]
struct EntryReader {
    builder: TableBuilder,
    faults: Faults,
    full: Option<TableFull>,
}

impl Default for ListReader {
    fn default() -> Self {
        Self::new(TableBuilder::default())
    }
}

impl ListReader {
    /// Creates a reader that adds the torrents to a table.
    pub fn new(builder: TableBuilder) -> Self {
        Self::after(0, Faults::default(), builder)
    }

    /// Creates a reader for text that follows this number of lines, some of them faulty.
    pub fn after(lines: u64, faults: Faults, builder: TableBuilder) -> Self {
        Self {
            lines: Lines::after(lines, LINE_BYTES_MAX),
            entries: EntryReader { builder, faults, full: None },
        }
    }

    /// Returns the number of lines that have ended, including those before the text.
    pub const fn lines(&self) -> u64 {
        self.lines.ended()
    }

    /// Reads the next piece. Returns false if the table is full, so that further pieces are useless.
    pub fn read(&mut self, piece: &[u8]) -> bool {
        let entries = &mut self.entries;
        self.lines.push(piece, |number, line| entries.read(number, line));
        self.entries.full.is_none()
    }

    /// Ends the list, and returns the table of all readable lines, and the faults of the others. Fails if the table
    /// cannot hold all torrents.
    pub fn finish(mut self, key: &HashKey) -> Result<(TorrentTable, Faults), TableError> {
        self.lines.finish(|number, line| self.entries.read(number, line));
        let EntryReader { builder, faults, full } = self.entries;
        if let Some(full) = full {
            return Err(full.into());
        }
        builder.check()?;
        Ok((builder.build(key), faults))
    }
}

impl EntryReader {
    fn read(&mut self, number: u64, line: &[u8]) {
        match Entry::parse(&decode(line)) {
            Ok(None) => {}
            Ok(Some(entry)) => {
                self.faults.count();
                let details = entry.details();
                for info_hash in entry.info_hashes {
                    self.full = self.full.or(self.builder.add(info_hash, details).err());
                }
            }
            Err(error) => self.faults.add(number, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shoal_base::InfoHash;

    use super::*;
    use crate::budget::Budget;

    const KEY: HashKey = HashKey::new([1, 2, 3, 4]);

    fn read(pieces: &[&[u8]]) -> (Vec<(InfoHash, Option<String>)>, Faults) {
        let mut reader = ListReader::default();
        assert!(pieces.iter().all(|piece| reader.read(piece)));
        let (table, faults) = reader.finish(&KEY).unwrap();
        let mut entries: Vec<_> =
            table.iter().map(|(hash, details)| (*hash, details.reason.map(str::to_owned))).collect();
        entries.sort();
        (entries, faults)
    }

    #[test]
    fn faulty_lines_are_counted_and_the_first_are_named() {
        let hash = "ab".repeat(20);
        let text = format!("# a list\r\n{hash} why\r\n\nbad\n{hash}\n{}\nalso bad", "cd".repeat(20));
        let (entries, faults) = read(&[text.as_bytes()]);
        assert_eq!(entries, [(InfoHash([0xab; 20]), Some("why".to_owned())), (InfoHash([0xcd; 20]), None)]);
        assert_eq!((faults.lines, faults.faulty), (5, 2));
        assert!(faults.to_string().starts_with("line 4: it does not begin with an info hash"));
        assert_eq!(faults.named[1].line, 7);
    }

    #[test]
    fn ends_and_encodings_of_other_systems_are_read() {
        let [one, two] = ["ab", "cd"].map(|byte| byte.repeat(20));
        let expected = |reason: &str| {
            vec![(InfoHash([0xab; 20]), Some(reason.to_owned())), (InfoHash([0xcd; 20]), None)]
        };
        for (text, reason) in [
            (format!("{one} why\r{two}\r").into_bytes(), "why"),
            (format!("{one} why\r\n{two}\r\n\x1a").into_bytes(), "why"),
            (format!("{one} why\n{two}\0\0\0").into_bytes(), "why"),
            ([one.as_bytes(), b" Caf\xe9 \x96 removed\n", two.as_bytes()].concat(), "Café – removed"),
        ] {
            let (entries, faults) = read(&[&text]);
            assert_eq!((entries, faults.faulty), (expected(reason), 0), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn a_line_without_an_end_takes_bounded_memory() {
        let mut reader = ListReader::default();
        for _ in 0..1000 {
            reader.read(&[b'a'; 4096]);
        }
        let (table, faults) = reader.finish(&KEY).unwrap();
        assert!(table.is_empty());
        assert_eq!(faults.to_string(), format!("line 1: it has more than {LINE_BYTES_MAX} bytes"));
    }

    #[test]
    fn a_list_that_does_not_fit_is_read_to_its_end_and_takes_nothing() {
        let budget = Budget::new(1 << 20);
        let mut reader = ListReader::new(TableBuilder::within(&budget));
        let text: String = (0..100_000).map(|number| format!("{number:040x}\n")).collect();
        assert!(reader.read(text.as_bytes()));
        assert_eq!(budget.taken(), 0);
        let Err(TableError::Memory(error)) = reader.finish(&KEY) else { panic!("it does not fit") };
        assert!((4_000_000..4_400_000).contains(&error.needed), "{error:?}");
    }

    #[test]
    fn a_list_with_too_many_details_is_refused() {
        let mut builder = TableBuilder::default();
        builder.texts_bytes = super::super::table::TEXTS_BYTES_MAX;
        let mut reader = ListReader::new(builder);
        let [one, two] = ["01", "02"].map(|byte| byte.repeat(20));
        assert!(reader.read(format!("{one}\n{two} why").as_bytes()));
        assert!(!reader.read(b"\n"));
        let fault = reader.finish(&KEY).unwrap_err();
        assert!(fault.to_string().ends_with("512 MiB of details"), "{fault}");
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_are_read_as_one_text(
            text in "([0-9a-f]{39,40}( [a-z#]{0,9})?|[a-z]{0,3})([\r\n]{1,2}([0-9a-f]{40}|[a-z]{0,3})){0,9}",
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
