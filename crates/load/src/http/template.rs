//! Request templates: encoded once, and patched where requests differ.

use shoal_base::{Event, InfoHash, PeerId};
use shoal_wire::http::Version;
use shoal_wire::http::query::PeersForm;
use shoal_wire::http::request::{AnnounceRequest, AnnounceSlots, ScrapeSlots, Target, encode_scrape};

use crate::population::{LEFT_BYTES, PeerAnnounce, info_hash, peer_id};

#[derive(Debug)]
pub(super) struct Templates {
    seed: u64,
    /// Distinguishes the peer ids of workers, whose peers have the same numbers.
    worker: u64,
    keep_alive: TemplateSet,
    close: TemplateSet,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct TemplateParameters<'p> {
    pub(super) host: &'p str,
    pub(super) announce_path: &'p str,
    pub(super) scrape_path: &'p str,
    pub(super) numwant: i32,
    pub(super) scrape_hashes_max: usize,
}

/// The templates of all kinds of request, either with keep-alive or with `Connection: close`.
#[derive(Debug)]
struct TemplateSet {
    /// By event, and by whether the peer is a seeder.
    announces: Vec<[(Vec<u8>, AnnounceSlots); 2]>,
    /// By number of info hashes, from 1 on.
    scrapes: Vec<(Vec<u8>, ScrapeSlots)>,
}

/// The events in the order of the templates.
const EVENTS: [Event; 4] = [Event::Update, Event::Started, Event::Completed, Event::Stopped];

const AGENT: (&str, &str) = ("User-Agent", "shoal-lab");

const NO_HASH: InfoHash = InfoHash([0; 20]);

impl Templates {
    pub(super) fn new(parameters: &TemplateParameters<'_>, seed: u64, worker: usize) -> Self {
        let set = |keep_alive| TemplateSet::new(parameters, keep_alive);
        Self { seed, worker: worker as u64, keep_alive: set(true), close: set(false) }
    }

    /// Appends an announce. If it `is_last`, it asks the tracker to close the connection.
    pub(super) fn announce(&self, announce: &PeerAnnounce, is_last: bool, out: &mut Vec<u8>) {
        let PeerAnnounce { peer, generation, torrent, port, event, left_bytes } = *announce;
        let event = EVENTS.iter().position(|other| *other == event).expect("these are all events");
        let (template, slots) = &self.set(is_last).announces[event][usize::from(left_bytes == 0)];
        let number = self.worker << 40 | u64::from(peer) << 8 | u64::from(generation);
        let request = append(template, out);
        slots.set_info_hash(request, info_hash(self.seed, torrent));
        slots.set_peer_id(request, peer_id(self.seed, number));
        slots.set_port(request, port);
    }

    pub(super) fn scrape(
        &self,
        hashes: u8,
        mut torrent: impl FnMut() -> u32,
        is_last: bool,
        out: &mut Vec<u8>,
    ) {
        let (template, slots) = &self.set(is_last).scrapes[usize::from(hashes) - 1];
        let request = append(template, out);
        for index in 0..usize::from(hashes) {
            slots.set_info_hash(request, index, info_hash(self.seed, torrent()));
        }
    }

    fn set(&self, is_last: bool) -> &TemplateSet {
        if is_last { &self.close } else { &self.keep_alive }
    }
}

impl TemplateSet {
    fn new(parameters: &TemplateParameters<'_>, keep_alive: bool) -> Self {
        let TemplateParameters { host, announce_path, scrape_path, numwant, scrape_hashes_max } = *parameters;
        let target = |path| Target { path, host, version: Version::Http11, keep_alive, fields: &[AGENT] };
        let announce = |event, left_bytes: i64| {
            let request = AnnounceRequest {
                info_hash: NO_HASH,
                peer_id: PeerId([0; 20]),
                port: 0,
                left_bytes: left_bytes.unsigned_abs(),
                event,
                numwant: u32::try_from(numwant).ok(),
                form: PeersForm::Compact,
            };
            let mut bytes = Vec::new();
            let slots = request.encode(&target(announce_path), &mut bytes);
            (bytes, slots)
        };
        let scrape = |hashes| {
            let mut bytes = Vec::new();
            let slots = encode_scrape(&target(scrape_path), &vec![NO_HASH; hashes], &mut bytes);
            (bytes, slots)
        };
        Self {
            announces: EVENTS.map(|event| [announce(event, LEFT_BYTES), announce(event, 0)]).into(),
            scrapes: (1..=scrape_hashes_max).map(scrape).collect(),
        }
    }
}

/// Appends a copy of a template. Returns the copy.
fn append<'o>(template: &[u8], out: &'o mut Vec<u8>) -> &'o mut [u8] {
    let start = out.len();
    out.extend_from_slice(template);
    &mut out[start..]
}

#[cfg(test)]
mod tests {
    use shoal_wire::http::query::AnnounceQuery;

    use super::*;

    fn templates() -> Templates {
        let parameters = TemplateParameters {
            host: "tracker.example",
            announce_path: "/announce",
            scrape_path: "/scrape?key=1",
            numwant: 30,
            scrape_hashes_max: 3,
        };
        Templates::new(&parameters, 9, 2)
    }

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = b"before".to_vec();
        write(&mut out);
        String::from_utf8(out).unwrap().strip_prefix("before").unwrap().to_owned()
    }

    #[test]
    fn an_announce_is_that_of_the_peer() {
        for event in EVENTS {
            for left_bytes in [0, LEFT_BYTES] {
                let announce =
                    PeerAnnounce { peer: 5, generation: 1, torrent: 77, port: 81, event, left_bytes };
                let text = written(|out| templates().announce(&announce, false, out));
                let query = text.strip_prefix("GET /announce?").and_then(|rest| rest.split(' ').next());
                let query = AnnounceQuery::decode(query.unwrap().as_bytes()).unwrap();
                assert_eq!(query.info_hash, info_hash(9, 77));
                assert_eq!(query.peer_id, Some(peer_id(9, 2 << 40 | 5 << 8 | 1)));
                assert_eq!((query.port, query.event), (81, event));
                assert_eq!(query.left_bytes, Some(left_bytes.unsigned_abs()));
                assert_eq!((query.numwant, query.form), (Some(30), PeersForm::Compact));
                assert!(!text.contains("Connection"), "{text}");
            }
        }
    }

    #[test]
    fn a_scrape_asks_for_each_torrent_and_may_be_the_last_request() {
        for hashes in 1..=3 {
            let mut torrents = 7..;
            let text =
                written(|out| templates().scrape(hashes, || torrents.next().unwrap(), hashes == 3, out));
            assert!(text.starts_with("GET /scrape?key=1&info_hash="), "{text}");
            assert_eq!(text.matches("&info_hash=").count(), usize::from(hashes), "{text}");
            assert_eq!(text.contains("\r\nConnection: close\r\n"), hashes == 3, "{text}");
            assert_eq!(torrents.next(), Some(7 + u32::from(hashes)));
        }
    }
}
