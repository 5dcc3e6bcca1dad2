//! The load: requests in bursts, as many in flight as the window allows.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::{RecvFlags, recv};

use crate::kernel::{CpuTime, segment};

const REQUEST_BYTES: usize = 98;
/// Number of requests of one burst. The kernel splits it, which saves most of the sender's time (`udp(7)`,
/// UDP_SEGMENT).
const BURST: usize = 32;
/// Number of requests in flight: several batches of the server, but no more than its buffers hold.
const WINDOW: usize = 256;

/// One client.
pub(crate) struct Load {
    socket: UdpSocket,
}

impl Load {
    pub(crate) fn connect(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(server).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, crate::BUFFER_BYTES).unwrap();
        segment(&socket, REQUEST_BYTES);
        Self { socket }
    }

    /// Keeps the window full until it is told to stop. Returns the CPU time that it took.
    pub(crate) fn run(&self, stop: &AtomicBool) -> CpuTime {
        let before = CpuTime::of_this_thread();
        let burst = [0; BURST * REQUEST_BYTES];
        let mut in_flight = 0;
        while !stop.load(Ordering::Relaxed) {
            while in_flight + BURST <= WINDOW {
                // A server that has not started, or has stopped, refuses.
                let _ = self.socket.send(&burst);
                in_flight += BURST;
            }
            // A reply that does not arrive in time is lost, and the window starts anew.
            in_flight = self.receive().map_or(0, |received| in_flight.saturating_sub(received));
        }
        CpuTime::of_this_thread() - before
    }

    /// Waits for a reply, and takes all that have arrived.
    fn receive(&self) -> Option<usize> {
        let mut reply = [0; 256];
        self.socket.recv(&mut reply).ok()?;
        let more = (1..BURST).take_while(|_| recv(&self.socket, &mut reply, RecvFlags::DONTWAIT).is_ok());
        Some(1 + more.count())
    }
}
