//! The old process, which starts the new one and hands over to it.

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use anyhow::{Context, anyhow};
use rustix::fs::{MemfdFlags, memfd_create};
use shoal_base::transport::stream::{ConnectionKind, Quota};
use shoal_config::Config;
use shoal_net::Waker;
use shoal_net::stream::DetachedConnection;
use shoal_relay::Swarms;
use shoal_store::Store;
use tokio::sync::{Notify, oneshot};

use super::message::Connection;
use super::{ToNew, ToOld, VERSION};
use crate::ancillary::DESCRIPTORS_MAX;
use crate::broker::{Broker, StartedProgram};
use crate::service_manager::ServiceManager;
use crate::sockets::listening::{Change, Listening};
use crate::state::{SnapshotWriter, StateKeys};
use crate::worker::phase::{Departure, Phase, WorkerPhase};
use shoal_control::Sources;
use shoal_control::carried::Carried;
use shoal_control::operations::Handed;
use shoal_runtime::clock;
use shoal_runtime::lists::bans::CarriedBans;

/// Maximum time for the new process to start.
const START_TIME_MAX: Duration = Duration::from_secs(20);

/// Maximum time for the new process to read its configuration and its lists.
const PREPARE_TIME_MAX: Duration = Duration::from_secs(120);

/// Maximum time for the workers to answer what they have received.
const PAUSE_TIME_MAX: Duration = Duration::from_secs(1);

/// Maximum time for the new process to continue with the image of the store.
const RESUME_TIME_MAX: Duration = Duration::from_secs(3);

/// Maximum time for the new process to continue with a snapshot.
const RESTORE_TIME_MAX: Duration = Duration::from_secs(60);

/// Maximum time for the new process to take a connection.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(5);

/// Maximum number of sources in a message, which take half of its maximum length.
const SOURCES_MAX: usize = 64 * 1024;

/// Maximum time for which a stop of the tracker waits until a hand-over has ended.
const END_TIME_MAX: Duration = Duration::from_millis(300);

/// Maximum time to wait for the exit status of a new process that has failed, before it is killed.
const EXIT_TIME_MAX: Duration = Duration::from_millis(500);

/// How long the process remains after its last connection, for the replies of the control listener and the log.
const REST: Duration = Duration::from_millis(500);

/// Everything that a new process can take over.
pub(crate) struct Offered {
    pub(crate) keys: StateKeys,
    /// The lock of the state, if there is one.
    pub(crate) lock: Option<OwnedFd>,
    pub(crate) listening: Mutex<Listening>,
    pub(crate) store: Arc<Store>,
    /// The swarms of WebTorrent, if limits of sources count their peers.
    pub(crate) counted_swarms: Option<Arc<Swarms>>,
    pub(crate) snapshots: SnapshotWriter,
    pub(crate) phase: Arc<WorkerPhase>,
    pub(crate) wakers: Vec<Waker>,
    /// The time that is spread over closing all WebSockets.
    pub(crate) leave_time: Duration,
}

pub(crate) struct HandOver {
    broker: Broker,
    offered: Mutex<Offered>,
    manager: ServiceManager,
    /// The state of the control plane.
    sources: Arc<Sources>,
    progress: Mutex<Progress>,
    /// Notified when the new process serves.
    is_handed: Notify,
}

/// The progress of a hand-over. A stop of the tracker and the hand-over compete for it.
#[derive(Debug)]
enum Progress {
    /// There is none.
    Idle,
    /// A new process has been asked to take over.
    Asked(Arc<Connection>),
    /// Another process serves.
    Handed,
    /// The tracker stops, and does not hand over any more.
    Stopping,
}

impl fmt::Debug for HandOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandOver").finish_non_exhaustive()
    }
}

/// The reason why a hand-over failed. The tracker serves as before.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandOverError {
    #[error("another upgrade, or a change of the listeners, is in progress")]
    InProgress,
    #[error("the tracker is about to stop")]
    Stopping,
    #[error("the new process cannot be started: {0}")]
    Start(String),
    #[error("the new process (pid {pid}) gives up: {reason}")]
    Refused { pid: u32, reason: String },
    #[error("the new process (pid {pid}) has failed: {error:#}")]
    Failed { pid: u32, error: anyhow::Error },
}

/// A prepared change of the sockets, not yet adopted.
pub(crate) struct PendingChange<'a> {
    offered: MutexGuard<'a, Offered>,
    manager: &'a ServiceManager,
    pub(crate) change: Change,
}

impl PendingChange<'_> {
    /// Adopts the change. The workers are about to adopt it as well.
    pub(crate) fn commit(self) {
        let changes = lock_of(&self.offered.listening).commit(self.change);
        self.manager.change_sockets(&changes);
    }
}

/// Tells the requester the outcome.
type Report = oneshot::Sender<Result<Handed, HandOverError>>;

impl HandOver {
    pub(crate) fn new(
        broker: Broker,
        offered: Offered,
        manager: ServiceManager,
        sources: Arc<Sources>,
    ) -> Self {
        Self {
            broker,
            offered: Mutex::new(offered),
            manager,
            sources,
            progress: Mutex::new(Progress::Idle),
            is_handed: Notify::new(),
        }
    }

    /// Returns why the configuration cannot be read again now. A new process may have read it already, and would
    /// serve with the older text.
    pub(crate) fn check_reload(&self) -> Result<(), String> {
        self.unless_upgrading().map(drop)
    }

    /// Returns the offered parts, unless an upgrade is in progress.
    fn unless_upgrading(&self) -> Result<MutexGuard<'_, Offered>, String> {
        self.offered.try_lock().map_err(|_| "an upgrade is in progress; reload again after it".to_owned())
    }

    /// Binds the addresses that `config` lists and `running` does not. No upgrade begins before the result is dropped.
    /// The error says which address cannot be bound, and why, or that an upgrade is in progress.
    pub(crate) fn change_sockets(
        &self,
        running: &Config,
        config: &Config,
    ) -> Result<PendingChange<'_>, String> {
        let offered = self.unless_upgrading()?;
        let change = lock_of(&offered.listening).prepare(&self.broker, running, config)?;
        Ok(PendingChange { offered, manager: &self.manager, change })
    }

    /// Leaves the sockets to the workers, and to a service manager that keeps them, unless an upgrade is in progress.
    pub(crate) fn close_sockets(&self) {
        let Ok(offered) = self.unless_upgrading() else { return };
        let mut listening = lock_of(&offered.listening);
        if self.manager.keeps_descriptors() {
            listening.leave();
        } else {
            listening.close();
        }
    }

    /// Ends a hand-over in progress and permits no other, since the tracker is about to stop. Returns false if
    /// another process already serves.
    pub(crate) async fn stop(&self) -> bool {
        if !self.permit_no_more() {
            return false;
        }
        let end = async {
            while matches!(self.offered.try_lock(), Err(TryLockError::WouldBlock)) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        // Remaining work ends with this process.
        let _ended = tokio::time::timeout(END_TIME_MAX, end).await;
        true
    }

    /// Ends the conversation with a new process, and permits no other. Returns false if another process already
    /// serves.
    fn permit_no_more(&self) -> bool {
        let mut progress = lock_of(&self.progress);
        match &*progress {
            Progress::Handed => return false,
            Progress::Asked(connection) => connection.close(),
            Progress::Idle | Progress::Stopping => {}
        }
        *progress = Progress::Stopping;
        true
    }

    pub(crate) async fn handed(&self) {
        self.is_handed.notified().await;
    }

    /// Hands over on a separate thread, and returns the outcome. After a success, that thread ends this process
    /// later.
    pub(crate) async fn begin(self: &Arc<Self>) -> Result<Handed, HandOverError> {
        let (report, outcome) = oneshot::channel();
        let this = Arc::clone(self);
        let body = move || this.run(report);
        let thread = std::thread::Builder::new().name("hand-over".to_owned()).spawn(body);
        thread.map_err(|error| HandOverError::Start(error.to_string()))?;
        outcome.await.unwrap_or_else(|_| Err(HandOverError::Start("its thread has ended".to_owned())))
    }

    fn run(&self, report: Report) {
        let failure = match self.offered.try_lock() {
            Ok(offered) => self.hand_over(&offered, report),
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => {
                Some((HandOverError::InProgress, report))
            }
        };
        let Some((error, report)) = failure else { return };
        if matches!(error, HandOverError::Stopping) {
            tracing::warn!(%error, "not handed over");
        } else {
            tracing::error!(%error, "not handed over; this process goes on");
        }
        // The requester may have stopped waiting.
        let _ = report.send(Err(error));
    }

    /// Returns the reason for a failure. After a success, it never returns.
    fn hand_over(&self, offered: &Offered, report: Report) -> Option<(HandOverError, Report)> {
        let (program, connection) = match self.start() {
            Ok(started) => started,
            Err(error) => return Some((error, report)),
        };
        let pid = program.pid;
        tracing::info!(pid, "handing over to a new process");
        let mut report = Some(report);
        let attempt = Attempt {
            program: &program,
            connection: &connection,
            offered,
            hand_over: self,
            carried: Cell::new(None),
        };
        let error = attempt.run(&mut report);
        // A new process that waits for this one then ends with its own exit status.
        connection.close();
        if self.ends_attempt() {
            return Some((HandOverError::Stopping, report?));
        }
        let status = program.exit_status(EXIT_TIME_MAX);
        let error = match error.downcast::<RefusedByNew>() {
            Ok(RefusedByNew(reason)) => HandOverError::Refused { pid, reason },
            Err(error) => match status {
                Some(status) => HandOverError::Failed { pid, error: error.context(status) },
                None => HandOverError::Failed { pid, error },
            },
        };
        Some((error, report?))
    }

    /// Records that the new process was asked to take over. Returns false if the tracker is stopping.
    fn begins_attempt(&self, connection: &Arc<Connection>) -> bool {
        let mut progress = lock_of(&self.progress);
        let goes_on = matches!(*progress, Progress::Idle);
        if goes_on {
            *progress = Progress::Asked(Arc::clone(connection));
        }
        goes_on
    }

    /// Records that the new process does not take over. Returns whether the tracker is about to stop.
    fn ends_attempt(&self) -> bool {
        let mut progress = lock_of(&self.progress);
        let is_stopping = matches!(*progress, Progress::Stopping);
        if !is_stopping {
            *progress = Progress::Idle;
        }
        is_stopping
    }

    fn start(&self) -> Result<(StartedProgram, Arc<Connection>), HandOverError> {
        let start = |error: std::io::Error| HandOverError::Start(error.to_string());
        let (own, other) = UnixStream::pair().map_err(start)?;
        let program = self.broker.start(other.into()).map_err(HandOverError::Start)?;
        Ok((program, Arc::new(Connection::new(own))))
    }
}

/// The new process's reason for giving up.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct RefusedByNew(String);

/// An attempt to hand over to one process.
struct Attempt<'a> {
    program: &'a StartedProgram,
    connection: &'a Arc<Connection>,
    offered: &'a Offered,
    hand_over: &'a HandOver,
    /// A file with the state of the control plane, once the workers pause.
    carried: Cell<Option<File>>,
}

impl Attempt<'_> {
    /// Returns only after a failure.
    fn run(&self, report: &mut Option<Report>) -> anyhow::Error {
        if !self.hand_over.begins_attempt(self.connection) {
            return HandOverError::Stopping.into();
        }
        let continues_in_memory = match self.prepare() {
            Ok(continues_in_memory) => continues_in_memory,
            Err(error) => return error,
        };
        let Offered { phase, wakers, .. } = self.offered;
        // This can wait for the disk, so the workers still serve.
        let list_control = &self.hand_over.sources.list_control;
        let bans = list_control.hand_bans();
        let begin_ms = clock::monotonic_ms();
        let error = if phase.pause(wakers, PAUSE_TIME_MAX) {
            // The counts stand still. In the freeze it would be too late: a thread with a lock of the control plane may
            // wait for the store.
            match self.write_carried(bans) {
                Ok(file) => {
                    self.carried.set(Some(file));
                    self.pass_swarms(continues_in_memory, begin_ms, report)
                }
                Err(error) => error.context("the state of the control plane cannot be passed on"),
            }
        } else {
            anyhow!("a worker does not pause")
        };
        phase.set(Phase::Serving, wakers);
        list_control.keep_bans();
        error
    }

    /// Offers everything, and waits until the new process is prepared.
    fn prepare(&self) -> anyhow::Result<bool> {
        let Offered { keys, lock, listening, store, .. } = self.offered;
        self.connection.set_time_max(START_TIME_MAX)?;
        match self.receive()? {
            ToOld::Present => self.connection.set_time_max(PREPARE_TIME_MAX)?,
            other => return Err(anyhow!("it sends {other:?} before anything else")),
        }
        let lock_descriptor: Vec<_> = lock.iter().map(AsFd::as_fd).collect();
        let offer = ToNew::Offer { version: VERSION, keys: keys.to_bytes(), has_lock: lock.is_some() };
        self.send(&offer, &lock_descriptor)?;
        let sockets = lock_of(listening).descriptors()?;
        for sockets in sockets.chunks(DESCRIPTORS_MAX) {
            let names = sockets.iter().map(|(name, _)| name.clone()).collect();
            let descriptors: Vec<_> = sockets.iter().map(|(_, socket)| socket.as_fd()).collect();
            self.send(&ToNew::Sockets { names }, &descriptors)?;
        }
        match store.memory_file() {
            Some(file) => self.send(&ToNew::Store, &[file.as_fd()])?,
            None => self.send(&ToNew::NoStore, &[])?,
        }
        match self.receive()? {
            ToOld::Prepared { continues_in_memory } => Ok(continues_in_memory),
            other => Err(anyhow!("it sends {other:?} before it is prepared")),
        }
    }

    /// Passes the swarms, and then the service. Returns only after a failure.
    fn pass_swarms(&self, in_memory: bool, begin_ms: u64, report: &mut Option<Report>) -> anyhow::Error {
        let store = &self.offered.store;
        if in_memory {
            let passed = store.freeze(|_, image| {
                let resumed =
                    self.pass_file(&ToNew::Image, RESUME_TIME_MAX, |mut file| Ok(file.write_all(image)?));
                if matches!(resumed, Ok(ToOld::Resumed)) {
                    Err(self.let_go(begin_ms, true, report))
                } else {
                    resumed
                }
            });
            match passed {
                Some(Ok(ToOld::WantsSnapshot { reason })) => {
                    tracing::info!(
                        reason,
                        "the new process cannot continue in this memory; it gets a snapshot"
                    );
                }
                Some(Ok(other)) => return anyhow!("it sends {other:?} in reply to an image"),
                Some(Err(error)) => return error,
                None => {}
            }
        }
        let snapshot = |file| {
            self.offered.snapshots.write(file, clock::unix_s(), true)?;
            Ok(())
        };
        match self.pass_file(&ToNew::Snapshot, RESTORE_TIME_MAX, snapshot) {
            // From here on, this process may neither change the swarms nor answer from them.
            Ok(ToOld::Resumed) => {
                let let_go = |report: &mut _| self.let_go(begin_ms, false, report);
                store.freeze(|_, _| let_go(report)).unwrap_or_else(|| let_go(report))
            }
            Ok(other) => anyhow!("it sends {other:?} in reply to a snapshot"),
            Err(error) => error,
        }
    }

    /// Passes a file in memory that `write` fills, and waits for the reply.
    fn pass_file(
        &self,
        message: &ToNew,
        time_max: Duration,
        write: impl FnOnce(File) -> anyhow::Result<()>,
    ) -> anyhow::Result<ToOld> {
        let mut file = File::from(memfd_create("shoal-swarms", MemfdFlags::CLOEXEC)?);
        write(file.try_clone()?)?;
        file.rewind()?;
        self.connection.set_time_max(time_max)?;
        self.send(message, &[file.as_fd()])?;
        self.receive()
    }

    /// Lets the new process serve, passes connections to it, and ends this process. Returns only if the new process
    /// ends before it serves. The store is frozen, unless its memory is private.
    fn let_go(&self, begin_ms: u64, in_memory: bool, report: &mut Option<Report>) -> anyhow::Error {
        let Offered { phase, wakers, leave_time, .. } = self.offered;
        let (pid, HandOver { manager, progress, is_handed, .. }) = (self.program.pid, self.hand_over);
        let mut progress = lock_of(progress);
        if matches!(*progress, Progress::Stopping) {
            return HandOverError::Stopping.into();
        }
        // From here on, the new process outlives this one. The manager accepts the new process's messages only once
        // it is the main process.
        self.program.set_serves(true);
        manager.main_pid(pid);
        let carried = self.carried.take();
        let carried: Vec<_> = carried.iter().map(AsFd::as_fd).collect();
        if let Err(error) = self.send(&ToNew::Serve, &carried) {
            manager.main_pid(process::id());
            self.program.set_serves(false);
            return error;
        }
        *progress = Progress::Handed;
        drop(progress);
        let handed = Handed { pid, gap_ms: clock::monotonic_ms() - begin_ms, in_memory };
        let (departures, departed) = mpsc::channel();
        // The new process may not use every socket, and an unused one must stop receiving.
        lock_of(&self.offered.listening).leave();
        if in_memory {
            // The workers still pause, so the image counts exactly these peers.
            self.pass_sources();
        }
        phase.leave(wakers, *leave_time, departures);
        tracing::info!(pid = handed.pid, gap_ms = handed.gap_ms, in_memory, "the new process serves");
        if let Some(report) = report.take() {
            // The requester may have stopped waiting.
            let _ = report.send(Ok(handed));
        }
        is_handed.notify_one();
        let passed = self.pass_connections(&departed);
        tracing::info!(passed, "handed over");
        std::thread::sleep(REST);
        process::exit(0)
    }

    /// Returns a file with the state of the control plane, and these bans.
    fn write_carried(&self, bans: CarriedBans) -> anyhow::Result<File> {
        let text = serde_json::to_vec(&Carried::of(&self.hand_over.sources, Some(bans)))?;
        let mut file = File::from(memfd_create("shoal-carried", MemfdFlags::CLOEXEC)?);
        file.write_all(&text)?;
        file.rewind()?;
        Ok(file)
    }

    fn pass_sources(&self) {
        let Some(swarms) = &self.offered.counted_swarms else { return };
        swarms.sources(|sources| {
            for sources in sources.chunks(SOURCES_MAX) {
                let sources = sources.iter().map(|source| source.to_bytes()).collect();
                // Without this message, the limits of sources count some peers twice.
                let _ = self.send(&ToNew::Sources { sources }, &[]);
            }
        });
    }

    /// Passes connections until all workers have left. Returns their number.
    fn pass_connections(&self, departures: &Receiver<Departure>) -> u64 {
        let Offered { phase, wakers, leave_time, .. } = self.offered;
        let leave_ms = u64::try_from(leave_time.as_millis()).unwrap_or(u64::MAX);
        let end_ms = clock::monotonic_ms().saturating_add(leave_ms).saturating_add(1000);
        let _ = self.connection.set_time_max(CONNECTION_TIME_MAX);
        let (mut passed, mut awaited) = (0, wakers.len());
        loop {
            match departures.recv_timeout(Duration::from_millis(20)) {
                Ok(Departure::EndOfFirst) => {
                    awaited -= 1;
                    if awaited == 0 {
                        // Without this message, the clients wait a little longer.
                        let _ = self.send(&ToNew::EndOfFirst, &[]);
                    }
                }
                Ok(Departure::Connection(connection)) => {
                    let DetachedConnection { socket, state, quota: Quota { ip, kind }, unsent } = connection;
                    let is_websocket = kind == ConnectionKind::WebSocket;
                    let message = ToNew::Connection { state, ip, is_websocket, unsent };
                    // A connection that cannot be passed is closed.
                    passed += u64::from(self.send(&message, &[socket.as_fd()]).is_ok());
                }
                Err(RecvTimeoutError::Timeout) if clock::monotonic_ms() > end_ms => return passed,
                Err(RecvTimeoutError::Timeout) if phase.have_left(wakers.len()) => return passed,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return passed,
            }
        }
    }

    fn send(&self, message: &ToNew, descriptors: &[BorrowedFd<'_>]) -> anyhow::Result<()> {
        self.connection.send(message, descriptors).context("it takes no messages")
    }

    fn receive(&self) -> anyhow::Result<ToOld> {
        match self.connection.receive() {
            Ok((ToOld::Failed { reason }, _)) => Err(RefusedByNew(reason).into()),
            Ok((message, _)) => Ok(message),
            Err(error) => Err(match error.kind() {
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => anyhow!("it has ended"),
                ErrorKind::WouldBlock => anyhow!("it does not answer"),
                _ => anyhow::Error::from(error).context("it cannot be understood"),
            }),
        }
    }
}

fn lock_of<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
