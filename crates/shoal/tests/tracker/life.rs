//! Start, stop, signals and exit codes of real processes.

use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::kit::client::{Announce, Client, connect_packet, word};
use crate::kit::frozen::{TRACEABLE, freeze};
use crate::kit::harness::{PATIENCE, Tracker, run};

/// The maximum duration of a stop, which takes a second at most on an idle machine.
const STOP_TIME_MAX: Duration = Duration::from_secs(10);

#[test]
fn the_log_tells_what_was_chosen_before_the_ready_line() {
    let tracker = Tracker::start(&[("SHOAL_UDP_RECEIVE_BUFFER", "64MiB")]);
    let log = tracker.log();
    for line in ["Shoal starts", "configuration", "datagram back end", "store", "huge_pages", "ready"] {
        assert!(log.contains(line), "{line} is not in\n{log}");
    }
    assert!(log.contains("SHOAL_UDP_RECEIVE_BUFFER"), "overrides are named:\n{log}");
}

#[test]
fn the_file_overrides_the_defaults_and_the_environment_overrides_the_file() {
    let file = "[announce]\ninterval_s = 600\ninterval_jitter_s = 0\nnumwant_default = 3";
    let tracker = Tracker::start_with_file(file, &[("SHOAL_ANNOUNCE_INTERVAL_S", "700")]);
    let client = Client::new(tracker.udp[0]);
    client.announce_all((1..=20).map(|port| Announce::leecher([1; 20], port)));
    let reply = client.announce(&Announce::leecher([1; 20], 1));
    assert_eq!((reply.interval_s, reply.peers.len()), (700, 3));
}

#[test]
fn a_receive_buffer_that_the_kernel_cuts_is_told_with_the_sysctl() {
    let granted: u64 =
        std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap().trim().parse().unwrap();
    let tracker = Tracker::start(&[("SHOAL_UDP_RECEIVE_BUFFER", "1GiB")]);
    let told = tracker.log().contains("sysctl -w net.core.rmem_max=1073741824");
    assert_eq!(told, granted < 1 << 30, "{}", tracker.log());
}

#[test]
fn both_signals_stop_it_cleanly_within_a_second() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut tracker = Tracker::start(&[]);
        Client::new(tracker.udp[0]).connect();
        tracker.signal(signal);
        assert_eq!(tracker.wait(STOP_TIME_MAX).code(), Some(0), "{signal}");
    }
}

/// While the process is stopped, requests queue in its sockets; when it goes on, SIGTERM is waiting too.
#[test]
fn what_is_queued_is_answered_before_the_end() {
    for io in ["mmsg", "uring"] {
        let mut tracker = Tracker::start(&[("SHOAL_UDP_IO", io)]);
        let client = Client::new(tracker.udp[0]);
        client.connect();
        tracker.signal(Signal::SIGSTOP);
        for transaction_id in 0..200 {
            client.send(&connect_packet(transaction_id));
        }
        tracker.signal(Signal::SIGTERM);
        tracker.signal(Signal::SIGCONT);
        for transaction_id in 0..200 {
            assert_eq!(word(&client.receive(), 4), transaction_id);
        }
        assert_eq!(tracker.wait(PATIENCE).code(), Some(0));
    }
}

/// A worker that hangs keeps the tracker from stopping cleanly, so the second signal has something to cut short.
#[test]
fn a_second_signal_ends_it_at_once() {
    for (first, second, code) in
        [(Signal::SIGTERM, Signal::SIGINT, 130), (Signal::SIGINT, Signal::SIGTERM, 143)]
    {
        let mut tracker = Tracker::start(&[TRACEABLE]);
        let hanging = freeze(&tracker, "worker-1");
        tracker.signal(first);
        tracker.wait_for_line("stopping");
        tracker.signal(second);
        hanging.bury();
        assert_eq!(tracker.wait(STOP_TIME_MAX).code(), Some(code));
    }
}

#[test]
fn a_worker_that_does_not_stop_is_told_and_is_exit_code_1() {
    let mut tracker = Tracker::start(&[TRACEABLE]);
    let hanging = freeze(&tracker, "worker-0");
    tracker.signal(Signal::SIGTERM);
    hanging.bury();
    assert_eq!(tracker.wait(PATIENCE).code(), Some(1));
    tracker.wait_for_line("a worker did not stop in time");
}

#[test]
fn an_address_that_cannot_be_bound_is_exit_code_1_and_words_that_help() {
    let (udp, control) = (UdpSocket::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let [udp, control] = [udp.local_addr(), control.local_addr()].map(|address| address.unwrap().to_string());
    let free = "127.0.0.1:0";
    for (udp_listen, control_listen, words) in [
        (&*udp, "", &[&*udp, "in use", "ss -lunp", "udp.listen"][..]),
        ("192.0.2.1:6969", "", &["192.0.2.1", "udp.listen"]),
        (free, &control, &[&control, "control.listen"]),
    ] {
        let settings = [
            ("SHOAL_UDP_LISTEN", udp_listen),
            ("SHOAL_HTTP_LISTEN", free),
            ("SHOAL_CONTROL_LISTEN", control_listen),
        ];
        let output = run(&[], &settings);
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        for word in words {
            assert!(said.contains(word), "{word} is not in\n{said}");
        }
    }
}

/// SO_REUSEPORT would let both in, and the kernel would divide the clients between them.
#[test]
fn a_second_tracker_on_the_same_port_does_not_start() {
    let tracker = Tracker::start(&[]);
    let address = tracker.udp[0].to_string();
    let output = run(&[], &[("SHOAL_UDP_LISTEN", &address), ("SHOAL_CONTROL_LISTEN", "")]);
    assert_eq!(output.status.code(), Some(1));
    Client::new(tracker.udp[0]).connect();
}

#[test]
fn the_control_listener_can_be_off() {
    let mut tracker = Tracker::start(&[("SHOAL_CONTROL_LISTEN", "")]);
    assert_eq!(tracker.control.port(), 0);
    Client::new(tracker.udp[0]).connect();
    assert_eq!(tracker.stop().code(), Some(0));
}

#[test]
fn workers_can_be_pinned() {
    let tracker = Tracker::start(&[("SHOAL_WORKERS_PIN", "true"), ("SHOAL_WORKERS_COUNT", "3")]);
    Client::new(tracker.udp[0]).connect();
    assert_eq!(tracker.page("/health").status, 200);
}

/// `shoal 2>&1 | head` closes the log early. That must not end the tracker, nor spoil its exit code.
#[test]
fn a_closed_log_ends_nothing() {
    let mut tracker = Tracker::start_with_log_closed(&[]);
    Client::new(tracker.udp[0]).connect();
    assert_eq!(tracker.stop().code(), Some(0));
}

#[test]
fn a_log_that_is_not_on_a_terminal_has_no_colours() {
    let settings = [("SHOAL_UDP_LISTEN", "192.0.2.1:6969"), ("SHOAL_LOG_FORMAT", "human")];
    let log = String::from_utf8(run(&[], &settings).stderr).unwrap();
    assert!(log.contains(" INFO ") && log.contains("ERROR ") && !log.contains('\x1b'), "{log}");
}

#[test]
fn the_log_level_is_kept() {
    let settings = [("SHOAL_UDP_LISTEN", "192.0.2.1:6969"), ("SHOAL_LOG_LEVEL", "error")];
    let log = String::from_utf8(run(&[], &settings).stderr).unwrap();
    assert_eq!(log.lines().count(), 1, "{log}");
}
