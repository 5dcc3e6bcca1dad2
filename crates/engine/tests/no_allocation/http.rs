//! Nothing is allocated per HTTP request.

use std::net::IpAddr;
use std::sync::Arc;

use shoal_access::token::Url;
use shoal_engine::context::Context;
use shoal_engine::counter::Tally;
use shoal_engine::http::Responder;
use shoal_engine::policy::{Policy, Protocol};

use crate::{HOSTS, NOW, TORRENTS, all_have_joined, store};

/// Capacity for any reply, so that only the responder's own allocations are seen.
const BODY_BYTES: usize = 256 << 10;

fn ip(host: u8, v6: bool) -> IpAddr {
    if v6 { IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, host.into()]) } else { IpAddr::from([10, 0, 0, host]) }
}

fn named(torrent: u8) -> String {
    format!("info_hash={}", format!("%{torrent:02x}").repeat(20))
}

/// Returns a random query of an announce in either form or of a scrape; some are truncated. The parameters that
/// identify the client come before the torrent, so that a truncated query has no other meaning.
fn query(rng: &mut fastrand::Rng, host: u8, scrapes: bool) -> String {
    let left = u8::from(host >= HOSTS / 2);
    let mut query = format!("port=6881&left={left}&{}", named(rng.u8(0..TORRENTS)));
    if scrapes {
        (0..rng.u32(0..100)).for_each(|_| query += &format!("&{}", named(rng.u8(0..TORRENTS))));
    } else {
        let (compact, numwant) = (rng.u8(0..2), rng.i32(-1..200));
        query += &format!("&peer_id=-XX0001-abcdefghijkl&compact={compact}&numwant={numwant}");
    }
    if rng.u32(0..20) == 0 {
        query.truncate(rng.usize(0..query.len()));
    }
    query
}

#[test]
fn the_steady_state_allocates_nothing() {
    let store = store();
    let mut rng = fastrand::Rng::with_seed(5);
    let mut responder = Responder::new(
        Context::new(
            Protocol::Http,
            Arc::new(Policy::default().with_private_host(true)),
            Tally::default(),
            rng.fork(),
        ),
        Arc::clone(&store),
    );
    let mut body = Vec::with_capacity(BODY_BYTES);
    let mut run = |requests: u32| {
        let mut allocations = 0;
        for _ in 0..requests {
            let (host, v6, scrapes) = (rng.u8(0..HOSTS), rng.bool(), rng.u32(0..20) == 0);
            let (ip, query) = (ip(host, v6), query(&mut rng, host, scrapes));
            body.clear();
            let before = shoal_testkit::allocator::allocations();
            if scrapes {
                responder.scrape(ip, url(&query), NOW, &mut body);
            } else {
                responder.announce(ip, url(&query), NOW, &mut body);
            }
            allocations += shoal_testkit::allocator::allocations() - before;
        }
        assert!(body.capacity() == BODY_BYTES, "the room was enough");
        allocations
    };
    run(300_000);
    assert!(all_have_joined(&store));
    assert_eq!(run(50_000), 0);
}

/// Returns the URL with a query.
fn url(query: &str) -> Url<'_> {
    Url { path: b"/announce", query: query.as_bytes() }
}
