//! Feeds and catalogues in XML that link torrents: RSS, Atom, OPDS, and others that name info hashes.
//!
//! | Place | Meaning |
//! |---|---|
//! | an element or attribute such as `infoHash`, in any namespace; Torznab's `attr` with that name | an info hash |
//! | text or an attribute that begins with `magnet:` | a magnet link |
//! | `url` or `href` with the type `application/x-bittorrent` or an end in `.torrent`, or such a text of `link` | a .torrent file |
//!
//! A .torrent file counts only if its `item` or `entry` names no torrent otherwise, since it has to be fetched. Names
//! are compared without case, `_`, `-` and namespace. Entities that a document declares are not expanded. An invalid
//! hash is a fault, as in a line.
//!
//! The document is read in pieces. The number of links is limited, and so is the size of a tag or text, which the
//! parser keeps whole.

use std::borrow::Cow;
use std::io::{self, BufRead, Read};

use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::{BytesStart, Event};

use super::TableBuilder;
use super::format::{AddError, DocumentError, add, plain_name};
use super::line::{LINE_BYTES_MAX, parse_hash};
use super::table::TableFull;
use crate::faults::Faults;

/// Maximum nesting of elements.
const DEPTH_MAX: usize = 64;

/// Maximum size of a tag, a text or a comment.
const EVENT_BYTES_MAX: usize = 256 << 10;

/// Maximum number of links of a document.
const LINKS_MAX: usize = 1000;

/// Maximum length of a link.
pub const LINK_BYTES_MAX: usize = 1024;

/// Maximum length of the name of an element. The parser keeps the names of all open elements.
const NAME_BYTES_MAX: usize = 1024;

/// The memory that a document takes while it is read: four copies of a tag, the names of the open elements, and the
/// links of the document and of an item.
pub const READING_BYTES: u64 =
    (5 * EVENT_BYTES_MAX + 2 * DEPTH_MAX * NAME_BYTES_MAX + 2 * LINKS_MAX * LINK_BYTES_MAX) as u64;

/// The media type of .torrent files.
const METAINFO_TYPE: &str = "application/x-bittorrent";

/// The links of a document to .torrent files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// The first links, up to a thousand.
    pub urls: Vec<String>,
    /// The number of further links.
    pub more: u64,
}

impl Links {
    fn push(&mut self, url: String) {
        if self.urls.len() < LINKS_MAX {
            self.urls.push(url);
        } else {
            self.more += 1;
        }
    }

    fn append(&mut self, other: Self) {
        other.urls.into_iter().for_each(|url| self.push(url));
        self.more += other.more;
    }
}

/// Adds the torrents of a document, and appends the links to .torrent files. Counts texts that should name a torrent
/// and do not as faulty. The error says why the document cannot be read to its end; earlier torrents were added.
/// Returns why the document cannot be read to its end. Everything before was added.
pub fn read_feed(
    document: &mut dyn BufRead,
    builder: &mut TableBuilder,
    links: &mut Links,
    faults: &mut Faults,
) -> Result<(), DocumentError> {
    let mut reader = Reader::from_reader(Guard { document, line: 1, rest: EVENT_BYTES_MAX });
    let mut feed = Feed {
        builder,
        links,
        faults,
        line: 1,
        names: Vec::new(),
        text: String::new(),
        item: None,
        root: None,
        torrents: 0,
    };
    let mut buffer = Vec::new();
    loop {
        let event = reader.read_event_into(&mut buffer);
        let guard = reader.get_mut();
        guard.rest = EVENT_BYTES_MAX;
        feed.line = guard.line;
        let (is_end, outcome) = match event {
            Ok(Event::Eof) => (true, feed.end()),
            Ok(event) => (false, feed.take(event)),
            Err(quick_xml::Error::Io(error)) => (true, Err(error.to_string())),
            Err(error) => (true, Err(error.to_string())),
        };
        if is_end || outcome.is_err() {
            return outcome.map_err(|reason| DocumentError::new(feed.line, &reason));
        }
        buffer.clear();
    }
}

/// Counts lines, and bounds what the parser keeps: fails if there are too many bytes since the last event.
struct Guard<'d> {
    document: &'d mut dyn BufRead,
    /// The number of the line, from 1.
    line: u64,
    /// The number of bytes within which the next event must come.
    rest: usize,
}

impl Read for Guard<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?.read(buffer)?;
        self.consume(bytes);
        Ok(bytes)
    }
}

impl BufRead for Guard<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let bytes = self.document.fill_buf()?;
        if self.rest == 0 && !bytes.is_empty() {
            let fault = format!("a tag or a text has more than {} KiB", EVENT_BYTES_MAX >> 10);
            return Err(io::Error::other(fault));
        }
        Ok(&bytes[..bytes.len().min(self.rest)])
    }

    fn consume(&mut self, bytes: usize) {
        if let Ok(read) = self.document.fill_buf() {
            self.line += read[..bytes].iter().filter(|byte| **byte == b'\n').count() as u64;
        }
        self.document.consume(bytes);
        self.rest = self.rest.saturating_sub(bytes);
    }
}

struct Feed<'d> {
    builder: &'d mut TableBuilder,
    links: &'d mut Links,
    faults: &'d mut Faults,
    line: u64,
    /// The names of the open elements.
    names: Vec<String>,
    /// The text of the innermost element, since the last tag.
    text: String,
    item: Option<Item>,
    /// The name of the outermost element.
    root: Option<String>,
    torrents: u64,
}

#[derive(Default)]
struct Item {
    /// Whether the item has named a torrent.
    is_named: bool,
    links: Links,
}

impl Feed<'_> {
    fn take(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::Start(element) => self.start(&element),
            Event::Empty(element) => self.start(&element).and(self.end_element()),
            Event::End(_) => self.end_element(),
            Event::Text(text) => self.push(&String::from_utf8_lossy(&text)),
            Event::CData(text) => self.push(&String::from_utf8_lossy(&text)),
            Event::GeneralRef(name) => {
                let reference = format!("&{};", String::from_utf8_lossy(&name));
                // Entities of the document stay unknown.
                self.push(&unescape(&reference).unwrap_or_default())
            }
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) | Event::Eof => Ok(()),
        }
    }

    fn push(&mut self, text: &str) -> Result<(), String> {
        // A longer text is no magnet link.
        if self.text.len() <= LINE_BYTES_MAX {
            self.text.push_str(text);
        }
        Ok(())
    }

    fn start(&mut self, element: &BytesStart<'_>) -> Result<(), String> {
        if element.name().as_ref().len() > NAME_BYTES_MAX {
            return Err(format!("the name of an element has more than {NAME_BYTES_MAX} bytes"));
        }
        let name = plain_name(&String::from_utf8_lossy(element.local_name().as_ref()));
        self.text.clear();
        if self.root.is_none() {
            self.root = Some(name.clone());
            if self.is_web_page() {
                return Err("it is a web page, not a list".to_owned());
            }
        }
        if is_item(&name) {
            self.item = Some(Item::default());
        }
        self.names.push(name);
        if self.names.len() > DEPTH_MAX {
            return Err(format!("elements are nested deeper than {DEPTH_MAX}"));
        }
        self.read_attributes(element)
    }

    fn read_attributes(&mut self, element: &BytesStart<'_>) -> Result<(), String> {
        let (mut name_of_value, mut value, mut link, mut is_metainfo) = (String::new(), None, None, false);
        // A check for repeated attributes would take time that grows with the square of their number.
        for attribute in element.attributes().with_checks(false) {
            let attribute = attribute.map_err(|error| error.to_string())?;
            let name = plain_name(&String::from_utf8_lossy(attribute.key.local_name().as_ref()));
            let text = String::from_utf8_lossy(&attribute.value);
            let text = unescape(&text).map_or_else(|_| text.clone(), |text| Cow::Owned(text.into_owned()));
            match &*name {
                "url" | "href" => link = Some(text.trim().to_owned()),
                "type" => is_metainfo = text.trim().eq_ignore_ascii_case(METAINFO_TYPE),
                "name" => name_of_value = plain_name(&text),
                "value" => value = Some(text.trim().to_owned()),
                _ => {}
            }
            self.read_text(&name, &text)?;
        }
        if let Some(value) = value {
            self.read_text(&name_of_value, &value)?;
        }
        if let Some(link) = link
            && (is_metainfo || names_metainfo(&link))
        {
            self.link(link);
        }
        Ok(())
    }

    fn end_element(&mut self) -> Result<(), String> {
        let Some(name) = self.names.pop() else { return Ok(()) };
        let text = std::mem::take(&mut self.text);
        let outcome = self.read_text(&name, &text);
        if name == "link" && names_metainfo(text.trim()) {
            self.link(text.trim().to_owned());
        }
        if is_item(&name)
            && let Some(item) = self.item.take()
            && !item.is_named
        {
            self.links.append(item.links);
        }
        outcome
    }

    /// Reads the text of an element, or of an attribute.
    fn read_text(&mut self, name: &str, text: &str) -> Result<(), String> {
        let text = text.trim();
        let is_hash = matches!(name, "infohash" | "infohashv1" | "infohashv2" | "btih") && !text.is_empty();
        let is_magnet = text.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("magnet:?"));
        if !is_hash && !is_magnet {
            return Ok(());
        }
        if is_hash && !is_magnet && parse_hash(text.as_bytes()).is_none() {
            self.faults.add(self.line, format!("{name} is no info hash"));
            return Ok(());
        }
        // A magnet link may name something other than a torrent. Text after a space is not part of it.
        let text = text.split_ascii_whitespace().next().unwrap_or_default();
        match add(text, self.builder, None) {
            Ok(()) => {
                self.torrents += 1;
                self.faults.count();
                if let Some(item) = &mut self.item {
                    item.is_named = true;
                }
                Ok(())
            }
            Err(AddError::Item(_)) => Ok(()),
            Err(AddError::Full(full)) => Err(TableFull::to_string(&full)),
        }
    }

    /// Notes a link to a .torrent file. Links outside of items lead elsewhere.
    fn link(&mut self, link: String) {
        let is_plain = link.len() <= LINK_BYTES_MAX && !link.contains(char::is_control);
        if let Some(item) = self.item.as_mut().filter(|_| is_plain) {
            self.torrents += 1;
            item.links.push(link);
        }
    }

    fn is_web_page(&self) -> bool {
        self.root.as_deref() == Some("html")
    }

    /// Checks the document as a whole.
    fn end(&self) -> Result<(), String> {
        match self.root.as_deref() {
            None => Err("it has no element of XML".to_owned()),
            _ if !self.names.is_empty() => Err("it ends early".to_owned()),
            Some("rss" | "feed" | "rdf") => Ok(()),
            // A server may describe an error in XML.
            Some(_) if self.torrents == 0 => Err("it is no feed, and names no torrent".to_owned()),
            Some(_) => Ok(()),
        }
    }
}

fn is_item(name: &str) -> bool {
    matches!(name, "item" | "entry")
}

/// Returns whether a link names a .torrent file.
fn names_metainfo(link: &str) -> bool {
    let path = link.split(['?', '#']).next().unwrap_or_default();
    path.len() > 8 && path.get(path.len() - 8..).is_some_and(|end| end.eq_ignore_ascii_case(".torrent"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HashKey;

    const KEY: HashKey = HashKey::new([1, 2, 3, 4]);

    fn hex(byte: u8) -> String {
        format!("{byte:02x}").repeat(20)
    }

    fn read(document: &str) -> (Vec<u8>, Vec<String>, Result<(), DocumentError>) {
        let (bytes, links, faults, outcome) = read_all(document);
        let fault = faults.named.first().map(|fault| DocumentError::new(fault.line, &fault.fault));
        (bytes, links.urls, outcome.and(fault.map_or(Ok(()), Err)))
    }

    /// Returns the first bytes of the hashes, the links, the faulty texts, and the fault of the document.
    fn read_all(document: &str) -> (Vec<u8>, Links, Faults, Result<(), DocumentError>) {
        let (mut builder, mut links, mut faults) =
            (TableBuilder::default(), Links::default(), Faults::default());
        let outcome = read_feed(&mut document.as_bytes(), &mut builder, &mut links, &mut faults);
        let mut bytes: Vec<_> = builder.build(&KEY).iter().map(|(hash, _)| hash.0[0]).collect();
        bytes.sort_unstable();
        (bytes, links, faults, outcome)
    }

    #[test]
    fn rss_names_torrents_in_many_ways() {
        let [one, two, three, four, five] = [1, 2, 3, 4, 5].map(hex);
        let document = format!(
            r#"<?xml version="1.0"?><!DOCTYPE rss [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>
            <rss xmlns:nyaa="x" xmlns:torrent="y" xmlns:torznab="z"><channel><link>http://l.example/x.torrent</link>
            <item><title>&b;</title><link>http://l.example/1.torrent</link><nyaa:infoHash> {one} </nyaa:infoHash></item>
            <item><link><![CDATA[magnet:?dn=x&xt=urn:btih:{two}]]></link><enclosure url="2.torrent" length="1"/></item>
            <item><guid>magnet:?dn=x&amp;xt=urn:btih:{three}</guid></item>
            <item><torznab:attr name="infohash" value="{four}"/></item>
            <item><torrent:torrent infohash="{five}"/></item>
            <item><enclosure type="application/x-bittorrent" url="http://l.example/get?id=1&amp;x=y"/></item>
            <item><link>http://l.example/7.Torrent?key=1</link><infohash></infohash></item>
            <item><link>http://l.example/about</link><enclosure url="song.mp3" type="audio/mpeg"/></item>
            </channel></rss>"#
        );
        let (bytes, links, outcome) = read(&document);
        assert_eq!((bytes, outcome), (vec![1, 2, 3, 4, 5], Ok(())));
        assert_eq!(links, ["http://l.example/get?id=1&x=y", "http://l.example/7.Torrent?key=1"]);
    }

    #[test]
    fn atom_and_opds_link_torrents() {
        let document = format!(
            r#"<feed xmlns="http://www.w3.org/2005/Atom"><link rel="self" href="/feed.torrent"/>
            <entry><link rel="enclosure" href="a.torrent"/><link rel="alternate" href="/about"/></entry>
            <entry><link rel="http://opds-spec.org/acquisition" type="Application/X-BitTorrent" href="/get/2"/></entry>
            <entry><link rel="http://opds-spec.org/acquisition" href="magnet:?xt=urn:btih:{}&amp;dn=x"/></entry></feed>"#,
            hex(3)
        );
        let (bytes, links, outcome) = read(&document);
        assert_eq!((bytes, outcome), (vec![3], Ok(())));
        assert_eq!(links, ["a.torrent", "/get/2"]);
        assert_eq!(read("<feed/>"), (Vec::new(), Vec::new(), Ok(())), "a feed may be empty");
        assert_eq!(read(&format!("<list><t btih='{}'/></list>", hex(1))).0, [1], "other documents may not");
    }

    #[test]
    fn whatever_is_no_feed_is_refused() {
        let deep = "<a>".repeat(100_000);
        for (document, line, fault) in [
            ("", 1, "no element"),
            ("<!DOCTYPE html>\n<HTML><body>", 2, "web page"),
            ("<Error><Code>AccessDenied</Code></Error>", 1, "no feed"),
            ("<rss>\n<channel>", 2, "ends early"),
            ("<rss>\n<a></b></rss>", 2, "expected"),
            ("<rss>\n\n<item><infohash>garbage</infohash></item></rss>", 3, "infohash is no info hash"),
            ("<rss><item a=></rss>", 1, ""),
            (&deep, 1, "deeper than 64"),
        ] {
            let error = read(document).2.unwrap_err();
            assert_eq!(error.line, line, "{document:.100}");
            assert!(error.fault.contains(fault), "{error:?} does not contain {fault}");
        }
        let (bytes, _, outcome) =
            read(&format!("<rss><infohash>x</infohash><infohash>{}</infohash></rss>", hex(1)));
        assert!(bytes == [1] && outcome.is_err(), "everything that can be read is read");
    }

    #[test]
    fn many_attributes_take_time_in_proportion() {
        let attributes: String = (0..20_000).map(|number| format!(" a{number}='x'")).collect();
        assert_eq!(read(&format!("<rss{attributes}/>")).2, Ok(()));
    }

    #[test]
    fn many_links_are_counted_and_few_are_kept() {
        let link = "<link>http://l.example/x.torrent</link>";
        let item = format!("<rss><item>{}</item></rss>", link.repeat(100_000));
        let items = format!("<rss>{}</rss>", format!("<item>{link}</item>").repeat(100_000));
        for document in [item, items] {
            let (_, links, _, outcome) = read_all(&document);
            assert_eq!((links.urls.len(), links.more, outcome), (LINKS_MAX, 99_000, Ok(())));
        }
    }

    #[test]
    fn a_tag_without_an_end_takes_bounded_memory() {
        for begin in ["<rss a='", "<rss><!--", "<rss><![CDATA[", "<rss>", "<!DOCTYPE "] {
            let error = read(&format!("{begin}{}", "x".repeat(EVENT_BYTES_MAX + 1))).2.unwrap_err();
            assert!(error.fault.contains("a tag or a text has more than 256 KiB"), "{error}");
        }
    }

    #[test]
    fn names_of_elements_have_a_longest() {
        let document = |bytes: usize| format!("<rss><{0}><item/></{0}></rss>", "n".repeat(bytes));
        assert!(read(&document(NAME_BYTES_MAX)).2.is_ok());
        let refused = read(&document(NAME_BYTES_MAX + 1)).2.unwrap_err().to_string();
        assert!(refused.contains("1024 bytes"), "{refused}");
    }

    #[test]
    fn many_faults_take_time_in_proportion() {
        let faults = "<btih>x</btih>\n".repeat(200_000);
        let error = read(&format!("<rss>\n{faults}</rss>")).2.unwrap_err();
        assert_eq!(error, DocumentError::new(2, "btih is no info hash"));
    }
}
