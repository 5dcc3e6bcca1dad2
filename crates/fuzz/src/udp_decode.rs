//! The codec of UDP packets, without a tracker.

use shoal_base::{PeerV4, PeerV6};
use shoal_wire::udp::{Reply, ReplyError, Request, RequestError};

/// Largest payload of a datagram.
const PACKET_BYTES_MAX: usize = 65_507;

/// Decodes the input as a request and as a reply, uses every part of the results, and encodes them again.
pub fn udp_decode(packet: &[u8]) {
    if packet.len() > PACKET_BYTES_MAX {
        return;
    }
    match Request::decode(packet) {
        Ok(request) => check_request(packet, &request),
        Err(RequestError::Truncated(truncated)) => {
            assert!(truncated.bytes == packet.len() && truncated.bytes < truncated.bytes_min);
        }
        Err(RequestError::WrongProtocolId { .. } | RequestError::UnknownAction { .. }) => {
            assert!(packet.len() >= 16, "the head was read");
        }
    }
    match Reply::decode(packet) {
        Ok(reply) => check_reply(packet, &reply),
        Err(ReplyError::Truncated(truncated)) => {
            assert!(truncated.bytes == packet.len() && truncated.bytes < truncated.bytes_min);
        }
        Err(ReplyError::PartialEntry { bytes }) => assert_eq!((packet.len() - 8) % 12, bytes),
        Err(ReplyError::UnknownAction { action }) => assert!(action > 3),
    }
}

fn check_request(packet: &[u8], request: &Request<'_>) {
    let mut out = vec![0; packet.len()];
    let bytes = request.encode(&mut out).expect("the encoding is no longer than the packet");
    assert_eq!(out[..bytes], packet[..bytes]);
    assert_eq!(Request::decode(&out[..bytes]).as_ref(), Ok(request));
    assert!(request.encode(&mut out[..bytes - 1]).is_err());
    match request {
        Request::Connect { .. } => assert_eq!(bytes, 16),
        Request::Announce { announce, options, .. } => {
            assert_eq!(bytes, packet.len(), "options are kept unchanged");
            let _ = announce.event();
            let url_bytes: usize = options.url_data().map(<[u8]>::len).sum();
            assert!(url_bytes <= options.as_bytes().len());
        }
        Request::Scrape { info_hashes, .. } => {
            assert!(!info_hashes.is_empty());
            assert_eq!(bytes, 16 + 20 * info_hashes.len());
            assert!(packet.len() - bytes < 20, "no whole hash is left out");
        }
    }
}

fn check_reply(packet: &[u8], reply: &Reply<'_>) {
    let mut out = vec![0; packet.len()];
    let bytes = reply.encode(&mut out).expect("the encoding is no longer than the packet");
    assert_eq!(out[..bytes], packet[..bytes]);
    assert_eq!(Reply::decode(&out[..bytes]).as_ref(), Ok(reply));
    assert!(reply.encode(&mut out[..bytes - 1]).is_err());
    match reply {
        Reply::Connect { .. } => assert_eq!(bytes, 16),
        Reply::Announce { peers, .. } => {
            let (v4, v6) = (peers.of_family::<PeerV4>(), peers.of_family::<PeerV6>());
            let bytes = peers.as_bytes().len();
            assert_eq!(v4.map(<[_]>::len), bytes.is_multiple_of(6).then_some(bytes / 6));
            assert_eq!(v6.map(<[_]>::len), bytes.is_multiple_of(18).then_some(bytes / 18));
        }
        Reply::Scrape { .. } | Reply::Error { .. } => assert_eq!(bytes, packet.len()),
    }
}
