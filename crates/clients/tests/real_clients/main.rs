//! Real clients find each other through the tracker, and through nothing else.
//!
//! Which client can do what, found out with Debian 12's packages and the libtorrent of `requirements.txt`:
//!
//! | client | announces over IPv4 | announces over IPv6 | takes IPv6 peers from a reply over UDP |
//! |---|---|---|---|
//! | libtorrent 2.1.1 | yes | yes | yes |
//! | Transmission 3.00 | yes | yes, if the URL has a name for the host | no |
//! | rTorrent 0.9.8 | yes | yes | no |
//! | aria2 1.36.0 | yes | no | no |
//!
//! A client that takes no peers from the reply over IPv6 is handed to others, who dial it: so as a leecher it has to
//! come first, and the seeder after it.

use std::path::Path;

use anyhow::Result;
use shoal_clients::client::Client::{self, Aria2, Libtorrent, Rtorrent, Transmission};
use shoal_clients::client::Role::{self, Leecher, Seeder};
use shoal_clients::network::Family;
use shoal_clients::payload::Pieces;
use shoal_clients::sharing::Sharing;

fn sharing(seeder: Client, leechers: &[Client], first: Role, family: Family) -> Sharing<'_> {
    let view = Path::new(env!("CARGO_BIN_EXE_tracker-view"));
    Sharing { seeder, leechers, first, family, pieces: Pieces::Many, view }
}

/// A test for each line: who seeds to whom, and who of them comes first.
macro_rules! pairs {
    ($family:ident: $($name:ident: $seeder:ident to $leecher:ident, $first:ident first;)*) => {
        $(
            #[test]
            fn $name() -> Result<()> {
                sharing($seeder, &[$leecher], $first, Family::$family).run()
            }
        )*
    };
}

mod v4 {
    use super::*;

    pairs! { V4:
        libtorrent_to_libtorrent: Libtorrent to Libtorrent, Seeder first;
        libtorrent_to_transmission: Libtorrent to Transmission, Leecher first;
        libtorrent_to_aria2: Libtorrent to Aria2, Seeder first;
        libtorrent_to_rtorrent: Libtorrent to Rtorrent, Leecher first;
        transmission_to_libtorrent: Transmission to Libtorrent, Seeder first;
        transmission_to_transmission: Transmission to Transmission, Leecher first;
        transmission_to_aria2: Transmission to Aria2, Seeder first;
        transmission_to_rtorrent: Transmission to Rtorrent, Leecher first;
        aria2_to_libtorrent: Aria2 to Libtorrent, Leecher first;
        aria2_to_transmission: Aria2 to Transmission, Seeder first;
        aria2_to_aria2: Aria2 to Aria2, Leecher first;
        aria2_to_rtorrent: Aria2 to Rtorrent, Seeder first;
        rtorrent_to_libtorrent: Rtorrent to Libtorrent, Leecher first;
        rtorrent_to_transmission: Rtorrent to Transmission, Seeder first;
        rtorrent_to_rtorrent: Rtorrent to Rtorrent, Seeder first;
    }

    /// aria2 tells of several new pieces at once by a second bitfield, on which rTorrent hangs up, since BEP 3 allows
    /// a bitfield only as the first message. With a single piece there is nothing to tell before the end.
    #[test]
    fn rtorrent_to_aria2() -> Result<()> {
        Sharing { pieces: Pieces::One, ..sharing(Rtorrent, &[Aria2], Seeder, Family::V4) }.run()
    }

    #[test]
    fn one_swarm_of_all_clients() -> Result<()> {
        let leechers = [Libtorrent, Transmission, Aria2, Rtorrent];
        sharing(Libtorrent, &leechers, Seeder, Family::V4).run()
    }

    /// Whatever the other tests show, they show of the tracker.
    #[test]
    fn nobody_finds_anybody_without_the_tracker() -> Result<()> {
        let leechers = [Libtorrent, Transmission, Aria2, Rtorrent];
        sharing(Libtorrent, &leechers, Seeder, Family::V4).run_without_tracker()
    }
}

mod v6 {
    use super::*;

    pairs! { V6:
        libtorrent_to_libtorrent: Libtorrent to Libtorrent, Seeder first;
        libtorrent_to_transmission: Libtorrent to Transmission, Leecher first;
        libtorrent_to_rtorrent: Libtorrent to Rtorrent, Leecher first;
        transmission_to_libtorrent: Transmission to Libtorrent, Seeder first;
        rtorrent_to_libtorrent: Rtorrent to Libtorrent, Seeder first;
    }
}
