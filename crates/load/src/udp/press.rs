//! Requests on paper: encoded once, and patched where one differs from the next.
//!
//! Owns a sheet for each kind of request, on which datagrams lie back to back as a bundle takes them.

use shoal_net::BUNDLE_MAX;
use shoal_types::{Event, InfoHash, PeerId};
use shoal_wire::udp::{Announce, ConnectionId, Options, Request, TransactionId};
use zerocopy::FromBytes;

use crate::hash::{info_hash, peer_id};
use crate::population::Say;

/// Datagrams of one kind and size, back to back.
#[derive(Debug)]
pub(super) struct Sheet {
    bytes: Box<[u8]>,
    datagram_bytes: usize,
    count: usize,
}

/// The sheets of one worker.
#[derive(Debug)]
pub(super) struct Press {
    seed: u64,
    /// Peers of different workers have the same numbers, and must not have the same ids.
    worker: u64,
    pub(super) connects: Sheet,
    pub(super) announces: Sheet,
    pub(super) scrapes: Sheet,
}

/// A request begins with connection id, action and transaction id (BEP 15).
const HEAD_BYTES: usize = 16;
const HASH_BYTES: usize = size_of::<InfoHash>();
const ANNOUNCE_BYTES: usize = HEAD_BYTES + size_of::<Announce>();

const NO_CONNECTION: ConnectionId = ConnectionId(0);
const NO_TRANSACTION: TransactionId = TransactionId(0);

impl Press {
    pub(super) fn new(seed: u64, worker: usize, numwant: i32, scrape_hashes_max: usize) -> Self {
        let announce = Announce {
            info_hash: InfoHash([0; HASH_BYTES]),
            peer_id: PeerId([0; 20]),
            downloaded_bytes: 0.into(),
            left_bytes: 0.into(),
            uploaded_bytes: 0.into(),
            event: Announce::event_number(Event::Update),
            ip: [0; 4],
            key: 0x5eed.into(),
            num_want: numwant.into(),
            port: 0.into(),
        };
        let connect = Request::Connect { transaction_id: NO_TRANSACTION };
        let announce = Request::Announce {
            connection_id: NO_CONNECTION,
            transaction_id: NO_TRANSACTION,
            announce: &announce,
            options: Options::default(),
        };
        let scrape = Request::Scrape {
            connection_id: NO_CONNECTION,
            transaction_id: NO_TRANSACTION,
            info_hashes: &vec![InfoHash([0; HASH_BYTES]); scrape_hashes_max],
        };
        Self {
            seed,
            worker: worker as u64,
            connects: Sheet::of(&connect, HEAD_BYTES),
            announces: Sheet::of(&announce, ANNOUNCE_BYTES),
            scrapes: Sheet::of(&scrape, HEAD_BYTES + scrape_hashes_max * HASH_BYTES),
        }
    }

    pub(super) fn connect(&mut self, transaction_id: TransactionId) {
        let datagram = self.connects.next();
        datagram[12..HEAD_BYTES].copy_from_slice(&transaction_id.0.to_be_bytes());
    }

    pub(super) fn announce(&mut self, id: ConnectionId, transaction_id: TransactionId, say: &Say) {
        let (seed, worker) = (self.seed, self.worker);
        let datagram = self.announces.next();
        address(datagram, id, transaction_id);
        let (announce, _) = Announce::mut_from_prefix(&mut datagram[HEAD_BYTES..]).expect("it has that size");
        announce.info_hash = info_hash(seed, say.torrent);
        announce.peer_id = peer_id(seed, worker << 40 | u64::from(say.peer) << 8 | u64::from(say.generation));
        announce.left_bytes.set(say.left_bytes);
        announce.event = Announce::event_number(say.event);
        announce.port.set(say.port);
    }

    /// Adds a scrape of as many torrents as scrapes have at the moment, see [`Press::size_scrapes`].
    pub(super) fn scrape(
        &mut self,
        id: ConnectionId,
        transaction_id: TransactionId,
        mut torrent: impl FnMut() -> u32,
    ) {
        let seed = self.seed;
        let datagram = self.scrapes.next();
        address(datagram, id, transaction_id);
        for hash in datagram[HEAD_BYTES..].chunks_mut(HASH_BYTES) {
            hash.copy_from_slice(&info_hash(seed, torrent()).0);
        }
    }
}

impl Press {
    /// Has scrapes ask for so many torrents; the sheet of scrapes must be empty.
    pub(super) fn size_scrapes(&mut self, hashes: usize) {
        self.scrapes.resize(HEAD_BYTES + hashes * HASH_BYTES);
    }
}

impl Sheet {
    /// A sheet full of copies of `request`, of which none counts yet.
    fn of(request: &Request<'_>, datagram_bytes: usize) -> Self {
        let mut bytes = vec![0; BUNDLE_MAX * datagram_bytes].into_boxed_slice();
        for datagram in bytes.chunks_mut(datagram_bytes) {
            request.encode(datagram).expect("the sheet has room for it");
        }
        Self { bytes, datagram_bytes, count: 0 }
    }

    /// The datagrams so far, and the size of each.
    pub(super) fn bundle(&self) -> (&[u8], usize) {
        (&self.bytes[..self.count * self.datagram_bytes], self.datagram_bytes)
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The transaction ids from datagram `first` on.
    pub(super) fn transactions(&self, first: usize) -> impl Iterator<Item = TransactionId> {
        let datagrams = self.bundle().0.chunks(self.datagram_bytes).skip(first);
        datagrams.map(|datagram| {
            let id = datagram[12..HEAD_BYTES].try_into().expect("four bytes");
            TransactionId(u32::from_be_bytes(id))
        })
    }

    pub(super) fn clear(&mut self) {
        self.count = 0;
    }

    fn next(&mut self) -> &mut [u8] {
        let start = self.count * self.datagram_bytes;
        self.count += 1;
        &mut self.bytes[start..start + self.datagram_bytes]
    }

    /// Makes the datagrams shorter, or longer again. Only their heads stay what they were.
    fn resize(&mut self, datagram_bytes: usize) {
        assert!(self.count == 0, "the datagrams of a bundle have one size");
        if datagram_bytes == self.datagram_bytes {
            return;
        }
        let head: [u8; HEAD_BYTES] = self.bytes[..HEAD_BYTES].try_into().expect("a sheet holds a datagram");
        self.datagram_bytes = datagram_bytes;
        for datagram in self.bytes.chunks_exact_mut(datagram_bytes) {
            datagram[..HEAD_BYTES].copy_from_slice(&head);
        }
    }
}

/// Writes what is new in the head of a datagram.
fn address(datagram: &mut [u8], ConnectionId(id): ConnectionId, TransactionId(transaction): TransactionId) {
    datagram[..8].copy_from_slice(&id.to_be_bytes());
    datagram[12..HEAD_BYTES].copy_from_slice(&transaction.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ConnectionId = ConnectionId(0x0102_0304_0506_0708);

    fn decoded(sheet: &Sheet) -> Vec<Request<'_>> {
        let (bundle, datagram_bytes) = sheet.bundle();
        bundle.chunks(datagram_bytes).map(|datagram| Request::decode(datagram).unwrap()).collect()
    }

    #[test]
    fn announces_say_what_the_peer_says() {
        let mut press = Press::new(9, 2, 30, 10);
        for round in 1..=2 {
            for port in 1..=3 {
                let (event, left_bytes) = (Event::Started, i64::from(port));
                let say = Say { peer: 5, generation: 1, torrent: 77, port, event, left_bytes };
                press.announce(ID, TransactionId(u32::from(port * round)), &say);
            }
            for (port, request) in (1..).zip(decoded(&press.announces)) {
                let Request::Announce { connection_id, transaction_id, announce, .. } = request else {
                    panic!("{request:?}")
                };
                assert_eq!((connection_id, transaction_id), (ID, TransactionId(u32::from(port * round))));
                assert_eq!(announce.info_hash, info_hash(9, 77));
                assert_eq!(announce.peer_id, peer_id(9, 2 << 40 | 5 << 8 | 1));
                assert_eq!((announce.port.get(), announce.num_want.get()), (port, 30));
                assert_eq!((announce.event(), announce.left_bytes.get()), (Event::Started, i64::from(port)));
            }
            assert_eq!(
                press.announces.transactions(2).collect::<Vec<_>>(),
                [TransactionId(u32::from(3 * round))]
            );
            press.announces.clear();
        }
    }

    #[test]
    fn scrapes_of_any_size_stay_scrapes() {
        let mut press = Press::new(9, 2, 30, 10);
        for hashes in [1, 10, 3, 10, 7, 1] {
            press.size_scrapes(hashes);
            let mut torrents = 0..;
            for transaction in 0..4 {
                press.scrape(ID, TransactionId(transaction), || torrents.next().unwrap());
            }
            let mut expected = 0..;
            for request in decoded(&press.scrapes) {
                let Request::Scrape { connection_id, info_hashes, .. } = request else {
                    panic!("{request:?}")
                };
                assert_eq!((connection_id, info_hashes.len()), (ID, hashes));
                let matches = |hash: &InfoHash| *hash == info_hash(9, expected.next().unwrap());
                assert!(info_hashes.iter().all(matches));
            }
            press.scrapes.clear();
        }
    }

    #[test]
    fn connects_differ_by_transaction() {
        let mut press = Press::new(9, 2, 30, 10);
        (1..=3).for_each(|transaction| press.connect(TransactionId(transaction)));
        let expected = [1, 2, 3].map(|id| Request::Connect { transaction_id: TransactionId(id) });
        assert_eq!(decoded(&press.connects), expected);
    }
}
