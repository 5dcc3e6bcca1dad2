//! Properties that hold for all input.
//!
//! This crate owns the bodies of the fuzz targets: functions that panic if a property does not hold. `fuzz/` wraps them
//! for libFuzzer. The tests of this crate replay the corpora, so that every input ever found stays covered without a
//! fuzzer.
#![allow(missing_docs, reason = "only this workspace uses the crate, and the names say it")]

mod access_networks;
mod access_owners;
mod change_cursor;
mod client_software;
mod cluster;
mod http;
mod model;
mod proxy;
mod script;
mod snapshot;
mod token;
mod torrent_document;
mod torrent_list;
mod udp_decode;
mod udp_reply;
mod webtorrent;
mod xdp_frame;

pub use access_networks::access_networks;
pub use access_owners::access_owners;
pub use change_cursor::change_cursor;
pub use client_software::client_software;
pub use cluster::message::{cluster_credit, cluster_deltas, cluster_message, cluster_segment};
pub use cluster::node::cluster_node;
pub use cluster::remote_messages::remote_messages;
pub use cluster::replica_block::replica_block;
pub use http::head::http_head;
pub use http::query::http_query;
pub use http::reply::http_reply;
pub use http::response::http_response;
pub use proxy::{http_forwarded, proxy};
pub use snapshot::snapshot;
pub use token::{jwks, token};
pub use torrent_document::{torrent_feed, torrent_json};
pub use torrent_list::{torrent_file, torrent_list};
pub use udp_decode::udp_decode;
pub use udp_reply::udp_reply;
pub use webtorrent::frames::websocket_messages;
pub use webtorrent::handshake::websocket_handshake;
pub use webtorrent::message::webtorrent_message;
pub use webtorrent::received::webtorrent_received;
pub use xdp_frame::xdp_frame;

/// A property of all inputs.
pub type Property = fn(&[u8]);

/// Every target by the name of its corpus.
pub const TARGETS: &[(&str, Property)] = &[
    ("access_networks", access_networks),
    ("access_owners", access_owners),
    ("change_cursor", change_cursor),
    ("client_software", client_software),
    ("cluster_credit", cluster_credit),
    ("cluster_deltas", cluster_deltas),
    ("cluster_message", cluster_message),
    ("cluster_node", cluster_node),
    ("cluster_segment", cluster_segment),
    ("http_forwarded", http_forwarded),
    ("http_head", http_head),
    ("http_query", http_query),
    ("http_reply", http_reply),
    ("http_response", http_response),
    ("jwks", jwks),
    ("proxy", proxy),
    ("remote_messages", remote_messages),
    ("replica_block", replica_block),
    ("snapshot", snapshot),
    ("token", token),
    ("torrent_feed", torrent_feed),
    ("torrent_file", torrent_file),
    ("torrent_json", torrent_json),
    ("torrent_list", torrent_list),
    ("udp_decode", udp_decode),
    ("udp_reply", udp_reply),
    ("websocket_handshake", websocket_handshake),
    ("websocket_messages", websocket_messages),
    ("webtorrent_message", webtorrent_message),
    ("webtorrent_received", webtorrent_received),
    ("xdp_frame", xdp_frame),
];
