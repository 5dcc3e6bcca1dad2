//! Puts load on a UDP tracker: one that it starts itself, or your own with `cargo run --example load_udp 127.0.0.1:6969`.

use std::env;
use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use shoal_load::{Pace, Plan, Stop, Watch, udp};
use shoal_wire::udp::{ConnectionId, Peers, Reply, Request};

fn main() -> Result<(), Box<dyn Error>> {
    let target = match env::args().nth(1) {
        Some(address) => address.parse()?,
        None => start_tracker()?,
    };
    let mut session = udp::open(&Plan::new(target))?;
    let is_cancelled = AtomicBool::new(false);
    let mut watch = Watch { cancel: &is_cancelled, progress: &mut |now| println!("{}", now.responses) };

    // Each peer announces once, and joins its torrent.
    let filled = session.fill(&mut watch);
    println!("{} peers joined", filled.responses.announce);

    // A closed loop finds out how much the tracker can do: as fast as replies come, with 16 requests in flight.
    let stop = Stop { after: Some(Duration::from_millis(200)), requests: None };
    let closed = session.run(Pace::Closed { window: 16 }, stop, &mut watch);
    println!("{:.0} replies per second; the limit was {:?}", closed.responses_per_s, closed.verdict);

    // An open loop finds out how long clients wait at a rate. A reply that comes late does not slow down the next request.
    let open = session.run(Pace::Open { rate: 2000.0 }, stop, &mut watch);
    println!("p50 {:.0} µs, p99 {:.0} µs, {} lost", open.latency.p50_us, open.latency.p99_us, open.lost);

    for report in [filled, closed, open] {
        assert!(report.responses.announce > 0 && report.wrong.total() == 0, "{report:?}");
    }
    Ok(())
}

/// Starts a tracker without any peers.
fn start_tracker() -> std::io::Result<SocketAddr> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let address = socket.local_addr()?;
    thread::spawn(move || {
        let (mut request, mut reply) = ([0; 1500], [0; 1500]);
        while let Ok((length, client)) = socket.recv_from(&mut request) {
            let answer = match Request::decode(&request[..length]) {
                Ok(Request::Connect { transaction_id }) => {
                    Reply::Connect { transaction_id, connection_id: ConnectionId(1) }
                }
                Ok(Request::Announce { transaction_id, .. }) => {
                    let (leechers, seeders, peers) = (1, 0, Peers::default());
                    Reply::Announce { transaction_id, interval_s: 1800, leechers, seeders, peers }
                }
                _ => continue,
            };
            let length = answer.encode(&mut reply).unwrap_or(0);
            let _ = socket.send_to(&reply[..length], client);
        }
    });
    Ok(address)
}
