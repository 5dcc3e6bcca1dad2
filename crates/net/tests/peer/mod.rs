//! A second network namespace, in which the clients of a test are.
#![allow(unsafe_code, reason = "unshare changes what the thread sees")]

use std::net::UdpSocket;
use std::sync::mpsc;
use std::thread::JoinHandle;

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
