//! The new process, which takes over from the old one.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use shoal_base::source::{Holdings, Networks, Source};
use shoal_base::transport::stream::{ConnectionKind, Quota};
use shoal_net::Waker;
use shoal_net::stream::DetachedConnection;
use shoal_store::{MemoryFile, Store};

use super::message::Connection;
use super::{ToNew, ToOld, VERSION};
use crate::worker::phase::WorkerPhase;
use shoal_control::carried::Carried;

/// Maximum time for each message of the old process. It may have to write a snapshot.
const MESSAGE_TIME_MAX: Duration = Duration::from_secs(90);

/// The old process and its offer.
#[derive(Debug)]
pub(crate) struct Predecessor {
    connection: Connection,
    pub(crate) keys: Vec<u8>,
    pub(crate) lock: Option<OwnedFd>,
    pub(crate) sockets: Vec<(String, OwnedFd)>,
    pub(crate) memory: Option<MemoryFile>,
}

/// The form in which the swarms come.
pub(crate) enum Takeover {
    /// The store continues in its memory.
    InMemory,
    /// A snapshot, for an empty store.
    Snapshot(File),
}

impl Predecessor {
    /// Receives the offer of the old process.
    pub(crate) fn meet(socket: OwnedFd) -> anyhow::Result<Self> {
        let connection = Connection::new(UnixStream::from(socket));
        connection.set_time_max(MESSAGE_TIME_MAX)?;
        let present = connection.send(&ToOld::Present, &[]);
        present.context("the running tracker has ended the hand-over")?;
        let (ToNew::Offer { version, keys, has_lock }, lock) = receive(&connection)? else {
            bail!("the running tracker does not begin with an offer");
        };
        if version != VERSION {
            let reason =
                format!("it knows version {VERSION} of the hand-over, and not {version}; restart instead");
            // The old process may be gone.
            let _ = connection.send(&ToOld::Failed { reason: reason.clone() }, &[]);
            bail!("{reason}");
        }
        let lock = lock.into_iter().next().filter(|_| has_lock);
        let mut sockets = Vec::new();
        loop {
            match receive(&connection)? {
                (ToNew::Sockets { names }, descriptors) => sockets.extend(names.into_iter().zip(descriptors)),
                (ToNew::Store, descriptors) => {
                    let memory = descriptors.into_iter().next().map(MemoryFile::from);
                    return Ok(Self { connection, keys, lock, sockets, memory });
                }
                (ToNew::NoStore, _) => return Ok(Self { connection, keys, lock, sockets, memory: None }),
                (other, _) => bail!("the running tracker sends {other:?} in its offer"),
            }
        }
    }

    /// Tells the old process why this one cannot take over.
    pub(crate) fn fail(&self, reason: &str) {
        // The old process may be gone.
        let _ = self.connection.send(&ToOld::Failed { reason: reason.to_owned() }, &[]);
    }

    /// Continues with the old process's store, if `store` lies in the same memory. Otherwise, or if the image does
    /// not fit, asks for a snapshot.
    pub(crate) fn take_swarms(&self, store: &mut Store, is_in_its_memory: bool) -> anyhow::Result<Takeover> {
        self.connection.send(&ToOld::Prepared { continues_in_memory: is_in_its_memory }, &[])?;
        loop {
            let (message, descriptors) = receive(&self.connection)?;
            let file = descriptors.into_iter().next().map(File::from);
            match (message, file) {
                (ToNew::Image, Some(mut file)) => {
                    let mut image = Vec::new();
                    file.read_to_end(&mut image).context("cannot read the image of the store")?;
                    match store.resume(&image) {
                        Ok(()) => return Ok(Takeover::InMemory),
                        Err(error) => {
                            let reason = error.to_string();
                            self.connection.send(&ToOld::WantsSnapshot { reason }, &[])?;
                        }
                    }
                }
                (ToNew::Snapshot, Some(file)) => return Ok(Takeover::Snapshot(file)),
                (other, _) => bail!("the running tracker sends {other:?} instead of its swarms"),
            }
        }
    }

    /// Tells the old process that this one is ready, and waits until the old one lets go. Returns the state of its control
    /// plane, which an earlier version does not send.
    pub(crate) fn wait_until_it_lets_go(&self) -> anyhow::Result<Option<Carried>> {
        self.connection.send(&ToOld::Resumed, &[])?;
        match receive(&self.connection)? {
            (ToNew::Serve, descriptors) => Ok(descriptors.into_iter().next().and_then(|file| {
                let carried = io::read_to_string(File::from(file));
                let carried = carried.and_then(|text| Ok(serde_json::from_str(&text)?));
                carried
                    .inspect_err(|error| tracing::warn!(%error, "the old process tells nothing of its state"))
                    .ok()
            })),
            (other, _) => Err(anyhow!("the running tracker sends {other:?} and does not let go")),
        }
    }

    /// Takes over the connections of the old process on a separate thread, until that process ends. `holdings` count
    /// their peers.
    pub(crate) fn take_connections(
        self,
        phase: Arc<WorkerPhase>,
        workers: Vec<Waker>,
        holdings: Option<Arc<Holdings>>,
    ) -> anyhow::Result<()> {
        self.connection.wait_forever()?;
        phase.expect_arrivals();
        let body = move || {
            let mut taken = 0_u64;
            loop {
                match self.connection.receive() {
                    Ok((ToNew::Connection { state, ip, is_websocket, unsent }, descriptors)) => {
                        let Some(socket) = descriptors.into_iter().next() else { continue };
                        let kind =
                            if is_websocket { ConnectionKind::WebSocket } else { ConnectionKind::Http };
                        let quota = Quota { ip, kind };
                        phase.arrive(DetachedConnection { socket, state, quota, unsent }, &workers);
                        taken += 1;
                    }
                    Ok((ToNew::Sources { sources }, _)) => {
                        for source in sources.into_iter().map(Source::from_bytes) {
                            holdings.iter().for_each(|holdings| {
                                holdings.remove_peer(source);
                                holdings.remove_torrent(source, Networks::ALL);
                            });
                        }
                    }
                    Ok((ToNew::EndOfFirst, _)) => phase.expect_no_more(),
                    Ok(_) | Err(_) => break,
                }
            }
            phase.expect_no_more();
            tracing::info!(connections = taken, "the old process has ended");
        };
        thread::Builder::new().name("taking-over".to_owned()).spawn(body)?;
        Ok(())
    }
}

fn receive(connection: &Connection) -> anyhow::Result<(ToNew, Vec<OwnedFd>)> {
    connection.receive().context("the running tracker has ended the hand-over")
}
