//! The rules of the test tracker's operator.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use shoal_conform::{InfoHash, OperatorRules};

use crate::fault::Fault;

const DENIED_TORRENT: [u8; 20] = [0xde; 20];
const UNLISTED_TORRENT: [u8; 20] = [0xa1; 20];
const DENIED_CLIENT: &[u8] = b"-XX";
const DENIED_PORT: u16 = 25;
const DENIED_SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 66));
const LIMITED_SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 77));
const REQUESTS_AT_ONCE: u32 = 5;

/// The reason for too many requests, which passes with time.
pub(crate) const TOO_MANY: &str = "too many requests";

/// The number of announces of each source.
#[derive(Default)]
pub(crate) struct Requests(HashMap<IpAddr, u32>);

/// Returns the rules for clients of a family, as a user names them.
pub(crate) fn rules(is_v4: bool) -> OperatorRules {
    OperatorRules {
        denied_torrent: Some(InfoHash(DENIED_TORRENT)),
        reason: Some("a notice".to_owned()),
        unlisted_torrent: Some(InfoHash(UNLISTED_TORRENT)),
        denied_client: Some(DENIED_CLIENT.to_vec()),
        denied_port: Some(DENIED_PORT),
        denied_source: is_v4.then_some(DENIED_SOURCE),
        requests_at_once: is_v4.then_some(REQUESTS_AT_ONCE),
        limited_source: is_v4.then_some(LIMITED_SOURCE),
    }
}

pub(crate) fn hands_out(fault: Fault, port: u16) -> bool {
    port != DENIED_PORT || fault == Fault::DeniedPortIsHandedOut
}

impl Requests {
    pub(crate) fn refusal(
        &mut self,
        fault: Fault,
        source: IpAddr,
        hash: [u8; 20],
        peer_id: &[u8],
    ) -> Option<&'static str> {
        let requests = self.0.entry(source).or_default();
        *requests += 1;
        if source == LIMITED_SOURCE && *requests > REQUESTS_AT_ONCE && fault != Fault::NoLimit {
            Some(TOO_MANY)
        } else if source == DENIED_SOURCE && fault != Fault::DeniedNetworkIsServed {
            Some("your network")
        } else if hash == DENIED_TORRENT && fault != Fault::DeniedTorrentIsServed {
            Some(if fault == Fault::RefusalHidesReason { "no" } else { "after a notice" })
        } else if hash == UNLISTED_TORRENT && fault != Fault::UnlistedTorrentIsServed {
            Some("not listed")
        } else if peer_id.starts_with(DENIED_CLIENT) && fault != Fault::DeniedClientIsServed {
            Some("your client")
        } else {
            None
        }
    }
}
