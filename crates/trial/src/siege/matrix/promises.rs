//! The promises, each with its attacks by path.

use super::By::{Attacks, Nothing};
use super::Path::{Cluster, Http, Https, Ipv4, Ipv6, Udp, Ws, Wss, Xdp};
use super::{By, Path, Promise, Tests};

const fn on(paths: &'static [Path], by: By) -> Tests {
    Tests { paths, by }
}

const NO_MESSAGES: By = Nothing("clients send each other nothing here");
const NO_CONNECTIONS: By = Nothing("datagrams hold no connection");
const SAME_WORKER: By = Nothing("the program answers connects only; the worker decides about the rest");
const TCP_VERIFIES: By = Nothing("the handshake of TCP has verified the address");
const TRUSTED_NODES: By = Nothing("the nodes of a cluster trust each other");

/// All promises.
pub const PROMISES: &[Promise] = &[
    Promise {
        text: "An announce takes a bounded time, whatever keys an attacker has chosen after watching replies; an order or seed that is learned in one table is useless in another.",
        tests: &[
            on(
                &[Udp, Ipv4],
                Attacks(&[
                    "store/learned-neighbours-v4",
                    "store/renewal-in-a-run",
                    "store/growth-and-shrinking-v4",
                    "store/table-of-swarms",
                    "store/split-and-merge",
                    "store/crowded-slots",
                ]),
            ),
            on(&[Udp, Ipv6], Attacks(&["store/learned-neighbours-v6", "store/growth-and-shrinking-v6"])),
            on(&[Xdp], Attacks(&["xdp/forged-connection-ids"])),
            on(
                &[Http, Https],
                Nothing(
                    "the keys reach the same tables by the same call, in requests that cost far more than the call",
                ),
            ),
            on(
                &[Ws, Wss],
                Nothing(
                    "no reply shows an order: receivers of offers are drawn at random, and peer ids are hashed under a secret key",
                ),
            ),
            on(&[Cluster], Attacks(&["cluster/peers-of-one-torrent", "cluster/peers-of-many-torrents"])),
        ],
    },
    Promise {
        text: "No reply to an unverified address is larger than the request.",
        tests: &[
            on(
                &[Udp, Ipv4, Ipv6],
                Attacks(&["datagrams/forged-sources", "datagrams/connect-flood", "datagrams/garbage"]),
            ),
            on(
                &[Xdp, Ipv4, Ipv6],
                Attacks(&["xdp/spoofed-connects", "xdp/limited-flood", "xdp/malformed-frames"]),
            ),
            on(&[Http, Https, Ws, Wss], TCP_VERIFIES),
            on(&[Cluster], Attacks(&["cluster/requests"])),
        ],
    },
    Promise {
        text: "No client can register a peer at an address that is not its own.",
        tests: &[
            on(
                &[Udp, Ipv4, Ipv6],
                Attacks(&["datagrams/connection-id-guessing", "datagrams/stolen-connection-id"]),
            ),
            on(&[Xdp, Ipv4, Ipv6], Attacks(&["xdp/forged-connection-ids", "xdp/forged-sources"])),
            on(&[Http, Https, Ws, Wss, Ipv4, Ipv6], Attacks(&["http/forged-addresses"])),
            on(&[Cluster], TRUSTED_NODES),
        ],
    },
    Promise {
        text: "A connection that waits for its client can always be closed to make room for another; requests that never completed go first, and the source with the most connections loses one first.",
        tests: &[
            on(&[Udp, Xdp], NO_CONNECTIONS),
            on(
                &[Http, Ipv4],
                Attacks(&[
                    "connections/slots-by-a-byte",
                    "connections/slots-without-a-limit",
                    "connections/idle-hoarding",
                    "connections/slowloris",
                    "connections/slow-readers",
                    "connections/silent",
                    "connections/half-requests-of-200-addresses",
                    "connections/half-requests-of-many-networks",
                    "connections/descriptors",
                    "connections/half-proxy-headers",
                    "connections/slots-behind-a-proxy",
                    "connections/one-client-behind-a-proxy",
                    "connections/full-scrape-tricklers",
                ]),
            ),
            on(
                &[Http, Ipv6],
                Attacks(&[
                    "connections/many-networks-of-one-prefix",
                    "connections/half-requests-of-one-allocation",
                ]),
            ),
            on(
                &[Https, Wss],
                Attacks(&[
                    "tls/half-handshakes",
                    "tls/unfinished-handshakes",
                    "connections/half-requests-of-one-allocation",
                ]),
            ),
            on(&[Ws], Attacks(&["websocket/socket-hoarding", "connections/sockets-that-never-announce"])),
            on(&[Cluster], Nothing("a node opens its one connection to NATS itself")),
        ],
    },
    Promise {
        text: "The whole process stays within `memory.max` at every moment, and returns memory within seconds.",
        tests: &[
            on(&[Udp, Ipv4], Attacks(&["store/expiry-storm", "store/filling-known-torrents"])),
            on(&[Xdp], Attacks(&["xdp/ring-not-drained", "xdp/malformed-frames"])),
            on(&[Http, Ipv4], Attacks(&["http/pipelining", "http/header-bombs", "http/huge-query"])),
            on(&[Https, Ipv4, Ipv6], Attacks(&["tls/garbage-records", "tls/empty-records"])),
            on(&[Ws, Ipv4], Attacks(&["websocket/half-messages", "websocket/unread-answers"])),
            on(&[Ws, Ipv6], Attacks(&["websocket/half-messages-v6"])),
            on(&[Wss, Ipv4, Ipv6], Attacks(&["websocket/half-messages-tls"])),
            on(&[Cluster], Attacks(&["cluster/credit", "cluster/header-bombs", "cluster/nats-endless"])),
        ],
    },
    Promise {
        text: "No client can end or starve the connection of another; a slow reader loses offers of other clients before it loses its connection.",
        tests: &[
            on(&[Udp, Xdp], NO_CONNECTIONS),
            on(&[Http, Ipv4], Attacks(&["connections/connect-and-reset", "connections/silent"])),
            on(
                &[Http, Https, Ipv4, Ipv6],
                Attacks(&["connections/connect-and-close", "connections/bursts-with-pauses"]),
            ),
            on(&[Http, Ipv6], Attacks(&["connections/many-networks-of-one-prefix"])),
            on(
                &[Https, Wss, Ipv6],
                Attacks(&[
                    "tls/half-handshakes",
                    "tls/unfinished-handshakes",
                    "connections/half-requests-of-one-allocation",
                ]),
            ),
            on(
                &[Ws, Ipv4],
                Attacks(&[
                    "relay/third-party-queue",
                    "relay/third-party-queue-slow",
                    "websocket/divided-half-messages",
                    "websocket/socket-hoarding",
                    "connections/half-requests-of-200-addresses",
                    "connections/half-requests-of-many-networks",
                    "connections/sockets-that-never-announce",
                ]),
            ),
            on(&[Cluster], Attacks(&["cluster/relayed-messages"])),
        ],
    },
    Promise {
        text: "One address, one IPv4 /24 or one IPv6 /32 cannot cause announces of sources outside of it to be refused.",
        tests: &[
            on(
                &[Udp, Ipv4],
                Attacks(&[
                    "store/filling-one-address",
                    "store/filling-known-torrents",
                    "store/holding-one-address",
                    "store/holding-many-sources",
                ]),
            ),
            on(&[Udp, Ipv6], Attacks(&["store/filling-one-prefix", "store/filling-one-allocation"])),
            on(&[Xdp], SAME_WORKER),
            on(&[Http, Https, Ipv4, Ipv6], Attacks(&["http/holding"])),
            on(&[Ws], Attacks(&["relay/filling-peers", "relay/member-of-thousands"])),
            on(&[Wss], Nothing("messages are the same after decryption")),
            on(&[Cluster], Attacks(&["cluster/peers-of-one-torrent"])),
        ],
    },
    Promise {
        text: "In a swarm with honest peers of 50 addresses, one address or one IPv6 /48 cannot supply more than 5 % of the peers in replies, or receive more than 5 % of the offers.",
        tests: &[
            on(&[Udp, Ipv4], Attacks(&["store/poisoning-one-address", "store/poisoning-one-address-first"])),
            on(&[Udp, Ipv6], Attacks(&["store/poisoning-one-prefix", "store/poisoning-one-prefix-first"])),
            on(&[Xdp], SAME_WORKER),
            on(&[Http, Https, Ipv4, Ipv6], Attacks(&["http/poisoning"])),
            on(
                &[Ws, Ipv4],
                Attacks(&[
                    "relay/many-peers-on-one-socket",
                    "relay/many-sockets-of-one-address",
                    "relay/many-sockets-beside-neighbours",
                ]),
            ),
            on(&[Ws, Ipv6], Attacks(&["relay/many-sockets-of-one-site"])),
            on(&[Wss], Nothing("messages are the same after decryption")),
            on(&[Cluster], TRUSTED_NODES),
        ],
    },
    Promise {
        text: "An offer or an answer reaches no other client than its receiver, and no client takes over what is meant for another.",
        tests: &[
            on(&[Udp, Xdp, Http, Https], NO_MESSAGES),
            on(&[Ws, Ipv4], Attacks(&["relay/unsolicited-answers", "relay/peer-id-of-another"])),
            on(&[Wss], Nothing("messages are the same after decryption")),
            on(&[Ipv6], Nothing("the receiver of a message is a connection, whose family plays no part")),
            on(&[Cluster], Attacks(&["cluster/relayed-messages"])),
        ],
    },
    Promise {
        text: "A browser receives a bounded number of offers a second of one source.",
        tests: &[
            on(&[Udp, Xdp, Http, Https], NO_MESSAGES),
            on(
                &[Ws, Ipv4],
                Attacks(&[
                    "relay/offer-flood-ten-browsers",
                    "relay/offer-flood-two-browsers",
                    "relay/small-offers",
                ]),
            ),
            on(&[Wss], Nothing("messages are the same after decryption")),
            on(&[Ipv6], Nothing("the limit counts sources, which promise 7 attacks over IPv6")),
            on(&[Cluster], Attacks(&["cluster/relayed-messages"])),
        ],
    },
    Promise {
        text: "Malformed input of any protocol is refused or ignored, and counted; none ends the process.",
        tests: &[
            on(&[Udp, Ipv4], Attacks(&["datagrams/truncated-and-oversized", "datagrams/option-chains"])),
            on(&[Udp, Ipv4, Ipv6], Attacks(&["datagrams/garbage"])),
            on(&[Xdp, Ipv4, Ipv6], Attacks(&["xdp/malformed-frames"])),
            on(
                &[Http, Ipv4, Ipv6],
                Attacks(&["http/smuggling", "http/endless-body", "http/odd-methods", "http/header-bombs"]),
            ),
            on(
                &[Https, Wss, Ipv4, Ipv6],
                Attacks(&[
                    "tls/mutated-hellos",
                    "tls/garbage-records",
                    "tls/tiny-records",
                    "tls/junk-tickets",
                    "tls/empty-records",
                ]),
            ),
            on(
                &[Ws, Ipv4, Ipv6],
                Attacks(&[
                    "websocket/masked-garbage",
                    "websocket/fragments-of-a-byte",
                    "websocket/deep-json",
                    "websocket/huge-numbers",
                ]),
            ),
            on(
                &[Cluster],
                Attacks(&[
                    "cluster/garbage",
                    "cluster/malformed-headers",
                    "cluster/nats-garbage",
                    "cluster/nats-endless",
                ]),
            ),
        ],
    },
    Promise {
        text: "Honest clients are answered while others ask without a pause.",
        tests: &[
            on(
                &[Udp, Ipv4],
                Attacks(&[
                    "datagrams/scrape-flood",
                    "datagrams/scrapes-and-announces",
                    "store/hot-swarm",
                    "store/hot-shard",
                    "store/expiry-storm",
                    "floods/monitoring-firm-udp",
                ]),
            ),
            on(
                &[Udp, Ipv4, Ipv6],
                Attacks(&["datagrams/limited-flood", "datagrams/steered-flood", "datagrams/connect-flood"]),
            ),
            on(
                &[Xdp, Ipv4, Ipv6],
                Attacks(&[
                    "xdp/denied-flood",
                    "xdp/limited-flood",
                    "xdp/spoofed-connects",
                    "xdp/ring-not-drained",
                ]),
            ),
            on(&[Xdp, Ipv4], Attacks(&["floods/monitoring-firm-xdp"])),
            on(&[Http, Ipv4, Ipv6], Attacks(&["http/pipelining", "http/huge-query", "http/upgrade-storm"])),
            on(&[Http, Ipv4], Attacks(&["connections/connect-and-reset", "floods/monitoring-firm-http"])),
            on(
                &[Http, Https, Ipv4, Ipv6],
                Attacks(&["connections/connect-and-close", "connections/bursts-with-pauses"]),
            ),
            on(
                &[Https, Wss, Ipv4, Ipv6],
                Attacks(&["tls/client-hello-flood", "tls/resumption-flood", "tls/replayed-tickets"]),
            ),
            on(&[Ws, Ipv4, Ipv6], Attacks(&["websocket/ping-flood", "websocket/close-without-reading"])),
            on(&[Ws, Ipv4], Attacks(&["relay/hot-target", "relay/unanswered-offers"])),
            on(
                &[Cluster],
                Attacks(&[
                    "cluster/forged-sources",
                    "cluster/invented-nodes",
                    "cluster/nats-restarts",
                    "cluster/nats-mute",
                    "cluster/nats-closes",
                ]),
            ),
        ],
    },
    Promise {
        text: "Pages of other sites cannot make their visitors announce over HTTPS, cannot do so by scripts over HTTP, cannot open WebSockets where `webtorrent.origins_allow` excludes them, and cannot read the control listener.",
        tests: &[
            on(&[Udp, Xdp], Nothing("pages cannot send datagrams of their own")),
            on(&[Http, Https, Ws, Wss, Ipv4, Ipv6], Attacks(&["http/cross-site-browsers"])),
            on(&[Cluster], Nothing("pages do not reach NATS")),
        ],
    },
    Promise {
        text: "A client without a valid token is not served if tokens are required; tokens with wrong signatures take a bounded share of the processor and harm no client whose token is known.",
        tests: &[
            on(&[Udp, Http, Ws, Ipv4, Ipv6], Attacks(&["tokens/random-tokens"])),
            on(&[Https, Wss], Nothing("the token is read from the same URL after decryption")),
            on(&[Xdp], SAME_WORKER),
            on(&[Cluster], Attacks(&["cluster/no-credentials"])),
        ],
    },
    Promise {
        text: "A node of a cluster serves its own clients whatever arrives by NATS; it hands out no peers that its lists forbid, and its credit waits in bounded memory.",
        tests: &[on(
            &[],
            Attacks(&["cluster/forbidden-peers", "cluster/credit", "cluster/garbage", "cluster/nats-mute"]),
        )],
    },
    Promise {
        text: "A completed download is counted once, and counts that outlive their swarms keep to their number.",
        tests: &[on(&[], Attacks(&["store/completed-and-stopped", "store/displacing-counts"]))],
    },
    Promise {
        text: "Signals, reloads, upgrades and the control listener do not stop the service, and answer, whatever replaces a file or reads slowly.",
        tests: &[on(
            &[],
            Attacks(&[
                "signals/fifo-as-certificate",
                "signals/fifo-between-look-and-read",
                "signals/huge-certificate",
                "signals/reload-storm",
                "signals/upgrade-among-slow-clients",
                "signals/upgrade-that-hangs",
                "signals/stop-during-upgrade",
                "signals/stop-under-load",
                "control/rebinding",
                "control/slow-clients",
                "control/huge-heads",
                "control/metrics-flood",
                "control/slow-readers-of-the-page",
                "control/slow-readers-of-metrics",
                "control/stalled-feeds",
                "control/long-polls",
                "control/endless-bodies",
                "control/slow-bodies",
                "control/json-bombs",
                "control/many-torrents",
                "control/wrong-tokens",
                "control/forged-pages",
                "control/bans-beyond-the-maximum",
                "control/drain-in-a-loop",
            ]),
        )],
    },
    Promise {
        text: "A list that does not fit its part of `memory.max` is refused with the memory that it would need, whatever its server sends; the process stays within `memory.max` meanwhile.",
        tests: &[on(&[], Attacks(&["lists/huge-file", "lists/huge-url", "lists/bombs"]))],
    },
    Promise {
        text: "The text of clients on pages and in logs takes bounded memory, and contains no markup.",
        tests: &[on(
            &[],
            Attacks(&[
                "insight/statistics-flood",
                "insight/statistics-slow-readers",
                "insight/random-software",
                "insight/log-to-a-full-device",
                "insight/log-to-an-unread-pipe",
                "insight/markup-in-the-log",
            ]),
        )],
    },
    Promise {
        text: "With default settings, no client of an IPv4 address that thousands of clients share is refused.",
        tests: &[
            on(&[Udp, Http, Wss, Ipv4], Attacks(&["floods/carrier-nat"])),
            on(&[Xdp], SAME_WORKER),
            on(&[Https, Ws], Nothing("the limits are those of HTTP and WSS")),
            on(&[Ipv6], Nothing("each client has a prefix of its own")),
            on(&[Cluster], TRUSTED_NODES),
        ],
    },
    Promise {
        text: "A tracker that is told its names refuses requests by other names, with a reason that tells the right ones; a tracker that is not told them serves all.",
        tests: &[
            on(&[Http, Https, Ws, Ipv4], Attacks(&["floods/foreign-names", "floods/foreign-names-refused"])),
            on(&[Udp, Xdp], Nothing("requests name no host")),
            on(&[Wss], Nothing("the name is read from the same request after decryption")),
            on(&[Ipv6], Nothing("the family of the client plays no part")),
            on(&[Cluster], TRUSTED_NODES),
        ],
    },
];
