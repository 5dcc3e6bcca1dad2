//! What the tests of streams share: a service that does as it is told, a worker on a thread of its own, and
//! clients that never wait for ever.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shoal_net::stream::{
    ListenAddress, SourceLimits, StreamCounters, StreamIo, StreamLimits, StreamListeners,
};
use shoal_transport::stream::{ConnectionKind, Handle, Next, Quota, Remote, StreamService};

use super::PATIENCE;

/// Limits that no test comes near unless it means to.
pub(crate) const LIMITS: StreamLimits = StreamLimits {
    connections_max: 10_000,
    per_source: SourceLimits { http_max: 10_000, websockets_max: 10_000 },
    idle_ms_max: 1_000_000,
    request_ms_max: 1_000_000,
    send_ms_max: 1_000_000,
    answer_ms_max: 1_000_000,
    silent_ms_max: 60_000,
};

/// Listeners of the only worker, on ports of the kernel's choice.
pub(crate) fn listen(addresses: &[&str]) -> StreamListeners {
    listen_shared(addresses, 1).remove(0)
}

/// The same for several workers.
pub(crate) fn listen_shared(addresses: &[&str], workers: usize) -> Vec<StreamListeners> {
    let addresses: Vec<_> =
        addresses.iter().map(|address| ListenAddress::Tcp(address.parse().unwrap())).collect();
    StreamListeners::bind(&addresses, NonZeroUsize::new(workers).unwrap()).unwrap()
}

/// The TCP addresses of listeners.
pub(crate) fn addrs(listeners: &StreamListeners) -> Vec<SocketAddr> {
    let tcp = |address: &ListenAddress| match address {
        ListenAddress::Tcp(addr) => Some(*addr),
        ListenAddress::Unix(_) => None,
    };
    listeners.local_addresses().filter_map(tcp).collect()
}

/// Does what the lines say that it receives:
/// - `echo TEXT` answers with the text, `close TEXT` closes after it, and `linger TEXT` closes one direction;
/// - `quit` closes without a word, `busy` expects more;
/// - `big N` answers with `N` bytes, `more N B` with `N` pieces of `B` bytes each, one for each call;
/// - `quota IP` has the connection count towards a source, `quota-websocket IP` as a WebSocket, `release` towards none;
/// - `stand` makes a standing connection of it, and `tell N TEXT` says something on the `N`th that was opened.
///
/// What it is to say unasked is told by [`Account::tell`].
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub(crate) account: Arc<Account>,
    /// Connections count towards the limit of their source.
    pub(crate) is_limited: bool,
}

/// What a [`Script`] has seen.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) opened: AtomicUsize,
    pub(crate) closed: AtomicUsize,
    pub(crate) heard_bytes: AtomicUsize,
    pub(crate) remotes: Mutex<Vec<Remote>>,
    pub(crate) spoken: AtomicUsize,
    /// The last backlog that it was told of, and the largest.
    pub(crate) backlog_bytes: AtomicUsize,
    pub(crate) backlog_bytes_max: AtomicUsize,
    post: Mutex<Post>,
}

/// What is to be said unasked.
#[derive(Debug, Default)]
struct Post {
    /// The connections in the order in which they were opened.
    handles: Vec<Handle>,
    letters: HashMap<Handle, Vec<String>>,
    speakers: VecDeque<Handle>,
}

impl Account {
    /// Has `text` said on the `number`th connection that was opened. With `/close` and `/linger` that ends it.
    pub(crate) fn tell(&self, number: usize, text: &str) {
        let mut post = self.post.lock().unwrap();
        let handle = post.handles[number];
        let letters = post.letters.entry(handle).or_default();
        letters.push(text.to_owned());
        if letters.len() == 1 {
            post.speakers.push_back(handle);
        }
    }
}

/// What a [`Script`] keeps of a connection.
#[derive(Debug, Default)]
pub(crate) struct Session {
    partial: Vec<u8>,
    pieces: usize,
    piece_bytes: usize,
    handle: Option<Handle>,
    stands: bool,
    was_tended: bool,
    quota: Option<Quota>,
}

/// The last words of a connection whose time is up.
pub(crate) const BYE: &[u8] = b"bye\n";

/// What a standing connection hears whose peer has been silent, and what it hears when that was in vain.
pub(crate) const PING: &[u8] = b"ping\n";
pub(crate) const GONE: &[u8] = b"gone\n";

/// What someone hears for whom there is no room.
pub(crate) const FULL: &[u8] = b"full\n";

impl StreamService for Script {
    type Session = Session;

    fn open(&mut self, remote: &Remote, handle: Handle) -> Session {
        self.account.opened.fetch_add(1, Ordering::Relaxed);
        self.account.remotes.lock().unwrap().push(*remote);
        self.account.post.lock().unwrap().handles.push(handle);
        Session { handle: Some(handle), ..Session::default() }
    }

    fn receive(&mut self, session: &mut Session, input: &mut [u8], output: &mut Vec<u8>) -> Next {
        self.account.heard_bytes.fetch_add(input.len(), Ordering::Relaxed);
        session.partial.extend_from_slice(input);
        input.fill(0); // Its room is the service's.
        session.was_tended = false;
        session.go_on(output, &self.account)
    }

    fn changed_quota(&mut self, session: &mut Session) -> Option<Quota> {
        session.quota.take()
    }

    fn next_to_write(&mut self) -> Option<Handle> {
        self.account.post.lock().unwrap().speakers.pop_front()
    }

    fn write(&mut self, session: &mut Session, output: &mut Vec<u8>) -> Next {
        self.account.spoken.fetch_add(1, Ordering::Relaxed);
        let letters = self.account.post.lock().unwrap().letters.remove(&session.handle.unwrap());
        for letter in letters.into_iter().flatten() {
            match letter.as_str() {
                "/close" => return Next::Close,
                "/linger" => return Next::Linger,
                letter => output.extend_from_slice(letter.as_bytes()),
            }
        }
        session.rest()
    }

    fn set_backlog(&mut self, handle: Handle, unsent_bytes: usize) {
        self.account.backlog_bytes.store(unsent_bytes, Ordering::Relaxed);
        self.account.backlog_bytes_max.fetch_max(unsent_bytes, Ordering::Relaxed);
        let mut post = self.account.post.lock().unwrap();
        if unsent_bytes == 0 && post.letters.contains_key(&handle) {
            post.speakers.push_back(handle);
        }
    }

    fn keep_alive(&mut self, session: &mut Session, output: &mut Vec<u8>) -> Next {
        let is_in_vain = mem::replace(&mut session.was_tended, true);
        output.extend_from_slice(if is_in_vain { GONE } else { PING });
        if is_in_vain { Next::Close } else { Next::Upgraded }
    }

    fn expire(&mut self, _: &mut Session, output: &mut Vec<u8>) {
        output.extend_from_slice(BYE);
    }

    fn refuse(&mut self, _: &Remote, output: &mut Vec<u8>) {
        output.extend_from_slice(FULL);
    }

    fn close(&mut self, session: Session) {
        self.account.post.lock().unwrap().letters.remove(&session.handle.unwrap());
        self.account.closed.fetch_add(1, Ordering::Relaxed);
    }

    fn is_limited(&self, _: &Remote) -> bool {
        self.is_limited
    }
}

impl Session {
    /// What it waits for when all that has come whole is answered.
    fn rest(&self) -> Next {
        match (self.partial.is_empty(), self.stands) {
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
            let (word, text) = line.split_once(' ').unwrap_or((line.trim_end(), ""));
            match word {
                "echo" => output.extend_from_slice(text.as_bytes()),
                "close" | "linger" => {
                    output.extend_from_slice(text.as_bytes());
                    return if word == "close" { Next::Close } else { Next::Linger };
                }
                "quit" => return Next::Close,
                "busy" => return Next::Busy,
                "stand" => self.stands = true,
                "quota" | "quota-websocket" => {
                    let kind = if word == "quota" { ConnectionKind::Http } else { ConnectionKind::WebSocket };
                    self.quota = Some(Quota { ip: Some(text.trim_end().parse().unwrap()), kind });
                }
                "release" => self.quota = Some(Quota { ip: None, kind: ConnectionKind::Http }),
                "tell" => {
                    let (number, text) = text.split_once(' ').unwrap();
                    account.tell(number.parse().unwrap(), text);
                }
                "big" => output.resize(output.len() + text.trim_end().parse::<usize>().unwrap(), b'b'),
                "more" => {
                    let (pieces, bytes) = text.trim_end().split_once(' ').unwrap();
                    (self.pieces, self.piece_bytes) = (pieces.parse().unwrap(), bytes.parse().unwrap());
                    return Next::More;
                }
                other => panic!("{other:?} is no word of the script"),
            }
        }
        match self.rest() {
            Next::Busy if was_whole => Next::BusyNew,
            next => next,
        }
    }
}

/// A worker on a thread of its own, until it is dropped.
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
    turns: AtomicUsize,
    connections: AtomicUsize,
    retires: AtomicBool,
    stops: AtomicBool,
}

impl StreamServer {
    pub(crate) fn start(addresses: &[&str], limits: StreamLimits) -> Self {
        Self::run(listen(addresses), Script::default(), limits)
    }

    pub(crate) fn run(listeners: StreamListeners, mut service: Script, limits: StreamLimits) -> Self {
        let shared = Arc::<Shared>::default();
        let (addrs, counters) = (addrs(&listeners), listeners.counters());
        let (account, told) = (Arc::clone(&service.account), Arc::clone(&shared));
        let thread = std::thread::spawn(move || {
            let mut io = StreamIo::open(listeners, limits).unwrap();
            let readiness = io.readiness().unwrap();
            while !told.stops.load(Ordering::Acquire) {
                is_ready(&readiness, Duration::from_millis(2));
                if told.retires.swap(false, Ordering::AcqRel) {
                    io.retire(told.now_ms.load(Ordering::Acquire), &mut service).unwrap();
                }
                io.turn(told.now_ms.load(Ordering::Acquire), &mut service).unwrap();
                told.connections.store(io.connections(), Ordering::Release);
                told.turns.fetch_add(1, Ordering::AcqRel);
            }
        });
        Self { addrs, counters, account, shared, thread: Some(thread) }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.addrs[0])
    }

    /// Sets the clock, and waits until it was looked at.
    pub(crate) fn set_clock(&self, now_ms: u64) {
        self.shared.now_ms.store(now_ms, Ordering::Release);
        self.take_turns();
    }

    /// Waits until two whole turns have been taken.
    pub(crate) fn take_turns(&self) {
        let before = self.shared.turns.load(Ordering::Acquire);
        until(|| self.shared.turns.load(Ordering::Acquire) >= before + 3);
    }

    pub(crate) fn retire(&self) {
        self.shared.retires.store(true, Ordering::Release);
        self.take_turns();
    }

    pub(crate) fn connections(&self) -> usize {
        self.take_turns();
        self.shared.connections.load(Ordering::Acquire)
    }

    /// Waits until so many connections are open.
    pub(crate) fn await_connections(&self, count: usize) {
        // What is noted may be older than what the caller has seen.
        self.take_turns();
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

/// Waits for something to become true.
pub(crate) fn until(mut is_true: impl FnMut() -> bool) {
    const NAP: Duration = Duration::from_millis(1);
    let mut waited = Duration::ZERO;
    while !is_true() {
        assert!(waited < PATIENCE, "it never became true");
        std::thread::sleep(NAP);
        waited += NAP;
    }
}

/// Whether a descriptor is readable within a while.
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

    pub(crate) fn say(&mut self, words: &str) {
        self.0.write_all(words.as_bytes()).unwrap();
    }

    /// Hears just this.
    pub(crate) fn hear(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let mut heard = vec![0; expected.len()];
        self.0.read_exact(&mut heard).expect("an answer");
        assert!(heard == expected, "{:?}", String::from_utf8_lossy(&heard));
    }

    /// Hears just this, and then the end.
    pub(crate) fn hear_last(&mut self, expected: impl AsRef<[u8]>) {
        let mut heard = Vec::new();
        self.0.read_to_end(&mut heard).expect("an end that is no error");
        assert!(heard == expected.as_ref(), "{:?}", String::from_utf8_lossy(&heard));
    }

    pub(crate) fn ask(&mut self, words: &str, expected: &str) {
        self.say(words);
        self.hear(expected);
    }

    /// Goes without a farewell, by a reset.
    pub(crate) fn reset(self) {
        rustix::net::sockopt::set_socket_linger(&self.0, Some(Duration::ZERO)).unwrap();
    }

    /// Writes for as long as somebody makes room, and returns how much it was.
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
