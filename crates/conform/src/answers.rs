//! The rules that two or more other trackers break, and why each of them is a rule all the same.
//!
//! The suite was written for one tracker, so it may take a habit of that tracker for a rule. A rule that two independent
//! trackers break is therefore a question: does a standard say so, or does a client depend on it? The answer decides whether
//! it is a must, a should, or no rule.
//!
//! The trackers were tested on 27 November 2026, over IPv4 on loopback: aquatic 0.9.0, bittorrent-tracker 10.0.12,
//! chihaya (commit 878b42e), opentracker of Debian (0.0~git20210823.110868e-3) and wt-tracker (commit fdb52ac).

/// The reason why some rules are rules.
pub(crate) struct Answer {
    /// One to three sentences.
    pub(crate) text: &'static str,
    /// The names of the cases, and the trackers that break each.
    pub(crate) cases: &'static [(&'static str, &'static str)],
}

pub(crate) const ANSWERS: &[Answer] = &[
    Answer {
        text: "Stands. RFC 9112, 9.6 demands it, and a client that reads to the end of the connection waits for it.",
        cases: &[("http-connection-close-is-obeyed", "aquatic, bittorrent-tracker")],
    },
    Answer {
        text: "Stands. A proxy or monitor that sends HEAD takes the body for the beginning of the next response.",
        cases: &[("http-head-has-no-body", "aquatic, opentracker")],
    },
    Answer {
        text: "A should since 27 November 2026, a must before. RFC 9110, 6.6.1 demands it, but no client of a tracker reads it.",
        cases: &[("http-response-has-a-date", "aquatic, opentracker")],
    },
    Answer {
        text: "A should since 27 November 2026, a must before. RFC 9112, 3.2 demands it, but clients send one Host. It protects a tracker behind a proxy that believes the other Host.",
        cases: &[("http-two-hosts-get-400", "aquatic, bittorrent-tracker, opentracker")],
    },
    Answer {
        text: "Stands. The order is part of the format (BEP 3). Many clients read any order, but a strict decoder refuses the whole reply.",
        cases: &[("http-scrape-keys-are-sorted", "chihaya, opentracker")],
    },
    Answer {
        text: "Stands. BEP 48 names the three keys, and a client finds its torrent by the 20 bytes only.",
        cases: &[("http-scrape-layout", "bittorrent-tracker, chihaya")],
    },
    Answer {
        text: "Stands as a should. Peers learn the ids of others from the tracker, and could remove each other.",
        cases: &[("ws-peer-of-another-host-is-out-of-reach", "bittorrent-tracker, wt-tracker")],
    },
    Answer {
        text: "Stands. TCP may end a segment anywhere, and a proxy or a slow link does. Single bytes are the strictest form of that.",
        cases: &[
            ("ws-handshake-in-single-bytes-is-accepted", "aquatic, wt-tracker"),
            ("ws-frames-behind-the-handshake-are-read", "aquatic, wt-tracker"),
            ("http-pipelined-requests-may-be-split-anywhere", "aquatic, opentracker"),
        ],
    },
    Answer {
        text: "A should since 27 November 2026, a must before. No client sends such an id: the rule keeps ids that are cut to 20 bytes out of the swarms of others.",
        cases: &[
            ("ws-info-hash-of-another-length-joins-nothing", "aquatic, wt-tracker"),
            ("ws-peer-id-of-another-length-joins-nothing", "aquatic, wt-tracker"),
            ("ws-characters-beyond-u-00ff-join-nothing", "bittorrent-tracker, wt-tracker"),
        ],
    },
    Answer {
        text: "Stands as a should. RFC 9112 asks for it. BitTorrent clients do not depend on it, but proxies, monitors and load generators do.",
        cases: &[
            ("http-1.0-keep-alive-is-honoured", "bittorrent-tracker, opentracker"),
            ("http-pipelined-requests-are-answered-in-order", "aquatic, opentracker"),
            ("http-absolute-target-is-read", "aquatic, bittorrent-tracker, opentracker"),
            ("http-empty-line-before-a-request-is-ignored", "chihaya, opentracker"),
            ("http-later-minor-version-is-read", "aquatic, bittorrent-tracker"),
            ("http-malformed-request-gets-400-and-a-close", "aquatic, bittorrent-tracker"),
            ("http-oversize-head-is-refused", "chihaya, opentracker"),
        ],
    },
    Answer {
        text: "Stands as a should. RFC 9110 asks for it. Browsers, proxies and monitors read the status; BitTorrent clients send GET to a known path.",
        cases: &[
            ("http-head-is-answered-like-get", "chihaya, opentracker"),
            ("http-other-methods-get-405-or-501", "aquatic, bittorrent-tracker, opentracker"),
            ("http-unknown-path-gets-404", "aquatic, bittorrent-tracker, opentracker"),
        ],
    },
    Answer {
        text: "Stands as a should. Clients work without it, but after a restart of the tracker all of them announce again in the same second of each interval.",
        cases: &[
            ("udp-announce-interval-is-jittered", "aquatic, bittorrent-tracker, chihaya"),
            ("http-announce-interval-is-jittered", "aquatic, bittorrent-tracker, chihaya"),
            ("ws-interval-is-jittered", "aquatic, bittorrent-tracker, wt-tracker"),
        ],
    },
    Answer {
        text: "Stands as a should. Such a peer takes the place of a useful one. Clients drop it.",
        cases: &[
            ("udp-announcer-is-not-handed-to-itself", "bittorrent-tracker, opentracker"),
            ("http-announcer-is-not-handed-to-itself", "bittorrent-tracker, opentracker"),
            ("udp-seeder-is-not-handed-seeders", "aquatic, bittorrent-tracker, opentracker"),
            ("http-seeder-is-not-handed-seeders", "aquatic, bittorrent-tracker, opentracker"),
            ("http-port-0-is-never-handed-out", "aquatic, opentracker"),
        ],
    },
    Answer {
        text: "Stands as a should. The reply is larger than the client asked for, and a client that leaves throws it away.",
        cases: &[
            ("udp-numwant-0-gives-none", "aquatic, bittorrent-tracker, chihaya"),
            ("http-numwant-0-gives-none", "aquatic, bittorrent-tracker, chihaya"),
            ("udp-stopped-gets-no-peers", "aquatic, bittorrent-tracker, chihaya"),
            ("http-stopped-gets-no-peers", "aquatic, bittorrent-tracker, chihaya"),
            ("ws-numwant-is-kept", "aquatic, bittorrent-tracker"),
        ],
    },
    Answer {
        text: "Stands as a should. Without it the counts are wrong, and users choose torrents by them.",
        cases: &[
            ("udp-seeder-turns-leecher", "bittorrent-tracker, chihaya"),
            ("http-seeder-turns-leecher", "bittorrent-tracker, chihaya"),
            ("ws-seeder-turns-leecher", "bittorrent-tracker, wt-tracker"),
            ("udp-completed-makes-a-seeder-whatever-left-says", "aquatic, opentracker"),
            ("http-completed-makes-a-seeder-whatever-left-says", "aquatic, opentracker"),
            ("http-unknown-left-is-a-leecher", "aquatic, bittorrent-tracker, chihaya, opentracker"),
            ("ws-unknown-left-is-a-leecher", "aquatic, bittorrent-tracker"),
            ("ws-answer-changes-no-counts", "aquatic, bittorrent-tracker"),
        ],
    },
    Answer {
        text: "Stands as a should. BEP 48 defines downloaded as completed downloads. A tracker that reports 0, or counts seeders that start, reports something else.",
        cases: &[
            ("udp-completed-counts-a-download", "aquatic, chihaya"),
            ("http-completed-counts-a-download", "aquatic, chihaya"),
            ("udp-seeding-from-the-start-is-no-download", "bittorrent-tracker, opentracker"),
            ("http-seeding-from-the-start-is-no-download", "bittorrent-tracker, opentracker"),
            ("ws-seeding-from-the-start-is-no-download", "bittorrent-tracker, wt-tracker"),
        ],
    },
    Answer {
        text: "Stands as a should. BEP 21 added an event after the first trackers. An error takes the peer out of its swarm.",
        cases: &[
            ("udp-unknown-event-is-an-update", "aquatic, bittorrent-tracker, chihaya"),
            ("http-unknown-event-is-an-update", "aquatic, bittorrent-tracker, chihaya"),
            ("ws-unknown-event-is-an-update", "aquatic, bittorrent-tracker, wt-tracker"),
            ("http-paused-is-an-update", "aquatic, chihaya"),
        ],
    },
    Answer {
        text: "Stands as a should. Clients behind a firewall or a proxy announce port 0 and still connect to others. An error leaves them without peers.",
        cases: &[
            ("udp-port-0-is-answered-with-peers", "aquatic, chihaya"),
            ("http-port-0-is-answered-with-peers", "bittorrent-tracker, chihaya"),
        ],
    },
    Answer {
        text: "Stands as a should. A client may send -1 for the default, as over UDP.",
        cases: &[(
            "http-numwant-negative-is-the-default",
            "aquatic, bittorrent-tracker, chihaya, opentracker",
        )],
    },
    Answer {
        text: "Stands as a should. BEP 15 gives 74 as the number that fits; a client that gets fewer cannot tell which are missing.",
        cases: &[("udp-scrape-of-74-is-complete", "aquatic, chihaya")],
    },
    Answer {
        text: "Stands as a should, although all four break it. No client sends such bytes today; BEP 15 asks for room for extensions.",
        cases: &[("udp-scrape-ignores-a-partial-hash", "aquatic, bittorrent-tracker, chihaya, opentracker")],
    },
    Answer {
        text: "Stands as a should. BEP 23 lets the tracker choose, so both forms are allowed; compact replies take a quarter of the bytes, and old clients read dictionaries only.",
        cases: &[
            ("http-compact-is-the-default", "bittorrent-tracker, chihaya"),
            ("http-compact-0-gives-dictionaries", "aquatic, opentracker"),
        ],
    },
    Answer {
        text: "Only a habit that saves bytes, and all four break it. It stays a should for clients that send the parameter.",
        cases: &[("http-no-peer-id-is-kept", "aquatic, bittorrent-tracker, chihaya, opentracker")],
    },
    Answer {
        text: "Stands as a should. BEP 3 names the type. Clients ignore it; browsers show the reply in place of saving a file.",
        cases: &[("http-announce-is-plain-text", "aquatic, bittorrent-tracker")],
    },
    Answer {
        text: "Stands as a should. Users see the reason only in a failure reason with status 200, and a client whose connection ends opens another for its next torrent.",
        cases: &[
            ("http-refusal-is-a-failure-reason", "aquatic, opentracker"),
            ("http-refusal-has-status-200", "aquatic, opentracker"),
            ("http-refusal-keeps-the-connection", "aquatic, opentracker"),
            ("http-scrape-of-everything-is-refused-or-whole", "aquatic, opentracker"),
        ],
    },
    Answer {
        text: "Stands as a should. RFC 6455 asks for it. Browsers always send a valid handshake; the status helps the authors of other clients.",
        cases: &[
            ("ws-handshake-of-another-version-gets-426", "aquatic, bittorrent-tracker, wt-tracker"),
            ("ws-handshake-with-a-bad-key-gets-400", "aquatic, wt-tracker"),
            ("ws-handshake-without-a-key-gets-400", "aquatic, wt-tracker"),
        ],
    },
    Answer {
        text: "Stands as a should. RFC 6455 asks for the close frame. A browser reports 1006 without one, and the author of a client looks for the fault in the network.",
        cases: &[
            ("ws-bad-close-frames-get-1002", "aquatic, wt-tracker"),
            ("ws-bad-utf-8-closes-with-1007", "aquatic, wt-tracker"),
            ("ws-close-has-its-code-echoed", "aquatic, wt-tracker"),
            ("ws-oversized-message-closes-with-1009", "aquatic, wt-tracker"),
            ("ws-protocol-errors-close-with-1002", "aquatic, wt-tracker"),
        ],
    },
    Answer {
        text: "Stands as a should. Ten offers with many candidates reach that size, and the client loses its connection with all torrents.",
        cases: &[("ws-message-beyond-64-kb-is-read", "aquatic, wt-tracker")],
    },
    Answer {
        text: "Stands as a should. An offer is the business of the two clients. A tracker that does not read it cannot damage it.",
        cases: &[
            ("ws-offer-arrives-byte-for-byte", "aquatic, bittorrent-tracker, wt-tracker"),
            ("ws-answer-arrives-byte-for-byte", "aquatic, bittorrent-tracker, wt-tracker"),
            ("ws-offer-of-any-kind-is-relayed", "aquatic, wt-tracker"),
            ("ws-bad-offers-are-skipped", "aquatic, wt-tracker"),
        ],
    },
    Answer {
        text: "Stands as a should. Seeders have nothing for each other while a leecher waits.",
        cases: &[("ws-offers-of-a-seeder-reach-leechers-first", "bittorrent-tracker, wt-tracker")],
    },
    Answer {
        text: "Stands as a should. Otherwise any client can send anything to any other, or answer in place of a third.",
        cases: &[
            ("ws-answer-is-relayed-once", "bittorrent-tracker, wt-tracker"),
            ("ws-answer-of-another-peer-is-dropped", "bittorrent-tracker, wt-tracker"),
            ("ws-unsolicited-answer-is-dropped", "bittorrent-tracker, wt-tracker"),
        ],
    },
    Answer {
        text: "Stands as a should. A client that reconnects, or has two URLs of one tracker, is otherwise out of reach until the old connection times out.",
        cases: &[
            ("ws-reconnect-is-served", "aquatic, bittorrent-tracker"),
            ("ws-closing-the-old-socket-keeps-the-peer", "aquatic, bittorrent-tracker"),
        ],
    },
    Answer {
        text: "Stands as a should. The client of bittorrent-tracker reconnects on a message without an action, with all its torrents.",
        cases: &[("ws-refusal-has-action-and-info-hash", "aquatic, bittorrent-tracker, wt-tracker")],
    },
    Answer {
        text: "Stands as a should. Memory of the tracker is otherwise in the hands of its slowest client.",
        cases: &[("ws-slow-reader-is-let-go", "bittorrent-tracker, wt-tracker")],
    },
    Answer {
        text: "Only a habit: an operator may want a port for each protocol. It stays a should, since one address serves all clients.",
        cases: &[("ws-http-is-served-on-the-same-port", "aquatic, wt-tracker")],
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::ANSWERS;
    use crate::{http, udp, webtorrent};

    #[test]
    fn each_answer_is_about_cases_that_two_trackers_break() {
        let cases = udp::cases().into_iter().chain(http::cases()).chain(webtorrent::cases());
        let cases: BTreeSet<&str> = cases.map(|case| case.id).collect();
        let mut seen = BTreeSet::new();
        for (id, trackers) in ANSWERS.iter().flat_map(|answer| answer.cases) {
            assert!(cases.contains(id) && seen.insert(id), "{id} is unknown, or has two answers");
            assert!(trackers.contains(", "), "{id} is broken by one tracker: {trackers}");
        }
    }
}
