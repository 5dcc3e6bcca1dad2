//! Bencoded values and replies, as a client decodes them.

use core::net::SocketAddr;

use shoal_wire::http::bencode::{self, BencodeError, Value};
use shoal_wire::http::query::PeersForm;
use shoal_wire::http::received::{Received, ReceivedAnnounce, ReceivedError, ReceivedPeers, ReceivedScrape};
use shoal_wire::http::reply::{AnnounceReply, scrape_begin, scrape_end, scrape_file};

/// Decodes the input as a bencoded value and as both kinds of reply, and encodes the results again.
pub fn http_reply(body: &[u8]) {
    match bencode::decode(body) {
        Ok(value) => {
            let mut out = Vec::new();
            encode(value, &mut out);
            assert_eq!(out, body, "a value has one encoding");
        }
        Err(BencodeError::Malformed { at }) => assert!(at < body.len()),
        Err(BencodeError::Trailing { bytes }) => assert!(0 < bytes && bytes < body.len()),
        Err(BencodeError::Truncated | BencodeError::TooDeep) => {}
    }
    match ReceivedAnnounce::decode(body) {
        Ok(Received::Reply(reply)) => check_announce(&reply),
        Ok(Received::Failure { reason, .. }) => assert!(reason.len() < body.len()),
        Err(ReceivedError::Bencode(error)) => assert_eq!(bencode::decode(body), Err(error)),
        Err(ReceivedError::NoDictionary | ReceivedError::Key { .. }) => {}
    }
    if let Ok(Received::Reply(scrape)) = ReceivedScrape::decode(body) {
        let files: Vec<_> = scrape.files().collect();
        let mut body = Vec::new();
        scrape_begin(&mut body);
        for (info_hash, file) in &files {
            assert!(scrape.file(*info_hash).is_some());
            scrape_file(*info_hash, *file, &mut body);
        }
        scrape_end(None, &mut body);
        let Ok(Received::Reply(again)) = ReceivedScrape::decode(&body) else { panic!("a reply") };
        assert_eq!(again.files().collect::<Vec<_>>(), files);
    }
}

/// Encodes a value in the most direct way.
fn encode(value: Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Integer(integer) => out.extend(format!("i{integer}e").bytes()),
        Value::Bytes(bytes) => {
            out.extend(format!("{}:", bytes.len()).bytes());
            out.extend(bytes);
        }
        Value::List(list) => {
            out.push(b'l');
            list.iter().for_each(|value| encode(value, out));
            out.push(b'e');
        }
        Value::Dictionary(dictionary) => {
            out.push(b'd');
            for (key, value) in dictionary.iter() {
                encode(Value::Bytes(key), out);
                encode(value, out);
            }
            let keys: Vec<&[u8]> = dictionary.iter().map(|(key, _)| key).collect();
            assert_eq!(dictionary.is_sorted(), keys.windows(2).all(|pair| pair[0] < pair[1]));
            assert!(keys.iter().all(|key| dictionary.get(key).is_some()));
            out.push(b'e');
        }
    }
}

/// Checks that a tracker that encodes the decoded reply produces an equivalent one.
fn check_announce(read: &ReceivedAnnounce<'_>) {
    let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let (warning, tracker_id) = (text(read.warning), text(read.tracker_id));
    let (peers_v4, form) = match read.peers {
        ReceivedPeers::Compact(peers) => (peers, PeersForm::Compact),
        ReceivedPeers::Dictionaries(_) => (&[][..], PeersForm::Dictionaries),
    };
    let reply = AnnounceReply {
        complete: read.complete.unwrap_or(0),
        downloaded: read.downloaded.unwrap_or(0),
        incomplete: read.incomplete.unwrap_or(0),
        interval_s: read.interval_s,
        min_interval_s: read.min_interval_s,
        external_ip: read.external_ip,
        peers_v4,
        peers_v6: read.peers_v6,
        form,
        warning: warning.as_deref(),
        tracker_id: tracker_id.as_deref(),
    };
    let mut body = Vec::new();
    reply.encode(&mut body);
    let Ok(Received::Reply(again)) = ReceivedAnnounce::decode(&body) else { panic!("a reply") };
    assert_eq!((again.interval_s, again.min_interval_s), (read.interval_s, read.min_interval_s));
    assert_eq!(again.external_ip, read.external_ip);
    let written = peers_v4.len() + read.peers_v6.len();
    assert_eq!(again.peers.count() + again.peers_v6.len(), written);
    let addresses: Vec<SocketAddr> = read.peers.addresses().collect();
    assert_eq!(addresses.len(), read.peers.count());
}
