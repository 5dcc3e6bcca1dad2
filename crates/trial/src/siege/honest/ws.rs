//! Two WebTorrent peers at two addresses: one makes offers, the other answers them, and both messages have to arrive.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;
use shoal_testkit::client::tls::Tls;

use super::{Client, REQUEST_INTERVAL, TIMEOUT};
use crate::measure;
use crate::siege::websocket::{WebSocket, announce, answer, random_id};

pub(super) struct SocketPair {
    sources: [IpAddr; 2],
    target: SocketAddr,
    tls: Option<Tls>,
    sockets: Option<[WebSocket; 2]>,
    info_hash: String,
    peer_ids: [String; 2],
    lost: u64,
}

impl SocketPair {
    pub(super) fn new(sources: [IpAddr; 2], target: SocketAddr, tls: Option<Tls>) -> Self {
        let (info_hash, peer_ids) = (random_id(), [random_id(), random_id()]);
        Self { sources, target, tls, sockets: None, info_hash, peer_ids, lost: 0 }
    }

    /// Connects both peers, and announces the second.
    fn open(&mut self) -> Result<[WebSocket; 2]> {
        // A client that reconnects is a new peer, since the tracker may not have noticed the end of the old one.
        (self.info_hash, self.peer_ids) = (random_id(), [random_id(), random_id()]);
        let open = |source| WebSocket::open(source, self.target, self.tls.as_ref(), TIMEOUT);
        let [first, mut second] = [open(self.sources[0])?, open(self.sources[1])?];
        second.send(&announce(&self.info_hash, &self.peer_ids[1], &[]))?;
        second.wait_for(measure::now() + TIMEOUT, is_reply).context("no reply to an announce")?;
        Ok([first, second])
    }

    /// Exchanges an offer and its answer.
    fn exchange(&mut self, sockets: &mut [WebSocket; 2]) -> Result<()> {
        let [first, second] = sockets;
        let (hash, [first_id, second_id]) = (&self.info_hash, &self.peer_ids);
        let (offer_id, sdp) = (random_id(), format!("v=0 {}", random_id()));
        let deadline = measure::now() + TIMEOUT;
        first.send(&announce(hash, first_id, &[(offer_id.clone(), sdp.clone())]))?;
        first.wait_for(deadline, is_reply).context("no reply to an announce")?;
        let is_offer = |message: &Value| (message["offer"]["sdp"] == *sdp).then_some(());
        second.wait_for(deadline, is_offer).context("the offer did not arrive")?;
        second.send(&answer(hash, second_id, first_id, &offer_id, &sdp))?;
        let is_answer = |message: &Value| (message["answer"]["sdp"] == *sdp).then_some(());
        first.wait_for(deadline, is_answer).context("the answer did not arrive")
    }
}

impl Client for SocketPair {
    fn request(&mut self, _round: u64) -> Result<()> {
        let mut sockets = match self.sockets.take() {
            Some(sockets) => sockets,
            None => self.open()?,
        };
        let result = self.exchange(&mut sockets);
        match result {
            Ok(()) => self.sockets = Some(sockets),
            Err(_) => self.lost += 1,
        }
        result
    }

    /// Offers of one address to one receiver are limited to 16 a second, which a client does not come near.
    fn interval(&self) -> Duration {
        REQUEST_INTERVAL * 2
    }

    fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }
}

fn is_reply(message: &Value) -> Option<()> {
    message["interval"].is_u64().then_some(())
}
