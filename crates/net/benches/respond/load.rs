//! The load: a number of connections, each with one request in flight.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, bind, connect, ipproto, socket};

use crate::kernel::CpuTime;
use crate::responder::{REQUEST, RESPONSE};

/// One client, or many.
pub(crate) struct Load {
    server: SocketAddr,
    keeps_alive: bool,
    connections: Vec<TcpStream>,
    /// Each connection comes from another address, so that there are enough ports.
    next_source: u8,
}

impl Load {
    pub(crate) fn new(server: SocketAddr, keeps_alive: bool, connections: usize) -> Self {
        let mut load = Self { server, keeps_alive, connections: Vec::new(), next_source: 0 };
        load.connections = (0..connections).map(|_| load.connect().unwrap()).collect();
        load
    }

    /// Sends requests and receives replies until it is told to stop. Returns the CPU time that it took.
    pub(crate) fn run(mut self, stop: &AtomicBool) -> CpuTime {
        let before = CpuTime::of_this_thread();
        let mut response = [0; RESPONSE.len()];
        while !stop.load(Ordering::Relaxed) {
            if self.connections.iter_mut().try_for_each(|connection| connection.write_all(REQUEST)).is_err() {
                break;
            }
            for index in 0..self.connections.len() {
                // A server that has been told to stop sends no more replies, and may end by a reset.
                let heard = self.connections[index].read_exact(&mut response);
                let is_over =
                    self.keeps_alive || matches!(self.connections[index].read(&mut response), Ok(0));
                if heard.is_err() || !is_over {
                    return CpuTime::of_this_thread() - before;
                }
                if !self.keeps_alive {
                    let Some(next) = self.connect() else { return CpuTime::of_this_thread() - before };
                    self.connections[index] = next;
                }
            }
        }
        CpuTime::of_this_thread() - before
    }

    /// Returns `None` once the server is gone.
    fn connect(&mut self) -> Option<TcpStream> {
        self.next_source = self.next_source % 250 + 1;
        let client = socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::TCP)).unwrap();
        let source = Ipv4Addr::new(127, 0, 0, self.next_source);
        bind(&client, &SocketAddr::from((source, 0))).unwrap();
        connect(&client, &self.server).ok()?;
        let client = TcpStream::from(client);
        client.set_nodelay(true).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        Some(client)
    }
}
