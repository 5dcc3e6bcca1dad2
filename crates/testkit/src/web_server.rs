//! A web server that misbehaves on demand, for tests.
//!
//! It serves the loopback interface over plain HTTP, with a thread for each connection and one request on each. A handler
//! writes the reply, byte by byte if need be, and can be replaced at any time.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Replies to a request, whose head it gets.
pub type Handler = dyn Fn(&str, &mut TcpStream) + Send + Sync;

/// A server, which runs until the test program ends.
pub struct TestServer {
    /// Its address.
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    handler: Mutex<Arc<Handler>>,
    requests: Mutex<Vec<String>>,
    is_away: AtomicBool,
}

impl TestServer {
    /// Starts a server.
    ///
    /// # Panics
    /// Panics if it cannot listen.
    #[must_use]
    pub fn start(handler: Arc<Handler>) -> Self {
        Self::start_at("127.0.0.1:0", handler)
    }

    /// Starts a server at an address.
    ///
    /// # Panics
    /// Panics if it cannot listen there.
    #[must_use]
    pub fn start_at(address: &str, handler: Arc<Handler>) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let shared = Arc::new(Shared {
            handler: Mutex::new(handler),
            requests: Mutex::default(),
            is_away: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if !serving.is_away.load(Ordering::SeqCst) {
                    let serving = Arc::clone(&serving);
                    thread::spawn(move || serving.answer(stream));
                }
            }
        });
        Self { address, shared }
    }

    /// Replaces the handler.
    pub fn set(&self, handler: Arc<Handler>) {
        *lock(&self.shared.handler) = handler;
    }

    /// Closes connections without a reply, or replies again.
    pub fn set_away(&self, is_away: bool) {
        self.shared.is_away.store(is_away, Ordering::SeqCst);
    }

    /// Returns the heads of all requests so far, in lower case.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        lock(&self.shared.requests).clone()
    }

    /// Returns the URL of a path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Shared {
    fn answer(&self, mut stream: TcpStream) {
        let Ok(reader) = stream.try_clone() else { return };
        let (mut head, mut reader) = (String::new(), BufReader::new(reader));
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        lock(&self.requests).push(head.to_lowercase());
        let handler = Arc::clone(&lock(&self.handler));
        handler(&head, &mut stream);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends the status 200 with these fields, the length, and a body. Each field ends with `\r\n`.
pub fn reply(fields: &str, body: impl AsRef<[u8]>) -> Arc<Handler> {
    let (fields, body) = (fields.to_owned(), body.as_ref().to_owned());
    Arc::new(move |_, stream| {
        let length = body.len();
        let head =
            format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n");
        // The client may have gone.
        let _ = stream.write_all(&[head.as_bytes(), &body].concat());
    })
}

/// Sends bytes as they are, and then the same piece for ever.
#[must_use]
pub fn raw(begin: &str, forever: Option<&'static [u8]>) -> Arc<Handler> {
    let begin = begin.to_owned();
    Arc::new(move |_, stream| {
        let mut is_read = stream.write_all(begin.as_bytes()).is_ok();
        while let Some(piece) = forever
            && is_read
        {
            is_read = stream.write_all(piece).is_ok();
        }
    })
}

/// Replies to each path by another handler, and with the status 404 to all other paths.
#[must_use]
pub fn paths(handlers: Vec<(&'static str, Arc<Handler>)>) -> Arc<Handler> {
    Arc::new(move |head, stream| {
        let target = head.split(' ').nth(1).unwrap_or_default();
        match handlers.iter().find(|(path, _)| *path == target) {
            Some((_, handler)) => handler(head, stream),
            None => raw("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", None)(head, stream),
        }
    })
}
