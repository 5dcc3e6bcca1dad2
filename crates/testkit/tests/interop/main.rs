//! Real clients find each other through the tracker, and through nothing else.
//!
//! The abilities of the clients, as observed with Debian 12's packages and the libtorrent of `requirements.txt`:
//!
//! | client | announces over UDP and IPv4 | over UDP and IPv6 | takes IPv6 peers from a reply over UDP |
//! |---|---|---|---|
//! | libtorrent 2.1.1 | yes | yes | yes |
//! | Transmission 3.00 | yes | yes, if the URL has a name for the host | no |
//! | rTorrent 0.9.8 | yes | yes | no |
//! | aria2 1.36.0 | yes | no | no |
//!
//! A client that takes no peers from a reply over UDP and IPv6 depends on others to connect to it. So as a leecher it
//! has to start before the seeder.
//!
//! Over HTTP and HTTPS, each of them announces over IPv4 and IPv6 and takes the IPv6 peers of a reply (BEP 7). This
//! table shows which setting makes it trust a self-signed certificate, and whether it tells the tracker when it quits:
//!
//! | client | trust setting | leaves over HTTP when it quits |
//! |---|---|---|
//! | libtorrent 2.1.1 | `SSL_CERT_FILE` | yes |
//! | Transmission 3.00 | `CURL_CA_BUNDLE`; verifies if `TR_CURL_SSL_VERIFY` is set | no: has to be stopped first |
//! | rTorrent 0.9.8 | `network.http.cacert` | yes |
//! | aria2 1.36.0 | `--ca-certificate` | yes |
//!
//! The module `webtorrent` lists their abilities over WebSockets.

use std::path::Path;

use anyhow::Result;
use shoal_testkit::interop::client::Client::{Aria2, Libtorrent, Rtorrent, Transmission};
use shoal_testkit::interop::client::Participant;
use shoal_testkit::interop::client::Role::{self, Leecher, Seeder};
use shoal_testkit::interop::network::Family;
use shoal_testkit::interop::payload::Pieces;
use shoal_testkit::interop::route::Route::{
    HitchV1, HitchV2, Http, Https, NginxHttp, NginxHttps, NginxStream, NodeUdp, Udp,
};
use shoal_testkit::interop::transfer::Transfer;

/// The program that queries the tracker.
const TRACKER_VIEW: &str = env!("CARGO_BIN_EXE_tracker-view");

fn transfer(seeder: Participant, leechers: &[Participant], first: Role, family: Family) -> Transfer<'_> {
    Transfer {
        seeder,
        leechers,
        first,
        family,
        pieces: Pieces::Many,
        settings: &[],
        tracker_view: Path::new(TRACKER_VIEW),
    }
}

/// Declares a test for each line: the seeder, the leecher, and the one that starts first.
macro_rules! pairs {
    ($family:ident via $route:ident: $($name:ident: $seeder:ident to $leecher:ident, $first:ident first;)*) => {
        $(
            #[test]
            fn $name() -> Result<()> {
                transfer($seeder.via($route), &[$leecher.via($route)], $first, Family::$family).run()
            }
        )*
    };
}

/// Declares the same tests over HTTP and over HTTPS, in a module each.
macro_rules! http_pairs {
    ($family:ident: $http:ident, $https:ident; $($pairs:tt)*) => {
        mod $http {
            use super::*;
            pairs! { $family via Http: $($pairs)* }
        }

        mod $https {
            use super::*;
            pairs! { $family via Https: $($pairs)* }
        }
    };
}

mod refusal;
mod webtorrent;

mod udp_v4 {
    use super::*;

    pairs! { V4 via Udp:
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

    /// aria2 reports several new pieces at once with a second bitfield. rTorrent then disconnects, since BEP 3 allows a
    /// bitfield only as the first message. With a single piece there is nothing to report before the end.
    #[test]
    fn rtorrent_to_aria2() -> Result<()> {
        Transfer { pieces: Pieces::One, ..transfer(Rtorrent.via(Udp), &[Aria2.via(Udp)], Seeder, Family::V4) }
            .run()
    }

    #[test]
    fn one_swarm_of_all_clients() -> Result<()> {
        let leechers = [Libtorrent, Transmission, Aria2, Rtorrent].map(|client| client.via(Udp));
        transfer(Libtorrent.via(Udp), &leechers, Seeder, Family::V4).run()
    }

    /// Shows that the results of the other tests are due to the tracker.
    #[test]
    fn clients_do_not_meet_without_the_tracker() -> Result<()> {
        let leechers = [Libtorrent, Transmission, Aria2, Rtorrent].map(|client| client.via(Udp));
        transfer(Libtorrent.via(Udp), &leechers, Seeder, Family::V4).run_without_tracker()
    }
}

mod udp_v6 {
    use super::*;

    pairs! { V6 via Udp:
        libtorrent_to_libtorrent: Libtorrent to Libtorrent, Seeder first;
        libtorrent_to_transmission: Libtorrent to Transmission, Leecher first;
        libtorrent_to_rtorrent: Libtorrent to Rtorrent, Leecher first;
        transmission_to_libtorrent: Transmission to Libtorrent, Seeder first;
        rtorrent_to_libtorrent: Rtorrent to Libtorrent, Seeder first;
    }
}

http_pairs! { V4: http_v4, https_v4;
    libtorrent_to_transmission: Libtorrent to Transmission, Leecher first;
    transmission_to_aria2: Transmission to Aria2, Seeder first;
    aria2_to_rtorrent: Aria2 to Rtorrent, Seeder first;
    rtorrent_to_libtorrent: Rtorrent to Libtorrent, Leecher first;
}

http_pairs! { V6: http_v6, https_v6;
    libtorrent_to_transmission: Libtorrent to Transmission, Seeder first;
    transmission_to_aria2: Transmission to Aria2, Seeder first;
    aria2_to_rtorrent: Aria2 to Rtorrent, Seeder first;
    rtorrent_to_libtorrent: Rtorrent to Libtorrent, Seeder first;
}

/// Every client is behind a proxy. They meet only if the tracker hands out the address of each client.
mod proxied {
    use super::*;

    fn run(family: Family) -> Result<()> {
        let leechers = [
            Libtorrent.via(NginxStream),
            Transmission.via(NginxHttps),
            Aria2.via(HitchV1),
            Rtorrent.via(HitchV2),
        ];
        transfer(Libtorrent.via(NginxHttp), &leechers, Seeder, family).run()
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

/// Clients of two nodes of a cluster form one swarm.
mod across_nodes {
    use super::*;

    #[test]
    fn v4() -> Result<()> {
        let leechers = [Transmission.via(NodeUdp), Rtorrent.via(Http), Aria2.via(NodeUdp)];
        transfer(Libtorrent.via(Udp), &leechers, Seeder, Family::V4).run()
    }

    #[test]
    fn v6() -> Result<()> {
        let leechers = [Transmission.via(NodeUdp), Rtorrent.via(Udp)];
        transfer(Libtorrent.via(NodeUdp), &leechers, Leecher, Family::V6).run()
    }
}

/// The tracker has the XDP data path on its only interface.
mod xdp {
    use shoal_testkit::interop::tracker::Setting;

    use super::*;

    const SETTINGS: [Setting; 1] = [("SHOAL_UDP_XDP_INTERFACES", "eth0")];

    fn run_v4(is_tagged: bool) -> Result<()> {
        let leechers = [Transmission.via(Udp), Aria2.via(Udp), Rtorrent.via(Udp), Transmission.via(Http)];
        run(&leechers, Family::V4, is_tagged)
    }

    fn run_v6(is_tagged: bool) -> Result<()> {
        let leechers = [Transmission.via(Udp), Rtorrent.via(Udp), Aria2.via(Http)];
        run(&leechers, Family::V6, is_tagged)
    }

    fn run(leechers: &[Participant], family: Family, is_tagged: bool) -> Result<()> {
        let transfer = transfer(Libtorrent.via(Udp), leechers, Leecher, family);
        Transfer { settings: &SETTINGS, ..transfer }.run_over_xdp(is_tagged)
    }

    #[test]
    fn v4() -> Result<()> {
        run_v4(false)
    }

    #[test]
    fn v6() -> Result<()> {
        run_v6(false)
    }

    #[test]
    fn v4_with_tags() -> Result<()> {
        run_v4(true)
    }

    #[test]
    fn v6_with_tags() -> Result<()> {
        run_v6(true)
    }
}

/// One swarm whose clients reach the tracker by all routes.
mod mixed {
    use super::*;

    #[test]
    fn v4() -> Result<()> {
        let leechers = [
            Transmission.via(Http),
            Aria2.via(Https),
            Rtorrent.via(NginxHttps),
            Libtorrent.via(HitchV2),
            Transmission.via(NginxStream),
            Aria2.via(Udp),
            Rtorrent.via(Https),
        ];
        transfer(Libtorrent.via(Udp), &leechers, Seeder, Family::V4).run()
    }

    #[test]
    fn v6() -> Result<()> {
        let leechers = [
            Transmission.via(Https),
            Aria2.via(Http),
            Rtorrent.via(HitchV1),
            Libtorrent.via(Udp),
            Transmission.via(NginxHttp),
        ];
        transfer(Libtorrent.via(Https), &leechers, Seeder, Family::V6).run()
    }
}
