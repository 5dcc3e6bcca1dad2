//! Requests on paper: encoded once, and patched where one differs from the next.

use shoal_types::{Event, InfoHash, PeerId};
use shoal_wire::http::Version;
use shoal_wire::http::query::PeersForm;
use shoal_wire::http::request::{AnnounceRequest, AnnounceSlots, ScrapeSlots, Target, encode_scrape};

use crate::hash::{info_hash, peer_id};
use crate::population::{LEFT_BYTES, Say};

/// The forms of one worker.
#[derive(Debug)]
pub(super) struct Forms {
    seed: u64,
    /// Peers of different workers have the same numbers, and must not have the same ids.
    worker: u64,
    kept: Set,
    last: Set,
}

/// Where requests go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Letterhead<'l> {
    pub(super) host: &'l str,
    pub(super) announce_path: &'l str,
    pub(super) scrape_path: &'l str,
    pub(super) numwant: i32,
    pub(super) scrape_hashes_max: usize,
}

/// The forms of all kinds of request, either for connections that are kept or for those that are not.
#[derive(Debug)]
struct Set {
    /// By event, and by whether nothing is left to download.
    announces: Vec<[(Vec<u8>, AnnounceSlots); 2]>,
    /// By number of info hashes, from one on.
    scrapes: Vec<(Vec<u8>, ScrapeSlots)>,
}

/// In the order of the forms.
const EVENTS: [Event; 4] = [Event::Update, Event::Started, Event::Completed, Event::Stopped];

const AGENT: (&str, &str) = ("User-Agent", "shoal-lab");

const NO_HASH: InfoHash = InfoHash([0; 20]);

impl Forms {
    pub(super) fn new(letterhead: &Letterhead<'_>, seed: u64, worker: usize) -> Self {
        let set = |keep_alive| Set::new(letterhead, keep_alive);
        Self { seed, worker: worker as u64, kept: set(true), last: set(false) }
    }

    /// Appends an announce; where it `is_last`, with the wish that the connection be closed.
    pub(super) fn announce(&self, say: &Say, is_last: bool, out: &mut Vec<u8>) {
        let event = EVENTS.iter().position(|event| *event == say.event).expect("these are all events");
        let (form, slots) = &self.set(is_last).announces[event][usize::from(say.left_bytes == 0)];
        let number = self.worker << 40 | u64::from(say.peer) << 8 | u64::from(say.generation);
        let request = append(form, out);
        slots.set_info_hash(request, info_hash(self.seed, say.torrent));
        slots.set_peer_id(request, peer_id(self.seed, number));
        slots.set_port(request, say.port);
    }

    /// Appends a scrape of so many torrents.
    pub(super) fn scrape(
        &self,
        hashes: u8,
        mut torrent: impl FnMut() -> u32,
        is_last: bool,
        out: &mut Vec<u8>,
    ) {
        let (form, slots) = &self.set(is_last).scrapes[usize::from(hashes) - 1];
        let request = append(form, out);
        for index in 0..usize::from(hashes) {
            slots.set_info_hash(request, index, info_hash(self.seed, torrent()));
        }
    }

    fn set(&self, is_last: bool) -> &Set {
        if is_last { &self.last } else { &self.kept }
    }
}

impl Set {
    fn new(letterhead: &Letterhead<'_>, keep_alive: bool) -> Self {
        let Letterhead { host, announce_path, scrape_path, numwant, scrape_hashes_max } = *letterhead;
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

/// Appends a copy of a form and hands it out to be filled in.
fn append<'o>(form: &[u8], out: &'o mut Vec<u8>) -> &'o mut [u8] {
    let start = out.len();
    out.extend_from_slice(form);
    &mut out[start..]
}

#[cfg(test)]
mod tests {
    use shoal_wire::http::query::AnnounceQuery;

    use super::*;

    fn forms() -> Forms {
        let letterhead = Letterhead {
            host: "tracker.example",
            announce_path: "/announce",
            scrape_path: "/scrape?key=1",
            numwant: 30,
            scrape_hashes_max: 3,
        };
        Forms::new(&letterhead, 9, 2)
    }

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = b"before".to_vec();
        write(&mut out);
        String::from_utf8(out).unwrap().strip_prefix("before").unwrap().to_owned()
    }

    #[test]
    fn an_announce_says_what_the_peer_says() {
        for event in EVENTS {
            for left_bytes in [0, LEFT_BYTES] {
                let say = Say { peer: 5, generation: 1, torrent: 77, port: 81, event, left_bytes };
                let text = written(|out| forms().announce(&say, false, out));
                let query = text.strip_prefix("GET /announce?").and_then(|rest| rest.split(' ').next());
                let announce = AnnounceQuery::decode(query.unwrap().as_bytes()).unwrap();
                assert_eq!(announce.info_hash, info_hash(9, 77));
                assert_eq!(announce.peer_id, Some(peer_id(9, 2 << 40 | 5 << 8 | 1)));
                assert_eq!((announce.port, announce.event), (81, event));
                assert_eq!(announce.left_bytes, Some(left_bytes.unsigned_abs()));
                assert_eq!((announce.numwant, announce.form), (Some(30), PeersForm::Compact));
                assert!(!text.contains("Connection"), "{text}");
            }
        }
    }

    #[test]
    fn a_scrape_asks_for_each_torrent_and_may_be_the_last_request() {
        for hashes in 1..=3 {
            let mut torrents = 7..;
            let text = written(|out| forms().scrape(hashes, || torrents.next().unwrap(), hashes == 3, out));
            assert!(text.starts_with("GET /scrape?key=1&info_hash="), "{text}");
            assert_eq!(text.matches("&info_hash=").count(), usize::from(hashes), "{text}");
            assert_eq!(text.contains("\r\nConnection: close\r\n"), hashes == 3, "{text}");
            assert_eq!(torrents.next(), Some(7 + u32::from(hashes)));
        }
    }
}
