//! Real clients find each other through the tracker, and through nothing else.
//!
//! Which client can do what, found out with Debian 12's packages and the libtorrent of `requirements.txt`:
//!
//! | client | announces over UDP and IPv4 | over UDP and IPv6 | takes IPv6 peers from a reply over UDP |
//! |---|---|---|---|
//! | libtorrent 2.1.1 | yes | yes | yes |
//! | Transmission 3.00 | yes | yes, if the URL has a name for the host | no |
//! | rTorrent 0.9.8 | yes | yes | no |
//! | aria2 1.36.0 | yes | no | no |
//!
//! A client that takes no peers from the reply over UDP and IPv6 is handed to others, who dial it: so as a leecher it
//! has to come first, and the seeder after it.
//!
//! Over HTTP and over HTTPS, each of them announces over IPv4 and IPv6 and takes the IPv6 peers of a reply (BEP 7).
//! What it needs to trust a certificate that no authority signed, and whether the tracker hears of it when it quits:
//!
//! | client | trusts by | leaves over HTTP when it quits |
//! |---|---|---|
//! | libtorrent 2.1.1 | `SSL_CERT_FILE` | yes |
//! | Transmission 3.00 | `CURL_CA_BUNDLE`; checks if `TR_CURL_SSL_VERIFY` is set | no: to be stopped first |
//! | rTorrent 0.9.8 | `network.http.cacert` | yes |
//! | aria2 1.36.0 | `--ca-certificate` | yes |
//!
//! What they can do over WebSockets stands in the module `webtorrent`.

use std::path::Path;

use anyhow::Result;
use shoal_interop::client::Client::{Aria2, Libtorrent, Rtorrent, Transmission};
use shoal_interop::client::Participant;
use shoal_interop::client::Role::{self, Leecher, Seeder};
use shoal_interop::network::Family;
use shoal_interop::payload::Pieces;
use shoal_interop::sharing::Sharing;
use shoal_interop::way::Way::{HitchV1, HitchV2, Http, Https, NginxHttp, NginxHttps, NginxStream, Udp};

/// The program that looks at the tracker.
const VIEW: &str = env!("CARGO_BIN_EXE_tracker-view");

fn sharing(seeder: Participant, leechers: &[Participant], first: Role, family: Family) -> Sharing<'_> {
    Sharing { seeder, leechers, first, family, pieces: Pieces::Many, settings: &[], view: Path::new(VIEW) }
}

/// A test for each line: who seeds to whom, and who of them comes first.
macro_rules! pairs {
    ($family:ident by $way:ident: $($name:ident: $seeder:ident to $leecher:ident, $first:ident first;)*) => {
        $(
            #[test]
            fn $name() -> Result<()> {
                sharing($seeder.by($way), &[$leecher.by($way)], $first, Family::$family).run()
            }
        )*
    };
}

mod webtorrent;

mod udp_v4 {
    use super::*;

    pairs! { V4 by Udp:
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
        Sharing { pieces: Pieces::One, ..sharing(Rtorrent.by(Udp), &[Aria2.by(Udp)], Seeder, Family::V4) }
            .run()
    }

    #[test]
    fn one_swarm_of_all_clients() -> Result<()> {
        let leechers = [Libtorrent, Transmission, Aria2, Rtorrent].map(|client| client.by(Udp));
        sharing(Libtorrent.by(Udp), &leechers, Seeder, Family::V4).run()
    }

    /// Whatever the other tests show, they show of the tracker.
    #[test]
    fn nobody_finds_anybody_without_the_tracker() -> Result<()> {
        let leechers = [Libtorrent, Transmission, Aria2, Rtorrent].map(|client| client.by(Udp));
        sharing(Libtorrent.by(Udp), &leechers, Seeder, Family::V4).run_without_tracker()
    }
}

mod udp_v6 {
    use super::*;

    pairs! { V6 by Udp:
        libtorrent_to_libtorrent: Libtorrent to Libtorrent, Seeder first;
        libtorrent_to_transmission: Libtorrent to Transmission, Leecher first;
        libtorrent_to_rtorrent: Libtorrent to Rtorrent, Leecher first;
        transmission_to_libtorrent: Transmission to Libtorrent, Seeder first;
        rtorrent_to_libtorrent: Rtorrent to Libtorrent, Seeder first;
    }
}

mod http_v4 {
    use super::*;

    pairs! { V4 by Http:
        libtorrent_to_transmission: Libtorrent to Transmission, Leecher first;
        transmission_to_aria2: Transmission to Aria2, Seeder first;
        aria2_to_rtorrent: Aria2 to Rtorrent, Seeder first;
        rtorrent_to_libtorrent: Rtorrent to Libtorrent, Leecher first;
    }
}

mod https_v4 {
    use super::*;

    pairs! { V4 by Https:
        libtorrent_to_transmission: Libtorrent to Transmission, Leecher first;
        transmission_to_aria2: Transmission to Aria2, Seeder first;
        aria2_to_rtorrent: Aria2 to Rtorrent, Seeder first;
        rtorrent_to_libtorrent: Rtorrent to Libtorrent, Leecher first;
    }
}

mod http_v6 {
    use super::*;

    pairs! { V6 by Http:
        libtorrent_to_transmission: Libtorrent to Transmission, Seeder first;
        transmission_to_aria2: Transmission to Aria2, Seeder first;
        aria2_to_rtorrent: Aria2 to Rtorrent, Seeder first;
        rtorrent_to_libtorrent: Rtorrent to Libtorrent, Seeder first;
    }
}

mod https_v6 {
    use super::*;

    pairs! { V6 by Https:
        libtorrent_to_transmission: Libtorrent to Transmission, Seeder first;
        transmission_to_aria2: Transmission to Aria2, Seeder first;
        aria2_to_rtorrent: Aria2 to Rtorrent, Seeder first;
        rtorrent_to_libtorrent: Rtorrent to Libtorrent, Seeder first;
    }
}

/// Every client behind a proxy: the tracker has to hand out each by its own address, or nobody finds anybody.
mod proxied {
    use super::*;

    fn run(family: Family) -> Result<()> {
        let leechers = [
            Libtorrent.by(NginxStream),
            Transmission.by(NginxHttps),
            Aria2.by(HitchV1),
            Rtorrent.by(HitchV2),
        ];
        sharing(Libtorrent.by(NginxHttp), &leechers, Seeder, family).run()
    }

    #[test]
    fn v4() -> Result<()> {
        run(Family::V4)
    }

    #[test]
    fn v6() -> Result<()> {
        run(Family::V6)
    }
}

/// One swarm of clients that reach the tracker by all ways.
mod mixed {
    use super::*;

    #[test]
    fn v4() -> Result<()> {
        let leechers = [
            Transmission.by(Http),
            Aria2.by(Https),
            Rtorrent.by(NginxHttps),
            Libtorrent.by(HitchV2),
            Transmission.by(NginxStream),
            Aria2.by(Udp),
            Rtorrent.by(Https),
        ];
        sharing(Libtorrent.by(Udp), &leechers, Seeder, Family::V4).run()
    }

    #[test]
    fn v6() -> Result<()> {
        let leechers = [
            Transmission.by(Https),
            Aria2.by(Http),
            Rtorrent.by(HitchV1),
            Libtorrent.by(Udp),
            Transmission.by(NginxHttp),
        ];
        sharing(Libtorrent.by(Https), &leechers, Seeder, Family::V6).run()
    }
}
