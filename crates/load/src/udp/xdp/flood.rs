//! A flood of connects from spoofed addresses.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{fmt, io};

use shoal_wire::udp::{Request, TransactionId};

use super::DriverHook;
use super::program::Discarding;
use crate::clock::{Clock, nanoseconds};
use crate::session::OpenError;

/// A flood of connects from spoofed addresses.
#[derive(Clone, Copy, Debug)]
pub struct Flood {
    /// The address of the tracker.
    pub target: SocketAddr,
    /// The network from whose addresses the connects seem to come. The way back from the tracker must lead here.
    pub network: Ipv4Addr,
    /// The length of its prefix, 1 to 31.
    pub prefix_bits: u32,
    /// Most connects on their way to the tracker and back. `None`: as many as the interface takes, answered or not.
    pub window: Option<u32>,
    /// The length of the flood.
    pub duration: Duration,
}

/// The connects of a flood, and their replies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FloodReport {
    /// Connects that were sent, or were lost because the queue of the interface was full.
    pub sent: u64,
    /// Replies that came back.
    pub replies: u64,
    /// The time until the last reply.
    pub elapsed: Duration,
}

/// Connects of a flood without a window that one system call sends.
const CONNECTS_PER_CALL: u32 = 16_384;

/// Connects that are allocated and sent together. It is also how many frames the kernel keeps to use them again: the receiver pays for
/// the return of the others, which takes 30 ns more with 64. The kernel permits no more.
const BATCH: u32 = 256;

/// With a window, connects without a reply for so long are given up.
const PATIENCE_NS: u64 = 100_000_000;

/// A pause in which the thread that receives the replies can run on the same processor.
const PAUSE: Duration = Duration::from_micros(10);

/// A program that only drops the frames of a flood, attached until this is dropped. Hardly any can cost less.
pub struct Discard(#[expect(dead_code, reason = "it detaches the program")] Discarding);

impl Discard {
    /// Attaches the program to an interface of the network namespace of this thread, which needs root.
    pub fn attach(interface: &str, flood: &Flood) -> Result<Self, OpenError> {
        let (network, hosts) = flood.network_and_hosts();
        Discarding::attach(interface, network, hosts).map(Self).map_err(OpenError::Host)
    }
}

impl fmt::Debug for Discard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Discard")
    }
}

impl Flood {
    /// Returns the network, and the bits of its hosts, in network byte order.
    fn network_and_hosts(&self) -> (u32, u32) {
        let hosts = u32::MAX.checked_shr(self.prefix_bits).unwrap_or(0);
        ((u32::from(self.network) & !hosts).to_be(), hosts.to_be())
    }
}

impl DriverHook {
    /// Floods a tracker, once it has answered an honest connect. No session may use the hook in the meantime.
    pub fn flood(&self, flood: &Flood) -> Result<FloodReport, OpenError> {
        self.0.configure(flood.target, &[]).map_err(OpenError::Host)?;
        // The program takes the way to the tracker from the reply.
        ask(flood.target)
            .map_err(|error| OpenError::Unreachable(format!("{} does not answer: {error}", flood.target)))?;
        let control = self.0.control();
        if control.has_ethernet.load(Ordering::Acquire) == 0 {
            let problem = format!("{} answers, but not by the interface of the generator", flood.target);
            return Err(OpenError::Host(problem));
        }
        let (network, hosts) = flood.network_and_hosts();
        control.flood_network.store(network, Ordering::Relaxed);
        control.flood_hosts.store(hosts, Ordering::Release);
        let report = self.send_flood(flood);
        control.flood_hosts.store(0, Ordering::Release);
        report.map_err(OpenError::Host)
    }

    fn send_flood(&self, flood: &Flood) -> Result<FloodReport, String> {
        let (program, clock) = (&self.0, Clock::start());
        let end_ns = nanoseconds(flood.duration);
        let before = program.counts()?;
        let (mut given_up, mut answered_ns, mut answered) = (0, 0, 0);
        while clock.now_ns() < end_ns {
            let Some(window) = flood.window else {
                program.flood(CONNECTS_PER_CALL, BATCH)?;
                continue;
            };
            let now_ns = clock.now_ns();
            let [.., sent, replies] = program.counts()?.since(&before).0;
            if replies != answered {
                (answered, answered_ns) = (replies, now_ns);
            }
            let mut on_way = sent.saturating_sub(replies + given_up);
            if now_ns.saturating_sub(answered_ns) > PATIENCE_NS {
                given_up += on_way;
                (on_way, answered_ns) = (0, now_ns);
            }
            let space = window.saturating_sub(u32::try_from(on_way).unwrap_or(u32::MAX));
            if space >= (window / 2).max(1) {
                program.flood(space, BATCH)?;
            } else {
                std::thread::sleep(PAUSE);
            }
        }
        let [.., sent, replies] = program.counts()?.since(&before).0;
        Ok(FloodReport { sent, replies, elapsed: Duration::from_nanos(clock.now_ns()) })
    }
}

/// Asks for a connection id through a socket.
fn ask(target: SocketAddr) -> io::Result<()> {
    let mut request = [0; 16];
    let connect = Request::Connect { transaction_id: TransactionId(1) };
    connect.encode(&mut request).map_err(io::Error::other)?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(target)?;
    socket.set_read_timeout(Some(Duration::from_secs(3)))?;
    socket.send(&request)?;
    socket.recv(&mut [0; 64]).map(drop)
}
