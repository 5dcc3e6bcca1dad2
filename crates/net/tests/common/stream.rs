//! The common parts of the streams' tests: a service that follows a script, a worker on its own thread, and clients
//! that never wait forever.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, Read, Write};
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shoal_base::transport::stream::{Handle, Next, Remote, StreamService};
use shoal_net::stream::{
    ListenAddress, SourceLimits, StreamCounters, StreamIo, StreamLimits, StreamListeners,
};

use super::PATIENCE;

/// Limits that no test reaches unless it means to.
pub(crate) const LIMITS: StreamLimits = StreamLimits {
    connections_max: 10_000,
    per_source: SourceLimits { http_max: 10_000, websockets_max: 10_000 },
    idle_ms_max: 1_000_000,
    request_ms_max: 1_000_000,
    send_ms_max: 1_000_000,
    answer_ms_max: 1_000_000,
    silent_ms_max: 60_000,
};

/// Binds listeners of a single worker, on ports of the kernel's choice.
pub(crate) fn listen(addresses: &[&str]) -> StreamListeners {
    listen_shared(addresses, 1).remove(0)
}

/// Binds listeners of several workers.
pub(crate) fn listen_shared(addresses: &[&str], workers: usize) -> Vec<StreamListeners> {
    let addresses: Vec<_> =
        addresses.iter().map(|address| ListenAddress::Tcp(address.parse().unwrap())).collect();
    StreamListeners::bind(&addresses, NonZeroUsize::new(workers).unwrap()).unwrap()
}

/// Returns the TCP addresses of listeners.
pub(crate) fn addrs(listeners: &StreamListeners) -> Vec<SocketAddr> {
    let tcp = |address: &ListenAddress| match address {
        ListenAddress::Tcp(addr) => Some(*addr),
        ListenAddress::Unix(_) => None,
    };
    listeners.local_addresses().filter_map(tcp).collect()
}

/// Follows the lines that it receives:
/// - `echo TEXT` answers with the text, `close TEXT` closes after it, and `linger TEXT` closes one direction;
/// - `quit` closes without a reply, `busy` expects more;
/// - `big N` answers with `N` bytes, `more N B` with `N` pieces of `B` bytes each, one for each call;
/// - `upgrade` upgrades the connection, `establish` also makes it an established one, and `queue N TEXT` queues a text for the `N`th connection that was opened.
///
/// Output that no input has caused is queued by [`Account::queue`].
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub(crate) account: Arc<Account>,
    /// Connections count towards the limit of their source.
    pub(crate) is_limited: bool,
}

/// The record of a [`Script`].
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) opened: AtomicUsize,
    pub(crate) closed: AtomicUsize,
    pub(crate) received_bytes: AtomicUsize,
    pub(crate) remotes: Mutex<Vec<Remote>>,
    pub(crate) writes: AtomicUsize,
    /// The last reported backlog, and the largest.
    pub(crate) backlog_bytes: AtomicUsize,
    pub(crate) backlog_bytes_max: AtomicUsize,
    outbox: Mutex<Outbox>,
}

/// The queued output.
#[derive(Debug, Default)]
struct Outbox {
    /// The connections in the order in which they were opened.
    handles: Vec<Handle>,
    messages: HashMap<Handle, Vec<String>>,
    writers: VecDeque<Handle>,
    /// Those whose output is put off. Nothing is asked of them meanwhile.
    put_off: HashSet<Handle>,
}

impl Account {
    /// Queues `text` for the `number`th connection that was opened. `/close` and `/linger` end the connection.
    pub(crate) fn queue(&self, number: usize, text: &str) {
        let mut outbox = self.outbox.lock().unwrap();
        let handle = outbox.handles[number];
        let messages = outbox.messages.entry(handle).or_default();
        messages.push(text.to_owned());
        if messages.len() == 1 {
            outbox.writers.push_back(handle);
        }
    }
}

/// The state of a connection of a [`Script`].
#[derive(Debug, Default)]
pub(crate) struct Session {
    partial: Vec<u8>,
    pieces: usize,
    piece_bytes: usize,
    handle: Option<Handle>,
    is_upgraded: bool,
    is_established: bool,
    was_pinged: bool,
}

/// The last message of a connection whose time is up.
pub(crate) const BYE: &[u8] = b"bye\n";

/// The ping for an upgraded connection whose peer has been silent, and the message if that has no effect.
pub(crate) const PING: &[u8] = b"ping\n";
pub(crate) const GONE: &[u8] = b"gone\n";

/// The message to a client that there is no room for.
pub(crate) const FULL: &[u8] = b"full\n";

impl StreamService for Script {
    type Session = Session;

    fn open(&mut self, remote: &Remote, handle: Handle) -> Session {
        self.account.opened.fetch_add(1, Ordering::Relaxed);
        self.account.remotes.lock().unwrap().push(*remote);
        self.account.outbox.lock().unwrap().handles.push(handle);
        Session { handle: Some(handle), ..Session::default() }
    }

    fn receive(&mut self, session: &mut Session, input: &mut [u8], output: &mut Vec<u8>) -> Next {
        assert!(!self.account.outbox.lock().unwrap().put_off.contains(&session.handle.unwrap()));
        self.account.received_bytes.fetch_add(input.len(), Ordering::Relaxed);
        session.partial.extend_from_slice(input);
        input.fill(0); // Its room is the service's.
        session.was_pinged = false;
        session.go_on(output, &self.account)
    }

    fn is_established(&self, session: &Session) -> bool {
        session.is_established
    }

    fn next_to_write(&mut self) -> Option<Handle> {
        self.account.outbox.lock().unwrap().writers.pop_front()
    }

    fn write(&mut self, session: &mut Session, output: &mut Vec<u8>) -> Next {
        self.account.writes.fetch_add(1, Ordering::Relaxed);
        let (mut outbox, handle) = (self.account.outbox.lock().unwrap(), session.handle.unwrap());
        assert!(!outbox.put_off.contains(&handle));
        let messages = outbox.messages.remove(&handle);
        drop(outbox);
        for message in messages.into_iter().flatten() {
            match message.as_str() {
                "/close" => return Next::Close,
                "/linger" => return Next::Linger,
                message => output.extend_from_slice(message.as_bytes()),
            }
        }
        session.rest()
    }

    fn set_backlog(&mut self, handle: Handle, unsent_bytes: usize) {
        self.account.backlog_bytes.store(unsent_bytes, Ordering::Relaxed);
        self.account.backlog_bytes_max.fetch_max(unsent_bytes, Ordering::Relaxed);
        let mut outbox = self.account.outbox.lock().unwrap();
        outbox.put_off.remove(&handle);
        if unsent_bytes == 0 && outbox.messages.contains_key(&handle) {
            outbox.writers.push_back(handle);
        }
    }

    fn put_off(&mut self, handle: Handle) {
        self.account.outbox.lock().unwrap().put_off.insert(handle);
    }

    fn keep_alive(&mut self, session: &mut Session, output: &mut Vec<u8>) -> Next {
        let is_second = mem::replace(&mut session.was_pinged, true);
        output.extend_from_slice(if is_second { GONE } else { PING });
        if is_second { Next::Close } else { Next::Upgraded }
    }

    fn expire(&mut self, _: &mut Session, output: &mut Vec<u8>) {
        output.extend_from_slice(BYE);
    }

    fn refuse(&mut self, _: &Remote, output: &mut Vec<u8>) {
        output.extend_from_slice(FULL);
    }

    fn close(&mut self, session: Session) {
        let (mut outbox, handle) = (self.account.outbox.lock().unwrap(), session.handle.unwrap());
        outbox.messages.remove(&handle);
        outbox.put_off.remove(&handle);
        drop(outbox);
        self.account.closed.fetch_add(1, Ordering::Relaxed);
    }

    fn is_limited(&self, _: &Remote) -> bool {
        self.is_limited
    }
}

impl Session {
    /// Returns what it waits for when every complete request is answered.
    fn rest(&self) -> Next {
        match (self.partial.is_empty(), self.is_upgraded) {
            (true, true) => Next::Upgraded,
            (true, false) => Next::Idle,
            (false, _) => Next::Busy,
        }
    }

    fn go_on(&mut self, output: &mut Vec<u8>, account: &Account) -> Next {
        if self.pieces > 0 {
            self.pieces -= 1;
            output.resize(output.len() + self.piece_bytes, b'm');
            if self.pieces > 0 {
                return Next::More;
            }
        }
        let mut was_whole = false;
        while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
            was_whole = true;
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            let line = String::from_utf8(line).unwrap();
            let (command, text) = line.split_once(' ').unwrap_or((line.trim_end(), ""));
            match command {
                "echo" => output.extend_from_slice(text.as_bytes()),
                "close" | "linger" => {
                    output.extend_from_slice(text.as_bytes());
                    return if command == "close" { Next::Close } else { Next::Linger };
                }
                "quit" => return Next::Close,
                "busy" => return Next::Busy,
                "upgrade" => self.is_upgraded = true,
                "establish" => (self.is_upgraded, self.is_established) = (true, true),
                "queue" => {
                    let (number, text) = text.split_once(' ').unwrap();
                    account.queue(number.parse().unwrap(), text);
                }
                "big" => output.resize(output.len() + text.trim_end().parse::<usize>().unwrap(), b'b'),
                "more" => {
                    let (pieces, bytes) = text.trim_end().split_once(' ').unwrap();
                    (self.pieces, self.piece_bytes) = (pieces.parse().unwrap(), bytes.parse().unwrap());
                    return Next::More;
                }
                other => panic!("{other:?} is not a command of the script"),
            }
        }
        match self.rest() {
            Next::Busy if was_whole => Next::BusyNew,
            next => next,
        }
    }
}

/// A worker on its own thread, until it is dropped.
pub(crate) struct StreamServer {
    pub(crate) addrs: Vec<SocketAddr>,
    pub(crate) counters: Arc<StreamCounters>,
    pub(crate) account: Arc<Account>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    now_ms: AtomicU64,
    polls: AtomicUsize,
    connections: AtomicUsize,
    shuts_down: AtomicBool,
    stops: AtomicBool,
}

impl StreamServer {
    pub(crate) fn start(addresses: &[&str], limits: StreamLimits) -> Self {
        Self::run(listen(addresses), Script::default(), limits)
    }

    pub(crate) fn run(listeners: StreamListeners, mut service: Script, limits: StreamLimits) -> Self {
        let shared = Arc::<Shared>::default();
        let (addrs, counters) = (addrs(&listeners), listeners.counters());
        let (account, commands) = (Arc::clone(&service.account), Arc::clone(&shared));
        let thread = std::thread::spawn(move || {
            let mut io = StreamIo::open(listeners, limits).unwrap();
            let readiness = io.readiness();
            while !commands.stops.load(Ordering::Acquire) {
                is_ready(&readiness, Duration::from_millis(2));
                if commands.shuts_down.swap(false, Ordering::AcqRel) {
                    io.begin_shutdown(commands.now_ms.load(Ordering::Acquire), &mut service).unwrap();
                }
                io.poll(commands.now_ms.load(Ordering::Acquire), &mut service).unwrap();
                commands.connections.store(io.connections(), Ordering::Release);
                commands.polls.fetch_add(1, Ordering::AcqRel);
            }
        });
        Self { addrs, counters, account, shared, thread: Some(thread) }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.addrs[0])
    }

    /// Sets the clock, and waits until the worker has seen it.
    pub(crate) fn set_clock(&self, now_ms: u64) {
        self.shared.now_ms.store(now_ms, Ordering::Release);
        self.await_polls();
    }

    /// Waits until two whole poll rounds have run.
    pub(crate) fn await_polls(&self) {
        let before = self.shared.polls.load(Ordering::Acquire);
        until(|| self.shared.polls.load(Ordering::Acquire) >= before + 3);
    }

    pub(crate) fn begin_shutdown(&self) {
        self.shared.shuts_down.store(true, Ordering::Release);
        self.await_polls();
    }

    pub(crate) fn connections(&self) -> usize {
        self.await_polls();
        self.shared.connections.load(Ordering::Acquire)
    }

    /// Waits until this many connections are open.
    pub(crate) fn await_connections(&self, count: usize) {
        // The recorded number may be older than what the caller has seen.
        self.await_polls();
        until(|| self.shared.connections.load(Ordering::Acquire) == count);
    }
}

impl Drop for StreamServer {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Release);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking(), "the server has panicked");
    }
}

/// Waits until a condition is true.
pub(crate) fn until(mut is_true: impl FnMut() -> bool) {
    const WAIT_INTERVAL: Duration = Duration::from_millis(1);
    let mut waited = Duration::ZERO;
    while !is_true() {
        assert!(waited < PATIENCE, "it never became true");
        std::thread::sleep(WAIT_INTERVAL);
        waited += WAIT_INTERVAL;
    }
}

/// Returns whether a descriptor becomes readable in time.
pub(crate) fn is_ready(descriptor: impl std::os::fd::AsFd, timeout: Duration) -> bool {
    let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).unwrap();
    poll(&mut descriptors, Some(&timeout)).is_ok_and(|ready| ready > 0)
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        Self::of(TcpStream::connect(addr).unwrap())
    }

    pub(crate) fn of(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    pub(crate) fn send_text(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
    }

    /// Receives exactly this.
    pub(crate) fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let mut received = vec![0; expected.len()];
        self.0.read_exact(&mut received).expect("an answer");
        assert!(received == expected, "{:?}", String::from_utf8_lossy(&received));
    }

    /// Receives exactly this, and then the end.
    pub(crate) fn expect_end(&mut self, expected: impl AsRef<[u8]>) {
        let mut received = Vec::new();
        self.0.read_to_end(&mut received).expect("an end that is no error");
        assert!(received == expected.as_ref(), "{:?}", String::from_utf8_lossy(&received));
    }

    pub(crate) fn ask(&mut self, text: &str, expected: &str) {
        self.send_text(text);
        self.expect(expected);
    }

    /// Closes the connection by a reset.
    pub(crate) fn reset(self) {
        rustix::net::sockopt::set_socket_linger(&self.0, Some(Duration::ZERO)).unwrap();
    }

    /// Writes for as long as there is room, and returns how much it was.
    pub(crate) fn flood(&mut self, line: &[u8]) -> usize {
        self.0.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut written = 0;
        let chunk = line.repeat(1 + 10_000 / line.len());
        loop {
            match self.0.write(&chunk[written % line.len()..]) {
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return written,
                Err(error) => panic!("{error}"),
            }
        }
    }
}
