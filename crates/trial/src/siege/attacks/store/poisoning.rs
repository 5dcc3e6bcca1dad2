//! Attacks that displace honest peers in the replies of one swarm.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, ensure};

use crate::measure::{count, ratio};
use crate::siege::address::{honest_v4, honest_v6, hostile_v4, hostile_v6};
use crate::siege::context::Context;
use crate::siege::udp::{Announce, announce_all, is_hostile, leecher};

/// The order in which the peers join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    HonestFirst,
    HostileFirst,
}

const SWARM: [u8; 20] = [0x60; 20];

/// The number of honest peers in the swarm.
const HONEST: u32 = 50;

/// The values of numwant in the requests.
const NUM_WANTS: [i32; 4] = [10, 30, 50, 200];

/// The number of peers in replies for each value. Two of 52 sources are 3.8 %, so chance is 7 sigma away from the maximum.
const PEERS: i32 = 15_000;

/// The maximum share of hostile peers in replies.
const SHARE_MAX: f64 = 0.05;

pub(super) fn v4(context: &Context<'_>, order: Order) -> Result<()> {
    let hostile = || {
        let client = context.udp(hostile_v4(1))?;
        let ports = 1..=context.pick(8_000, u16::MAX);
        let peers = ports.map(|port| leecher(SWARM, port));
        context.spend_flow(announce_all(&client, peers, || context.is_over(), |_| {}));
        Ok(())
    };
    poison(context, order, honest_v4, hostile)
}

pub(super) fn v6(context: &Context<'_>, order: Order) -> Result<()> {
    let hostile = || {
        for number in 0..context.pick(128, 1024) {
            let client = context.udp(hostile_v6(number))?;
            let peers = (1..=64).map(|port| leecher(SWARM, port));
            context.spend_flow(announce_all(&client, peers, || context.is_over(), |_| {}));
        }
        Ok(())
    };
    poison(context, order, honest_v6, hostile)
}

fn poison(
    context: &Context<'_>,
    order: Order,
    honest: fn(u32) -> IpAddr,
    attack: impl Fn() -> Result<()>,
) -> Result<()> {
    if order == Order::HostileFirst {
        attack()?;
    }
    for number in 0..HONEST {
        context.udp(honest(400 + number))?.announce(&leecher(SWARM, 8000))?;
    }
    if order == Order::HonestFirst {
        attack()?;
    }
    let client = context.udp(honest(399))?;
    for num_want in NUM_WANTS {
        let (mut peers_seen, mut hostile) = (0, 0);
        let requests = (0..PEERS / num_want).map(|_| Announce { numwant: num_want, ..leecher(SWARM, 8001) });
        let on_peers = |peers: &[SocketAddr]| {
            peers_seen += count(peers.len());
            hostile += count(peers.iter().filter(|peer| is_hostile(peer)).count());
        };
        announce_all(&client, requests, || context.is_over(), on_peers);
        ensure!(peers_seen > 0, "no peers in the replies of a swarm of {HONEST} honest peers");
        let share = ratio(hostile, peers_seen);
        let found = format!("{:.1} % at numwant {num_want}", share * 100.0);
        context.check("share of hostile peers", share <= SHARE_MAX, found);
    }
    Ok(())
}
