//! The broker, with a test in the place of the tracker.

use std::fs;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::harness::{PATIENCE, Tracker, command, eventually};

/// A broker, and the connection of a tracker to it.
struct Broker {
    child: Child,
    connection: Option<OwnedFd>,
    /// Where the program and its files are.
    directory: TempDir,
}

impl Broker {
    /// Starts a broker for the program that is this script of the shell.
    fn start(script: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (own, other) = pair.unwrap();
        set_socket_timeout(&own, Timeout::Recv, Some(PATIENCE)).unwrap();
        let mut command = command(&[("LISTEN_PID", "1"), ("WATCHDOG_PID", "1"), ("OUT", "out")]);
        command.arg("broker").arg("--directory").arg(directory.path()).arg(&program);
        command.args(["--config", "a file"]).current_dir(directory.path());
        let child = command.stdin(Stdio::from(other)).spawn().unwrap();
        Self { child, connection: Some(own), directory }
    }

    fn ask(&self, request: &Value, descriptors: &[BorrowedFd<'_>]) -> (Value, Vec<OwnedFd>) {
        let connection = self.connection.as_ref().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
        }
        let text = request.to_string();
        sendmsg(connection, &[IoSlice::new(text.as_bytes())], &mut control, SendFlags::empty()).unwrap();
        let mut bytes = [0; 8192];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut buffers = [IoSliceMut::new(&mut bytes)];
        let received = recvmsg(connection, &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        (serde_json::from_slice(&bytes[..received.bytes]).unwrap(), descriptors)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts the program with one end of a connection. Returns the other one, and where its exit status arrives.
    fn start_program(&self) -> (UnixStream, UnixStream) {
        let (own, other) = UnixStream::pair().unwrap();
        let (answer, mut descriptors) = self.ask(&json!("Start"), &[other.as_fd()]);
        assert!(answer["Started"]["pid"].as_u64().is_some(), "{answer}");
        own.set_read_timeout(Some(PATIENCE)).unwrap();
        (own, UnixStream::from(descriptors.pop().unwrap()))
    }

    /// Ends the connection, upon which the broker ends.
    fn end(mut self) {
        drop(self.connection.take());
        assert!(self.child.wait().unwrap().success());
    }
}

fn refusal(answer: &Value) -> &str {
    answer["Refused"]["reason"].as_str().unwrap()
}

#[test]
fn sockets_are_bound_for_each_worker_or_refused_with_advice() {
    let broker = Broker::start("");
    let datagrams = |port: u16| {
        let addr = format!("127.0.0.1:{port}");
        json!({"BindDatagrams": {
            "addr": addr, "recv_buffer_bytes": 65536, "send_buffer_bytes": 65536, "workers": 2,
        }})
    };
    let (answer, sockets) = broker.ask(&datagrams(0), &[]);
    assert_eq!(answer, json!({"Bound": {"sockets": 2}}));
    let sockets: Vec<_> = sockets.into_iter().map(UdpSocket::from).collect();
    let address = sockets[0].local_addr().unwrap();
    assert_eq!(sockets[1].local_addr().unwrap(), address);
    let (answer, _) = broker.ask(&datagrams(address.port()), &[]);
    assert!(refusal(&answer).contains("ss -lunp"), "{answer}");

    let tcp = |port: u16| json!({"BindTcp": {"addr": format!("127.0.0.1:{port}"), "workers": 3}});
    let (_, listeners) = broker.ask(&tcp(0), &[]);
    let listeners: Vec<_> = listeners.into_iter().map(TcpListener::from).collect();
    assert_eq!(listeners.len(), 3);
    let port = listeners[2].local_addr().unwrap().port();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.write_all(b"x").unwrap();
    let (answer, _) = broker.ask(&tcp(port), &[]);
    assert!(refusal(&answer).contains("ss -ltnp"), "{answer}");
    broker.end();
}

#[test]
fn unix_sockets_may_be_in_the_directories_of_the_start_only() {
    let broker = Broker::start("");
    let other = tempfile::tempdir().unwrap();
    let unix = |path: PathBuf| json!({"BindUnix": {"path": path}});
    let (answer, listeners) = broker.ask(&unix(broker.file("http.sock")), &[]);
    assert_eq!(answer, json!({"Bound": {"sockets": 1}}));
    let listener = UnixListener::from(listeners.into_iter().next().unwrap());
    // The file is not the broker's.
    let _client = UnixStream::connect(broker.file("http.sock")).unwrap();
    listener.set_nonblocking(false).unwrap();
    listener.accept().unwrap();
    let (answer, _) = broker.ask(&unix(other.path().join("http.sock")), &[]);
    assert!(refusal(&answer).contains("only the directories of the Unix sockets at start"), "{answer}");
    broker.end();
}

#[test]
fn the_program_gets_arguments_environment_and_connection_and_its_end_is_reported() {
    let script = "eval \"echo $* $OUT \\$LISTEN_PID \\$WATCHDOG_PID >&$4\"; read line <&$4; exit 7";
    let broker = Broker::start(script);
    let (mut connection, mut exit) = broker.start_program();
    let mut line = [0; 256];
    let length = connection.read(&mut line).unwrap();
    let line = String::from_utf8_lossy(&line[..length]).into_owned();
    assert!(line.starts_with("--config a file --take-over ") && line.ends_with(" out\n"), "{line}");
    connection.write_all(b"\n").unwrap();
    let mut status = [0; 4];
    exit.read_exact(&mut status).unwrap();
    assert_eq!(i32::from_be_bytes(status), 7 << 8);
    broker.end();
}

/// Signals to a whole process group, and the end of the broker, do not reach a program that serves.
#[test]
fn a_program_that_serves_outlives_the_broker_and_handles_its_signals_itself() {
    let broker = Broker::start("grep SigIgn /proc/self/status >&$4; read line <&$4; echo on >&$4");
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2] {
        // An answer tells that it handles them.
        let (answer, _) = broker.ask(&json!({"BindTcp": {"addr": "127.0.0.1:0", "workers": 1}}), &[]);
        assert_eq!(answer["Bound"]["sockets"], 1);
        kill(Pid::from_raw(broker.child.id().try_into().unwrap()), signal).unwrap();
    }
    let (mut connection, mut exit) = broker.start_program();
    exit.write_all(b"\x01").unwrap();
    drop(exit);
    let mut line = [0; 256];
    let length = connection.read(&mut line).unwrap();
    let ignored = String::from_utf8_lossy(&line[..length]).into_owned();
    let ignored = u64::from_str_radix(ignored.trim_start_matches("SigIgn:").trim(), 16).unwrap();
    assert_eq!(ignored & (1 << (Signal::SIGTERM as i32 - 1) | 1 << (Signal::SIGUSR2 as i32 - 1)), 0);
    broker.end();
    connection.write_all(b"\n").unwrap();
    let length = connection.read(&mut line).unwrap();
    assert_eq!(&line[..length], b"on\n");
}

/// The program does not react to anything, and another one that it has started has its connection.
#[test]
fn a_program_that_does_not_serve_is_killed_with_all_that_it_has_started() {
    let mut broker = Broker::start("sleep 600 & echo on >&$4; kill -STOP $$");
    let mut started = |is_given_up: bool| {
        let (mut connection, mut exit) = broker.start_program();
        let mut line = [0; 3];
        connection.read_exact(&mut line).unwrap();
        // It was about to serve, and did not.
        exit.write_all(b"\x01\0").unwrap();
        if is_given_up {
            drop(exit);
        } else {
            drop(broker.connection.take());
        }
        // Its end, and with it the last holder of the connection, closes that.
        connection.read(&mut line).unwrap()
    };
    assert_eq!([started(true), started(false)], [0, 0]);
    assert!(broker.child.wait().unwrap().success());
}

#[test]
fn a_program_that_cannot_be_started_is_reported_with_its_path() {
    let broker = Broker::start("");
    let (_own, other) = UnixStream::pair().unwrap();
    let program = broker.file("program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
    let (answer, _) = broker.ask(&json!("Start"), &[other.as_fd()]);
    let shown = program.display().to_string();
    assert!(refusal(&answer).contains(&shown) && refusal(&answer).contains("ermission denied"), "{answer}");
    fs::remove_file(&program).unwrap();
    let (answer, _) = broker.ask(&json!("Start"), &[other.as_fd()]);
    assert!(refusal(&answer).contains(&shown) && refusal(&answer).contains("No such file"), "{answer}");
    broker.end();
}

#[test]
fn a_request_that_makes_no_sense_ends_the_broker() {
    let mut broker = Broker::start("");
    let connection = broker.connection.as_ref().unwrap();
    rustix::net::send(connection, b"nonsense", SendFlags::empty()).unwrap();
    assert!(!broker.child.wait().unwrap().success());
}

/// The broker ends with the tracker, however that ends.
#[test]
fn a_tracker_has_a_broker_as_long_as_it_runs() {
    let mut tracker = Tracker::start(&[]);
    let children = format!("/proc/{0}/task/{0}/children", tracker.pid());
    let children = fs::read_to_string(children).unwrap();
    let broker: i32 = children.trim().parse().expect("there is one");
    let arguments = fs::read(format!("/proc/{broker}/cmdline")).unwrap();
    let arguments: Vec<_> = arguments.split(|byte| *byte == 0).collect();
    assert_eq!(arguments[1], b"broker");
    assert_eq!(arguments[2], env!("CARGO_BIN_EXE_shoal").as_bytes());
    tracker.signal(Signal::SIGKILL);
    tracker.wait(PATIENCE);
    eventually("the broker ends", || (!Path::new(&format!("/proc/{broker}")).exists()).then_some(()));
}
