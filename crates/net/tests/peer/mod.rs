//! A second network namespace, in which the clients of a test are.
#![allow(unsafe_code, reason = "unshare changes what the thread sees")]

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::thread::JoinHandle;

use rustix::net::{AddressFamily, SendFlags, SocketType, send, socket};
use rustix::thread::{Pid, UnshareFlags, gettid, unshare_unsafe};

type Job = Box<dyn FnOnce() + Send>;

/// A thread with its own network.
pub(crate) struct Peer {
    /// By which `ip` finds its namespace.
    pub(crate) thread_id: String,
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    pub(crate) fn new() -> Self {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            // SAFETY: the flag changes the network of this thread only; descriptors stay shared.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
            ready.send(gettid()).unwrap();
            queue.into_iter().for_each(|job| job());
        });
        let thread_id = Pid::as_raw_nonzero(is_ready.recv().unwrap()).to_string();
        Self { thread_id, jobs: Some(jobs), thread: Some(thread) }
    }

    /// Runs a function in the namespace, and waits for its result.
    pub(crate) fn run<T: Send + 'static>(&self, function: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, receiver) = mpsc::channel();
        let job: Job = Box::new(move || sender.send(function()).unwrap());
        self.jobs.as_ref().unwrap().send(job).unwrap();
        receiver.recv().unwrap()
    }

    /// Connects a client in the namespace.
    pub(crate) fn connect(&self, local: &str, server: &str) -> UdpSocket {
        let (local, server) = (local.to_owned(), server.parse().unwrap());
        self.run(move || crate::common::connect_from(&local, server))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking(), "a function of the peer has panicked");
    }
}

/// Sends a frame as it is, from an interface of this thread's namespace.
pub(crate) fn send_frame(interface_index: u32, frame: &[u8]) {
    let protocol = libc::ETH_P_ALL.cast_unsigned();
    let socket = socket(AddressFamily::PACKET, SocketType::RAW, None).unwrap();
    // SAFETY: `sockaddr_ll` is a C struct of integers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET).unwrap();
    address.sll_protocol = u16::try_from(protocol).unwrap().to_be();
    address.sll_ifindex = interface_index.cast_signed();
    let bytes = u32::try_from(size_of_val(&address)).unwrap();
    // SAFETY: the kernel reads an address of this length.
    let failed = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    assert_eq!(send(&socket, frame, SendFlags::empty()), Ok(frame.len()));
}
