//! A pair of virtual Ethernet interfaces between two network namespaces.
//!
//! The kernel removes both, and the pair, once no process is in them and this process has
//! closed them or ended in any way. The network of the host is never changed.
//!
//! Each interface has one queue, whose receive work is that of a kernel thread ("threaded NAPI"). So it can be bound to a
//! processor, which then pays for it, as it does for the interrupts of a real card. Without it, veth would leave all of
//! the work to the processor that sends.

use std::fs::{self, File};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Pid;
use shoal_testkit::namespace::{self, Namespace};

use crate::cpu_assignment::CpuAssignment;
use crate::topology::pin_thread;

/// The pair, and the namespaces of both ends.
#[derive(Debug)]
pub struct VethPair {
    /// The namespace that this thread was in before.
    host: File,
    load: Namespace,
    tracker: Namespace,
    load_interface: String,
    tracker_interface: String,
}

impl VethPair {
    // These addresses are for benchmarks (RFC 2544).
    /// The address of the tracker.
    pub const TRACKER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
    const LOAD: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
    /// The first address of a network whose addresses all belong to the load.
    pub const FIRST_SOURCE: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 1);
    const SOURCES: &str = "198.18.1.0/24";

    /// The network of spoofed addresses, to which the tracker has a way through the pair.
    pub const FLOOD: &str = "198.19.0.0/16";

    /// The address of the tracker over IPv6, for benchmarks (RFC 5180).
    pub const TRACKER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1);
    /// The addresses of the load over IPv6.
    pub const LOAD_V6: [Ipv6Addr; 2] =
        [Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 2), Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 3)];
    const TRACKER_MAC: &str = "02:00:00:00:00:01";
    const LOAD_MAC: &str = "02:00:00:00:00:02";

    /// Creates the pair. From then on this thread is in the namespace of the load.
    ///
    /// # Errors
    /// Returns an error if this process is not root, or lacks a program.
    pub fn new() -> Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "it takes root");
        let (host, tracker, load) = (namespace::own()?, Namespace::new()?, Namespace::new()?);
        // The names of the kernel's threads begin with those of the interfaces, so these differ from all others.
        let number = std::process::id();
        let (load_interface, tracker_interface) = (format!("gen{number}"), format!("trk{number}"));
        // However this function ends early, the thread returns with the drop of the pair.
        let pair = Self { host, load, tracker, load_interface, tracker_interface };
        pair.load.enter()?;
        pair.connect()?;
        Ok(pair)
    }

    /// Connects both namespaces.
    fn connect(&self) -> Result<()> {
        let Self { load_interface, tracker_interface, .. } = self;
        let (load, tracker) = (Self::LOAD, Self::TRACKER);
        let ([load_v6, other_v6], tracker_v6) = (Self::LOAD_V6, Self::TRACKER_V6);
        let (load_mac, tracker_mac) = (Self::LOAD_MAC, Self::TRACKER_MAC);
        let sources = Self::SOURCES;
        let other = self.tracker.pid();
        self.load.ip(&format!(
            "link set lo up\n\
             link add {load_interface} address {load_mac} numtxqueues 1 numrxqueues 1 type veth peer name \
             {tracker_interface} address {tracker_mac} numtxqueues 1 numrxqueues 1 netns {other}\n"
        ))?;
        prepare(&self.tracker, tracker_interface, &["gro", "on"])?;
        self.tracker.ip("link set lo up\n")?;
        self.bring_tracker_up()?;
        use_threads(&self.tracker, tracker_interface)?;
        // Receive offload keeps the queue's thread in place, with and without a program at the driver hook. Requests carry
        // full checksums, as on a wire.
        prepare(&self.load, load_interface, &["gro", "on", "tx", "off"])?;
        self.load.ip(&format!(
            "address add {load}/16 dev {load_interface}\n\
             address add {load_v6}/64 dev {load_interface} nodad\n\
             address add {other_v6}/64 dev {load_interface} nodad\n\
             link set {load_interface} up\n\
             neighbour add {tracker} lladdr {tracker_mac} dev {load_interface} nud permanent\n\
             neighbour add {tracker_v6} lladdr {tracker_mac} dev {load_interface} nud permanent\n\
             route add local {sources} dev {load_interface}\n"
        ))?;
        use_threads(&self.load, load_interface)
    }

    /// Brings the interface of the tracker up, on its side. The kernel has forgotten its routes and neighbours when it went down.
    fn bring_tracker_up(&self) -> Result<()> {
        let interface = &self.tracker_interface;
        let (tracker, tracker_v6, load, load_mac) =
            (Self::TRACKER, Self::TRACKER_V6, Self::LOAD, Self::LOAD_MAC);
        let ([load_v6, other_v6], sources, flood) = (Self::LOAD_V6, Self::SOURCES, Self::FLOOD);
        self.tracker.ip(&format!(
            "address replace {tracker}/16 dev {interface}\n\
             address replace {tracker_v6}/64 dev {interface} nodad\n\
             link set {interface} up\n\
             neighbour replace {load} lladdr {load_mac} dev {interface} nud permanent\n\
             neighbour replace {load_v6} lladdr {load_mac} dev {interface} nud permanent\n\
             neighbour replace {other_v6} lladdr {load_mac} dev {interface} nud permanent\n\
             route replace {sources} via {load} dev {interface}\n\
             route replace {flood} via {load} dev {interface}\n"
        ))
    }

    /// Takes the interface of the tracker down for a while, and brings it up again, with its thread on the same processors.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn interrupt(&self, pause: Duration, assignment: &CpuAssignment) -> Result<()> {
        self.tracker.ip(&format!("link set {} down\n", self.tracker_interface))?;
        std::thread::sleep(pause);
        self.bring_tracker_up()?;
        self.assign(assignment)
    }

    /// Returns what the drivers of both interfaces have counted: those of the load, and those of the tracker.
    ///
    /// # Errors
    /// Returns an error if ethtool fails.
    pub fn driver_counts(&self) -> Result<[String; 2]> {
        let of = |namespace: &Namespace, interface| namespace.run_program("ethtool", &["-S", interface]);
        Ok([of(&self.load, &self.load_interface)?, of(&self.tracker, &self.tracker_interface)?])
    }

    /// Returns the interface of the load.
    #[must_use]
    pub fn load_interface(&self) -> &str {
        &self.load_interface
    }

    /// Returns the interface of the tracker.
    #[must_use]
    pub fn tracker_interface(&self) -> &str {
        &self.tracker_interface
    }

    /// Runs `act` in the namespace of the tracker.
    ///
    /// # Errors
    /// Returns an error if the kernel does not let this thread change the namespace.
    pub fn on_tracker_side<T>(&self, act: impl FnOnce() -> T) -> Result<T> {
        self.tracker.enter()?;
        let result = act();
        self.load.enter()?;
        Ok(result)
    }

    /// Returns the CPU time of the threads of the tracker's interface, unless the kernel does not tell.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "no run has 2^53 nanoseconds")]
    pub fn receive_s(&self) -> Option<f64> {
        let mut ns = 0;
        for thread in receive_threads(&self.tracker_interface).ok()? {
            // Three numbers, the first of which is the time on a processor.
            let times = fs::read_to_string(format!("/proc/{}/schedstat", thread.as_raw_pid())).ok()?;
            ns += times.split(' ').next()?.parse::<u64>().ok()?;
        }
        Some(ns as f64 / 1e9)
    }

    /// Binds the threads of both interfaces to the processors of their sides.
    ///
    /// # Errors
    /// Returns an error if an interface has no thread, or it cannot be bound.
    pub fn assign(&self, assignment: &CpuAssignment) -> Result<()> {
        let sides =
            [(&self.load_interface, &assignment.load), (&self.tracker_interface, &assignment.tracker)];
        for (interface, processors) in sides {
            let threads = receive_threads(interface)?;
            ensure!(
                !threads.is_empty(),
                "the interface {interface} has no thread of its own (threaded NAPI)"
            );
            for thread in threads {
                pin_thread(thread, processors)
                    .with_context(|| format!("cannot bind the thread of the interface {interface}"))?;
                if *interface == self.tracker_interface {
                    moderate(thread)?;
                }
            }
        }
        Ok(())
    }
}

impl Drop for VethPair {
    fn drop(&mut self) {
        // This can only fail if the process has lost its privileges in the meantime.
        let _ = namespace::enter(&self.host);
    }
}

/// Switches everything off that sends frames by itself, and sets offloads.
fn prepare(namespace: &Namespace, interface: &str, offloads: &[&str]) -> Result<()> {
    for (setting, value) in
        [("accept_ra", "0"), ("autoconf", "0"), ("router_solicitations", "0"), ("accept_dad", "0")]
    {
        // Without IPv6 there is no such file.
        let _ = namespace.run(|| fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/{setting}"), value));
    }
    namespace.ip(&format!("link set {interface} addrgenmode none\n"))?;
    namespace.run_program("ethtool", &[&["-K", interface], offloads].concat()).map(drop)
}

/// Gives the queues of an interface threads of their own.
fn use_threads(namespace: &Namespace, interface: &str) -> Result<()> {
    // The directory /sys shows the network of the process that mounted it.
    let script = "mount -t sysfs sysfs /sys && echo 1 > /sys/class/net/\"$0\"/threaded";
    namespace.run_program("unshare", &["--mount", "sh", "-c", script, interface]).map(drop)
}

/// Lets a thread that does receive work wait until the other threads of its processor pause, or their time is up. Otherwise it
/// interrupts them for the first frame that arrives, which no card with interrupt moderation does.
fn moderate(thread: Pid) -> Result<()> {
    let status = Command::new("chrt").args(["--batch", "--pid", "0", &thread.to_string()]).status();
    ensure!(status.context("cannot run chrt (package util-linux)")?.success(), "chrt failed");
    Ok(())
}

/// Returns the kernel's threads that do the receive work of an interface.
fn receive_threads(interface: &str) -> Result<Vec<Pid>> {
    let prefix = format!("napi/{interface}-");
    let processes = fs::read_dir("/proc")?.filter_map(Result::ok);
    let threads = processes.filter_map(|process| {
        let pid = Pid::from_raw(process.file_name().to_str()?.parse().ok()?)?;
        fs::read_to_string(process.path().join("comm")).ok()?.starts_with(&prefix).then_some(pid)
    });
    Ok(threads.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interfaces() -> Vec<String> {
        // Not /sys, which shows another network.
        let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        table.lines().skip(2).map(|line| line.split(':').next().unwrap().trim().to_owned()).collect()
    }

    #[test]
    fn the_pair_connects_both_sides_and_disappears() {
        let before = interfaces();
        let pair = VethPair::new().unwrap();
        assert!(interfaces().contains(&pair.load_interface));
        let (load, tracker) = (pair.load_interface.clone(), pair.tracker_interface.clone());
        let (on_other_side, server) = pair
            .on_tracker_side(|| (interfaces(), std::net::UdpSocket::bind((VethPair::TRACKER, 0)).unwrap()))
            .unwrap();
        assert!(on_other_side.contains(&tracker) && !on_other_side.contains(&load));
        let client = std::net::UdpSocket::bind((VethPair::FIRST_SOURCE, 0)).unwrap();
        client.send_to(b"request", server.local_addr().unwrap()).unwrap();
        let mut buffer = [0; 16];
        let (bytes, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..bytes], from), (&b"request"[..], client.local_addr().unwrap()));
        server.send_to(b"reply", from).unwrap();
        assert_eq!(client.recv_from(&mut buffer).unwrap(), (5, server.local_addr().unwrap()));

        let own = crate::topology::allowed().unwrap();
        let processors = vec![own[0]];
        let assignment = CpuAssignment { cores: 1, tracker: processors.clone(), load: processors };
        pair.assign(&assignment).unwrap();
        drop((client, server, pair));
        assert_eq!(interfaces(), before);
        // The kernel takes a moment to end its threads.
        while !receive_threads(&load).unwrap().is_empty() || !receive_threads(&tracker).unwrap().is_empty() {
            std::thread::yield_now();
        }
    }
}
