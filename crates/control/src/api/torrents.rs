//! Torrents: the counts of some of them, and the largest.

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use shoal_base::{Counts, InfoHash};
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::extract::{Path, Query};
use crate::insight::{PEERS_MAX, TOP_MAX, TORRENTS_MAX, Torrent, TorrentAge, TorrentPeers};
use crate::listener::connections::Connection;
use crate::problem::{Problem, ProblemBody};
use crate::{Control, Role, body};
use shoal_runtime::lists::operations::parse_torrents;

/// Number of torrents that are looked up and sent at once.
const TORRENTS_PER_PIECE: usize = 500;

/// The media type of a document on each line.
const NDJSON: &str = "application/x-ndjson";

/// The numbers of peers of a torrent, and of its downloads.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct TorrentCounts {
    seeders: u32,
    leechers: u32,
    /// Completed downloads since the swarm exists.
    completed: u32,
}

/// The counts of a torrent; zeros if it has no peers.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TorrentStatus {
    /// The info hash in hexadecimal.
    info_hash: String,
    /// The sums of the others.
    total: TorrentCounts,
    /// Over UDP and HTTP, with IPv4 addresses.
    v4: TorrentCounts,
    /// Over UDP and HTTP, with IPv6 addresses.
    v6: TorrentCounts,
    /// WebTorrent.
    webtorrent: TorrentCounts,
}

/// A peer of a torrent.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TorrentPeer {
    /// Its address and port; null over WebTorrent.
    address: Option<String>,
    /// Whether it has the whole torrent.
    seeds: bool,
    /// Seconds since its last announce.
    age_s: u32,
}

/// A torrent, with peers for the role admin.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TorrentDetails {
    torrent: TorrentStatus,
    age_s: TorrentAge,
    /// Some of its peers, if the request asks for them.
    peers: Option<Vec<TorrentPeer>>,
}

/// The facts to tell of a torrent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    #[serde(default)]
    peers: usize,
}

/// How many of the largest swarms to tell of.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopWanted {
    #[serde(default = "default_top")]
    max: usize,
}

const fn default_top() -> usize {
    20
}

/// Torrents to look up.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TorrentQuery {
    /// Up to 10,000 info hashes: 40 hexadecimal digits, or base32.
    #[schema(max_items = 10_000)]
    info_hashes: Vec<String>,
}

/// The largest swarms.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TopTorrents {
    /// The largest first.
    torrents: Vec<TorrentStatus>,
}

impl From<Counts> for TorrentCounts {
    fn from(counts: Counts) -> Self {
        let Counts { seeders, leechers, completed } = counts;
        Self { seeders, leechers, completed }
    }
}

impl From<&Torrent> for TorrentStatus {
    fn from(torrent: &Torrent) -> Self {
        Self {
            info_hash: format!("{:?}", torrent.info_hash),
            total: torrent.total().into(),
            v4: torrent.v4.into(),
            v6: torrent.v6.into(),
            webtorrent: torrent.webtorrent.into(),
        }
    }
}

/// The counts and the age of one torrent, by family and for WebTorrent. The role admin may ask for peers.
#[utoipa::path(
    get, path = "/api/v1/torrents/{info_hash}", tag = "torrents", security(("token" = ["read"])),
    params(
        ("info_hash" = String, Path, description = "40 hexadecimal digits, or base32."),
        ("peers" = Option<u16>, Query, description = "Maximum number of peers of each kind, up to 1000; for the role admin.")
    ),
    responses(
        (status = 200, body = TorrentDetails),
        (status = 400, body = ProblemBody),
        (status = 403, description = "Peers are for the role admin.", body = ProblemBody)
    )
)]
pub(super) async fn show(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(info_hash): Path<String>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<TorrentDetails>, Problem> {
    let info_hash = parse(&info_hash)?;
    if wanted.peers > PEERS_MAX {
        return Err(Problem::new(StatusCode::BAD_REQUEST, format!("peers must be at most {PEERS_MAX}")));
    }
    if wanted.peers > 0 && caller.role != Role::Admin {
        let error = "the addresses of peers need a token of the role admin";
        return Err(Problem::new(StatusCode::FORBIDDEN, error));
    }
    let insight = &control.sources.insight;
    let peers = (wanted.peers > 0).then(|| shown_peers(&insight.peers(&info_hash, wanted.peers)));
    let torrent = (&insight.torrent(&info_hash)).into();
    Ok(Json(TorrentDetails { torrent, age_s: insight.ages(&info_hash), peers }))
}

fn shown_peers(peers: &TorrentPeers) -> Vec<TorrentPeer> {
    let stored = peers.stored.iter().map(|peer| TorrentPeer {
        address: Some(peer.address.to_string()),
        seeds: peer.seeds,
        age_s: peer.age_s,
    });
    let connected = peers.connected.iter().map(|peer| TorrentPeer {
        address: None,
        seeds: peer.seeds,
        age_s: peer.age_s,
    });
    stored.chain(connected).collect()
}

/// The counts of up to 10,000 torrents, a document on each line, in the order of the request.
#[utoipa::path(
    post, path = "/api/v1/torrents", tag = "torrents", security(("token" = ["read"])), request_body = TorrentQuery,
    responses(
        (status = 200, body = TorrentStatus, content_type = "application/x-ndjson"),
        (status = 400, body = ProblemBody),
        (status = 503, description = "Too many such requests at a time.", body = ProblemBody)
    )
)]
pub(super) async fn show_many(
    State(control): State<Control>,
    Extension(connection): Extension<Connection>,
    request: Request,
) -> Result<Response, Problem> {
    let TorrentQuery { info_hashes } = body::read_large(request, &connection).await?;
    if info_hashes.len() > TORRENTS_MAX {
        let error =
            format!("info_hashes may have {TORRENTS_MAX} of them; ask for the rest in another request");
        return Err(Problem::new(StatusCode::BAD_REQUEST, error));
    }
    let info_hashes: Vec<InfoHash> =
        info_hashes.iter().map(|info_hash| parse(info_hash)).collect::<Result<_, _>>()?;
    let insight = std::sync::Arc::clone(&control.sources.insight);
    // A piece is looked up when the previous one was sent.
    let pieces = stream::unfold((insight, info_hashes, 0), |(insight, info_hashes, from)| async move {
        let piece = info_hashes.get(from..).filter(|rest| !rest.is_empty())?;
        let piece = &piece[..piece.len().min(TORRENTS_PER_PIECE)];
        let mut text = Vec::new();
        for torrent in insight.torrents(piece) {
            serde_json::to_writer(&mut text, &TorrentStatus::from(&torrent)).ok()?;
            text.push(b'\n');
        }
        let next = from + piece.len();
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(text)), (insight, info_hashes, next)))
    });
    Ok(([(header::CONTENT_TYPE, NDJSON)], Body::from_stream(pieces)).into_response())
}

/// The largest swarms, by the sum of their peers, as far as samples of announces show them.
#[utoipa::path(
    get, path = "/api/v1/top", tag = "torrents", security(("token" = ["read"])),
    params(("max" = Option<u16>, Query, description = "Maximum number of torrents: 1 to 100, by default 20.")),
    responses(
        (status = 200, body = TopTorrents),
        (status = 400, body = ProblemBody)
    )
)]
pub(super) async fn top(
    State(control): State<Control>,
    Query(wanted): Query<TopWanted>,
) -> Result<Json<TopTorrents>, Problem> {
    if !(1..=TOP_MAX).contains(&wanted.max) {
        return Err(Problem::new(StatusCode::BAD_REQUEST, format!("max must be from 1 to {TOP_MAX}")));
    }
    let torrents = control.sources.insight.top(wanted.max);
    Ok(Json(TopTorrents { torrents: torrents.iter().map(TorrentStatus::from).collect() }))
}

/// Returns the info hash that a text names.
fn parse(text: &str) -> Result<InfoHash, Problem> {
    let refuse = || {
        Problem::new(StatusCode::BAD_REQUEST, format!("{text:?} is no info hash of 40 hexadecimal digits"))
    };
    let info_hashes = parse_torrents(std::slice::from_ref(&text.to_owned())).map_err(|_| refuse())?;
    match info_hashes[..] {
        [info_hash] => Ok(info_hash),
        _ => Err(refuse()),
    }
}
