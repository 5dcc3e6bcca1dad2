//! Request templates: datagrams that are encoded once, and patched where requests differ.
//!
//! Owns a batch for each kind of request, in which datagrams lie back to back, as a bundle needs them.

use shoal_base::{Event, InfoHash, PeerId};
use shoal_net::SEGMENTS_MAX;
use shoal_wire::udp::{Announce, ConnectionId, Options, Request, TransactionId};
use zerocopy::FromBytes;

use crate::population::{PeerAnnounce, info_hash, peer_id};

/// Datagrams of one kind and size, back to back.
#[derive(Debug)]
pub(super) struct DatagramBatch {
    bytes: Box<[u8]>,
    datagram_bytes: usize,
    count: usize,
}

#[derive(Debug)]
pub(super) struct Templates {
    seed: u64,
    /// Distinguishes the peer ids of workers, whose peers have the same numbers.
    worker: u64,
    pub(super) connects: DatagramBatch,
    pub(super) announces: DatagramBatch,
    pub(super) scrapes: DatagramBatch,
}

/// A request begins with connection id, action and transaction id (BEP 15).
const HEAD_BYTES: usize = 16;
const HASH_BYTES: usize = size_of::<InfoHash>();
const ANNOUNCE_BYTES: usize = HEAD_BYTES + size_of::<Announce>();

const NO_CONNECTION: ConnectionId = ConnectionId(0);
const NO_TRANSACTION: TransactionId = TransactionId(0);

impl Templates {
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
            connects: DatagramBatch::of(&connect, HEAD_BYTES),
            announces: DatagramBatch::of(&announce, ANNOUNCE_BYTES),
            scrapes: DatagramBatch::of(&scrape, HEAD_BYTES + scrape_hashes_max * HASH_BYTES),
        }
    }

    pub(super) fn connect(&mut self, transaction_id: TransactionId) {
        let datagram = self.connects.next();
        datagram[12..HEAD_BYTES].copy_from_slice(&transaction_id.0.to_be_bytes());
    }

    pub(super) fn announce(
        &mut self,
        id: ConnectionId,
        transaction_id: TransactionId,
        peer_announce: &PeerAnnounce,
    ) {
        let (seed, worker) = (self.seed, self.worker);
        let datagram = self.announces.next();
        patch_head(datagram, id, transaction_id);
        let (announce, _) = Announce::mut_from_prefix(&mut datagram[HEAD_BYTES..]).expect("it has that size");
        let PeerAnnounce { peer, generation, torrent, port, event, left_bytes } = *peer_announce;
        announce.info_hash = info_hash(seed, torrent);
        announce.peer_id = peer_id(seed, worker << 40 | u64::from(peer) << 8 | u64::from(generation));
        announce.left_bytes.set(left_bytes);
        announce.event = Announce::event_number(event);
        announce.port.set(port);
    }

    /// Adds a scrape, of as many torrents as [`Templates::size_scrapes`] has set.
    pub(super) fn scrape(
        &mut self,
        id: ConnectionId,
        transaction_id: TransactionId,
        mut torrent: impl FnMut() -> u32,
    ) {
        let seed = self.seed;
        let datagram = self.scrapes.next();
        patch_head(datagram, id, transaction_id);
        for hash in datagram[HEAD_BYTES..].chunks_mut(HASH_BYTES) {
            hash.copy_from_slice(&info_hash(seed, torrent()).0);
        }
    }

    /// Sets the number of torrents of the next scrapes. The batch of scrapes must be empty.
    pub(super) fn size_scrapes(&mut self, hashes: usize) {
        let (batch, datagram_bytes) = (&mut self.scrapes, HEAD_BYTES + hashes * HASH_BYTES);
        assert!(batch.count == 0, "the datagrams of a bundle have one size");
        if datagram_bytes == batch.datagram_bytes {
            return;
        }
        let head: [u8; HEAD_BYTES] = batch.bytes[..HEAD_BYTES].try_into().expect("a batch holds a datagram");
        batch.datagram_bytes = datagram_bytes;
        for datagram in batch.bytes.chunks_exact_mut(datagram_bytes) {
            datagram[..HEAD_BYTES].copy_from_slice(&head);
        }
    }
}

impl DatagramBatch {
    /// Returns an empty batch, whose whole capacity is filled with copies of `request`.
    fn of(request: &Request<'_>, datagram_bytes: usize) -> Self {
        let mut bytes = vec![0; SEGMENTS_MAX * datagram_bytes].into_boxed_slice();
        for datagram in bytes.chunks_mut(datagram_bytes) {
            request.encode(datagram).expect("the batch has space for it");
        }
        Self { bytes, datagram_bytes, count: 0 }
    }

    /// Returns the datagrams so far, and the size of each.
    pub(super) fn bundle(&self) -> (&[u8], usize) {
        (&self.bytes[..self.count * self.datagram_bytes], self.datagram_bytes)
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

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

    /// Adds a datagram, which the caller patches.
    fn next(&mut self) -> &mut [u8] {
        let start = self.count * self.datagram_bytes;
        self.count += 1;
        &mut self.bytes[start..start + self.datagram_bytes]
    }
}

fn patch_head(
    datagram: &mut [u8],
    ConnectionId(id): ConnectionId,
    TransactionId(transaction): TransactionId,
) {
    datagram[..8].copy_from_slice(&id.to_be_bytes());
    datagram[12..HEAD_BYTES].copy_from_slice(&transaction.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ConnectionId = ConnectionId(0x0102_0304_0506_0708);

    fn decoded(batch: &DatagramBatch) -> Vec<Request<'_>> {
        let (bundle, datagram_bytes) = batch.bundle();
        bundle.chunks(datagram_bytes).map(|datagram| Request::decode(datagram).unwrap()).collect()
    }

    #[test]
    fn announces_are_those_of_the_peer() {
        let mut templates = Templates::new(9, 2, 30, 10);
        for round in 1..=2 {
            for port in 1..=3 {
                let (event, left_bytes) = (Event::Started, i64::from(port));
                let announce = PeerAnnounce { peer: 5, generation: 1, torrent: 77, port, event, left_bytes };
                templates.announce(ID, TransactionId(u32::from(port * round)), &announce);
            }
            for (port, request) in (1..).zip(decoded(&templates.announces)) {
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
                templates.announces.transactions(2).collect::<Vec<_>>(),
                [TransactionId(u32::from(3 * round))]
            );
            templates.announces.clear();
        }
    }

    #[test]
    fn scrapes_of_any_size_stay_scrapes() {
        let mut templates = Templates::new(9, 2, 30, 10);
        for hashes in [1, 10, 3, 10, 7, 1] {
            templates.size_scrapes(hashes);
            let mut torrents = 0..;
            for transaction in 0..4 {
                templates.scrape(ID, TransactionId(transaction), || torrents.next().unwrap());
            }
            let mut expected = 0..;
            for request in decoded(&templates.scrapes) {
                let Request::Scrape { connection_id, info_hashes, .. } = request else {
                    panic!("{request:?}")
                };
                assert_eq!((connection_id, info_hashes.len()), (ID, hashes));
                let matches = |hash: &InfoHash| *hash == info_hash(9, expected.next().unwrap());
                assert!(info_hashes.iter().all(matches));
            }
            templates.scrapes.clear();
        }
    }

    #[test]
    fn connects_differ_by_transaction() {
        let mut templates = Templates::new(9, 2, 30, 10);
        (1..=3).for_each(|transaction| templates.connect(TransactionId(transaction)));
        let expected = [1, 2, 3].map(|id| Request::Connect { transaction_id: TransactionId(id) });
        assert_eq!(decoded(&templates.connects), expected);
    }
}
