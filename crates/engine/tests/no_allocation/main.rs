//! Nothing is allocated per request once all clients have joined. This is a separate binary, because it replaces
//! the allocator.

mod http;
mod tokens;
mod udp;

use std::sync::Arc;

use shoal_engine::Now;
use shoal_engine::connection_id::ConnectionKey;
use shoal_store::Store;
use shoal_testkit::allocator::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const NOW: Now = Now { monotonic_s: 1000, monotonic_ms: 1_000_000, unix_s: 1_700_000_000 };
const KEY: ConnectionKey = ConnectionKey::new([7; 16]);
const TORRENTS: u8 = 100;
const HOSTS: u8 = 100;

fn store() -> Arc<Store> {
    let settings = shoal_store::Settings {
        peers_per_source_max: 65_535,
        ..shoal_store::Settings::new(
            256 << 20,
            2700,
            [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89],
        )
    };
    Arc::new(Store::new(&settings).expect("address space"))
}

/// Whether every host of both families has announced every torrent.
fn all_have_joined(store: &Store) -> bool {
    let peers = [store.v4.totals(), store.v6.totals()].map(|totals| totals.seeders + totals.leechers);
    peers == [u64::from(TORRENTS) * u64::from(HOSTS); 2]
}
