//! Checks the rules of connect requests at a UDP tracker: one with a fault that it starts itself, or your own with
//! `cargo run --example conform_udp 127.0.0.1:6969`.

use std::env;
use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::thread;

use shoal_conform::{CaseVerdict, Summary, Target, probe, random_seed, run, udp};

fn main() -> Result<(), Box<dyn Error>> {
    let argument = env::args().nth(1);
    let target = match &argument {
        Some(address) => address.parse()?,
        None => start_tracker()?,
    };
    // The seed chooses the info hashes, so that a run can be repeated.
    let target = Target::new(target, random_seed());
    probe(&target)?;

    // All cases take a minute or two. `http::cases` and `webtorrent::cases` have those of the other protocols.
    let mut cases = udp::cases();
    cases.retain(|case| case.id.starts_with("udp-connect-"));
    let findings = run(&cases, &target, |finding| {
        println!("{} ({}): {}", finding.id, finding.severity.as_str(), finding.verdict.as_str());
    });
    for finding in findings.iter().filter(|finding| finding.verdict == CaseVerdict::Fail) {
        println!("\n{}, {}:\n  {}", finding.id, finding.source, finding.rule);
        println!("  expected: {}\n  seen: {}", finding.expected, finding.seen);
    }

    let Summary { musts_failed, shoulds_failed, .. } = Summary::of(&findings);
    println!("\n{musts_failed} rules are broken, and {shoulds_failed} recommendations are not followed");
    if argument.is_none() {
        assert_eq!((musts_failed, shoulds_failed), (0, 1), "the tracker has one fault");
    }
    Ok(())
}

/// Starts a tracker that answers connect requests only. It does not look at the protocol id, which is a fault.
fn start_tracker() -> std::io::Result<SocketAddr> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let address = socket.local_addr()?;
    thread::spawn(move || {
        let mut request = [0; 1500];
        while let Ok((length, client)) = socket.recv_from(&mut request) {
            // Action 0 means connect. The reply is the action, the transaction id and a connection id.
            if length >= 16 && request[8..12] == [0; 4] {
                let reply = [&request[8..16], &7_u64.to_be_bytes()].concat();
                let _ = socket.send_to(&reply, client);
            }
        }
    });
    Ok(address)
}
