//! Floods that public trackers see every day, against the default settings alone.
//!
//! All addresses over IPv4 are public ones, because the defaults exempt those of the own host. Whether the honest clients notice is
//! the question, not whether the flood is refused: a flood from thousands of addresses looks much like as many clients.

mod carrier;
mod firm;
mod names;

use crate::siege::attack::{Attack, Layer, Limits};
use crate::siege::attacks::xdp;

/// The highest ratio of the 99th percentile of honest latencies to the one without a flood.
const P99_RATIO_MAX: f64 = 3.0;

const FOREIGN_NAMES: &str =
    "announces over HTTP, HTTPS and WebSockets by names that others have pointed at the tracker";

const ATTACK: Attack = Attack {
    has_defaults: true,
    limits: Limits::SWARMS_STAY,
    ..Layer::Floods.attack(
        "",
        "2,000 addresses announce random torrents with random peer ids and scrape whatever they announced, first 1,000 times a \
         second, then without a pause",
        "honest clients are answered",
        |_| Ok(()),
    )
};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "monitoring-firm-http",
        promise: "honest clients are answered, in full mode within three times their time without the flood",
        limits: Limits { p99_ratio_max: Some(P99_RATIO_MAX), ..ATTACK.limits },
        run: firm::over_http,
        ..ATTACK
    },
    Attack { name: "monitoring-firm-udp", run: firm::over_udp, ..ATTACK },
    Attack {
        name: "monitoring-firm-xdp",
        settings: xdp::SETTINGS,
        is_on_wire: true,
        run: firm::over_xdp,
        finish: xdp::ATTACK.finish,
        ..ATTACK
    },
    Attack {
        name: "carrier-nat",
        tries: "5,000 clients of one IPv4 address announce at once over UDP, HTTP and WSS",
        promise: "none is refused, and all others are served",
        run: carrier::announce_all,
        ..ATTACK
    },
    Attack {
        name: "foreign-names",
        tries: FOREIGN_NAMES,
        promise: "all are served, since the tracker does not know its names, and honest clients are answered",
        run: names::served,
        ..ATTACK
    },
    Attack {
        name: "foreign-names-refused",
        tries: FOREIGN_NAMES,
        promise: "with `access.hosts_allow` all are refused with a reason that tells the right name, and honest clients are answered",
        settings: &[("access.hosts_allow", names::OWN)],
        run: names::refused,
        ..ATTACK
    },
];
