//! Accepts connections of operators, and ends those that take too long.
//!
//! Every connection serves one request, in bounded time and memory: a time for its head, one for the whole
//! (`connections`), and one in which its client may read nothing. A slow client cannot hold more than that.

pub(crate) mod connections;
pub(crate) mod local;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;

use self::connections::{Connection, Connections, Open};
use self::local::LocalSocket;
use super::counters::ConnectionEnd;
use shoal_runtime::repeated::Repeated;

/// Maximum time for the head of a request, and for a TLS handshake.
const HEAD_TIME_MAX: Duration = Duration::from_secs(1);
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(3);

/// Maximum size of a request's head: hyper asks for at least 8 KiB.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Maximum time in which a client may read nothing of the written bytes.
const STALL_TIME_MAX: Duration = Duration::from_secs(10);

/// The kernel's buffer for unread bytes of a connection, and the time after which a peer that does not acknowledge them
/// is gone. Without the buffer's limit, a client that does not read would hold some MiB.
const SEND_BUFFER_BYTES: usize = 128 << 10;
const UNACKNOWLEDGED_MS_MAX: u32 = 30_000;

/// Pause after a failed accept, which mostly means that file descriptors are exhausted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Opens the listener.
pub async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!(
            "the control listener cannot bind TCP {address}; stop what uses it (`ss -ltnp` lists it) or set \
             control.listen to another address, or to \"\" to disable it"
        )
    })
}

/// Serves connections until it is dropped.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    connections: Arc<Connections>,
    router: Router,
) {
    let mut failed_accepts = Repeated::default();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let open = connections.open(peer, None);
                // It only bounds the kernel's work for a client that has gone.
                let _ = sockopt::set_tcp_user_timeout(&stream, UNACKNOWLEDGED_MS_MAX);
                drop(tokio::spawn(serve_connection(stream, tls.clone(), open, router.clone())));
                // A connection that was closed for this one returns its descriptor before the next one is accepted.
                tokio::task::yield_now().await;
            }
            Err(error) => pause(&mut failed_accepts, &error).await,
        }
    }
}

/// Serves connections of the socket for the users of this host, if there is one, until it is dropped.
pub(super) async fn serve_local(
    socket: Option<Arc<LocalSocket>>,
    connections: Arc<Connections>,
    router: Router,
) {
    let Some(socket) = socket else { return };
    let mut failed_accepts = Repeated::default();
    loop {
        match socket.accept().await {
            Ok((stream, user)) => {
                let open = connections.open((Ipv4Addr::LOCALHOST, 0).into(), Some(user));
                drop(tokio::spawn(serve_connection(stream, None, open, router.clone())));
                tokio::task::yield_now().await;
            }
            Err(error) => pause(&mut failed_accepts, &error).await,
        }
    }
}

/// Waits after a failed accept, and logs it.
async fn pause(failed_accepts: &mut Repeated, error: &io::Error) {
    if let Some(unlogged) = failed_accepts.note(Instant::now()) {
        tracing::warn!(%error, unlogged, "the control listener could not accept a connection");
    }
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Serves one connection, which ends after its first request.
async fn serve_connection<S>(stream: S, tls: Option<TlsAcceptor>, mut open: Open, router: Router)
where
    S: AsyncRead + AsyncWrite + AsFd + Unpin + Send + 'static,
{
    // It only bounds the kernel's memory for the connection.
    let _ = sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES);
    let connection = open.connection.clone();
    let stream = Timed { stream, stalled: None };
    let exchange = async {
        let Some(tls) = tls else { return exchange(stream, router, &connection).await };
        match tokio::time::timeout(HANDSHAKE_TIME_MAX, tls.accept(stream)).await {
            Ok(Ok(stream)) => return exchange(stream, router, &connection).await,
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake of a control connection failed"),
            Err(_) => tracing::debug!("a TLS handshake of a control connection took too long"),
        }
        connection.count(ConnectionEnd::Handshake);
    };
    tokio::select! {
        () = exchange => {}
        () = open.ended() => tracing::debug!("a control connection was closed"),
    }
}

/// Answers the request of `client`.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    client: &Connection,
) {
    let router = router.layer(Extension(client.clone()));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = connection.await {
        client.count(ConnectionEnd::Failed);
        tracing::debug!(%error, "a control connection failed");
    }
}

/// A stream whose writes fail if its peer reads nothing for too long.
struct Timed<S> {
    stream: S,
    /// Runs while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(STALL_TIME_MAX)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
