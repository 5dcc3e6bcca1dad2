//! The lines of the access log: one JSON object for each record, with names that metrics use as labels.

use std::fmt::Write;

use serde::Serialize;
use shoal_base::{Event, PeerId};
use shoal_engine::access_log::{LoggedClient, Record};
use shoal_engine::insight::Software;

use shoal_runtime::clock;

pub(super) struct Clocks {
    unix_ms: u64,
    monotonic_ms: u64,
}

/// A line. Members without a value are left out.
#[derive(Serialize)]
struct Line {
    time: String,
    protocol: &'static str,
    family: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    kind: &'static str,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    info_hash: Option<String>,
    #[serde(skip_serializing_if = "is_zero")]
    torrents: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    software: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seeders: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leechers: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peers: Option<u32>,
    bytes: u32,
}

impl Clocks {
    pub(super) fn read() -> Self {
        Self { unix_ms: clock::unix_ms(), monotonic_ms: clock::monotonic_ms() }
    }

    fn time(&self, monotonic_ms: u64) -> String {
        let age_ms = self.monotonic_ms.saturating_sub(monotonic_ms);
        format!("{:.3}", clock::utc(self.unix_ms.saturating_sub(age_ms)))
    }
}

pub(super) fn append(record: &Record, clocks: &Clocks, lines: &mut Vec<u8>) {
    let announced = record.announced.as_ref();
    let peer_id = announced.and_then(|announced| announced.peer_id);
    let (software, version) = peer_id.as_ref().map(shoal_engine::insight::identify).unzip();
    let version = version.map(|version| version.as_str().to_owned()).filter(|version| !version.is_empty());
    let line = Line {
        time: clocks.time(record.monotonic_ms),
        protocol: record.protocol.name(),
        family: record.family.name(),
        client: match record.client {
            LoggedClient::Unknown => None,
            LoggedClient::Address(ip) => Some(ip.to_string()),
            LoggedClient::Network(ip, bits) => Some(format!("{ip}/{bits}")),
        },
        kind: record.kind.name(),
        outcome: record.outcome.name(),
        info_hash: record.info_hash.map(|info_hash| format!("{info_hash:?}")),
        torrents: record.torrents,
        event: announced.map(|announced| event_name(announced.event)),
        port: announced.map(|announced| announced.port).filter(|&port| port > 0),
        peer_id: peer_id.map(|peer_id| escape(&peer_id)),
        software: software.map(Software::name),
        version,
        seeders: record.counts.map(|[seeders, _]| seeders),
        leechers: record.counts.map(|[_, leechers]| leechers),
        peers: record.counts.map(|_| record.peers),
        bytes: record.reply_bytes,
    };
    serde_json::to_writer(&mut *lines, &line).expect("numbers and text are JSON");
    lines.push(b'\n');
}

const fn event_name(event: Event) -> &'static str {
    match event {
        Event::Update => "update",
        Event::Completed => "completed",
        Event::Started => "started",
        Event::Stopped => "stopped",
    }
}

/// Returns a peer id with every byte other than letters, digits and a few others as `%hh`, as in a URL (RFC 3986,
/// 2.3). Clients choose their peer ids, and one may attack the terminal or the page that shows it.
fn escape(peer_id: &PeerId) -> String {
    peer_id.0.iter().fold(String::with_capacity(peer_id.0.len()), |mut text, &byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02x}").expect("writing to a string never fails");
        }
        text
    })
}

// serde demands this signature.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_that_of_the_record() {
        let clocks = Clocks { unix_ms: 1_769_860_800_250, monotonic_ms: 5000 };
        assert_eq!(clocks.time(5000), "2026-01-31T12:00:00.250Z");
        assert_eq!(clocks.time(4000), "2026-01-31T11:59:59.250Z");
        assert_eq!(clocks.time(9000), "2026-01-31T12:00:00.250Z");
    }

    #[test]
    fn a_peer_id_is_escaped() {
        assert_eq!(escape(&PeerId(*b"-qB4650-abc~._ABC012")), "-qB4650-abc~._ABC012");
        assert_eq!(
            escape(&PeerId(*b"<b>\"\\\n\r\0\x1b[31m\xff%&'/ab")),
            "%3cb%3e%22%5c%0a%0d%00%1b%5b31m%ff%25%26%27%2fab"
        );
    }
}
