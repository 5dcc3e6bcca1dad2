//! The state of one address in the limits.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use shoal_base::source::Level;
use shoal_engine::limits::Activity;
use shoal_engine::policy::Protocol;
use utoipa::ToSchema;

use super::looking_up;
use crate::Control;
use crate::extract::Path;
use crate::problem::{Problem, ProblemBody};
use shoal_runtime::clock;
use shoal_runtime::lists::bans::Ban;

/// How much of a rate is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RateLevel {
    /// The operator has set no limit, or exempts the address.
    Unlimited,
    /// It has asked for nothing lately.
    Full,
    /// It has asked, and may ask on.
    Partial,
    /// Its requests are refused.
    Empty,
}

/// The rates of one address, by what they limit.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SourceRates {
    udp: RateLevel,
    http: RateLevel,
    webtorrent: RateLevel,
    udp_connect: RateLevel,
    tcp_connect: RateLevel,
    bad_token: RateLevel,
}

/// The peers and torrents of the address or its /64 in all swarms, as far as the operator limits it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SourceHoldings {
    /// The number of peers; an estimate that is never too low.
    peers: u32,
    /// The maximum; 0 is none, and then peers are not counted.
    peers_max: u32,
    /// The number of torrents, likewise.
    torrents: u32,
    /// The maximum; 0 is none.
    torrents_max: u32,
}

/// The state of an address in the limits.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SourceStatus {
    /// The address.
    #[schema(value_type = String)]
    address: IpAddr,
    /// Whether the lists of networks and the bans let it be served.
    network_served: bool,
    /// The ban of its network that ends last.
    ban: Option<Ban>,
    /// Whether limits.exempt names it.
    exempt: bool,
    rates: SourceRates,
    /// Its peers and torrents; null if nothing is limited.
    holdings: Option<SourceHoldings>,
}

/// The state of one address in the limits of sources: whether it is served, its bans, its rates, and what it holds.
#[utoipa::path(
    get, path = "/api/v1/sources/{address}", tag = "limits", security(("token" = ["admin"])),
    params(("address" = String, Path, description = "An IPv4 or IPv6 address.", example = "192.0.2.1")),
    responses((status = 200, body = SourceStatus), (status = 400, body = ProblemBody))
)]
pub(super) async fn show(
    State(control): State<Control>,
    Path(address): Path<String>,
) -> Result<Json<SourceStatus>, Problem> {
    let address: IpAddr = address.parse().map_err(|_| {
        Problem::new(StatusCode::BAD_REQUEST, format!("{address:?} is no IPv4 or IPv6 address"))
    })?;
    let address = address.to_canonical();
    let lists = control.sources.list_control.clone();
    let ban = looking_up(move || Ok(lists.ban_of(address))).await?;
    let live = control.sources.live.latest();
    let (policy, now) = (Arc::clone(&live.policy), clock::now());
    let rate = |activity| {
        let level = policy.limits().and_then(|limits| limits.level(address, activity, now));
        level.map_or(RateLevel::Unlimited, |level| match level {
            Level::Empty => RateLevel::Empty,
            Level::Partial => RateLevel::Partial,
            Level::Full => RateLevel::Full,
        })
    };
    let holdings = control.holdings.as_ref().map(|holdings| {
        let (peers, torrents) = holdings.count(holdings.hasher().source(address));
        let limits = &policy.config().limits;
        let (peers_max, torrents_max) = (limits.peers_per_source_max, limits.torrents_per_source_max);
        SourceHoldings { peers, peers_max, torrents, torrents_max }
    });
    Ok(Json(SourceStatus {
        address,
        network_served: policy.serves_network(address) && !policy.is_banned(address),
        ban,
        exempt: policy.is_exempt(address),
        rates: SourceRates {
            udp: rate(Activity::Request(Protocol::Udp)),
            http: rate(Activity::Request(Protocol::Http)),
            webtorrent: rate(Activity::Request(Protocol::WebTorrent)),
            udp_connect: rate(Activity::UdpConnect),
            tcp_connect: rate(Activity::TcpConnect),
            bad_token: rate(Activity::BadToken),
        },
        holdings,
    }))
}
