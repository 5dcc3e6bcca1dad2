//! The loop of the full screen: replies, keys and signals in, pictures out.
//!
//! Threads of their own read keys and ask the tracker, so that a tracker that does not reply holds up no key.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::keys::Key;
use super::screen::{Action, Screen};
use super::terminal::{self, Terminal};
use super::view::draw;
use super::{Reply, ask};
use crate::client::ControlClient;
use shoal_control::stats::Stats;
use shoal_runtime::clock;
use shoal_runtime::failure::Failure;

/// Longest pause before the next question to a tracker that did not reply.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// How often the picture is drawn without news, for the time since the last reply.
const DRAW_EVERY: Duration = Duration::from_secs(1);

/// The signals that this handles.
struct Signals {
    resized: Signal,
    stopped: Signal,
    continued: Signal,
    ended: [Signal; 3],
}

/// Shows the screen until the operator quits.
pub(crate) fn run(client: ControlClient, mut screen: Screen, first: Reply) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot wait for keys and replies")?;
    screen.take(Ok(first.stats), clock::monotonic_ms());
    Ok(runtime.block_on(show(client, screen))?)
}

async fn show(client: ControlClient, mut screen: Screen) -> anyhow::Result<()> {
    let (paces, receiver) = channel();
    let (sender, mut replies) = mpsc::channel(1);
    let interval = Duration::from_secs(screen.interval_s);
    let asking = thread::Builder::new().name("asking".to_owned());
    asking.spawn(move || ask_at(&client, interval, &receiver, &sender)).context("cannot start a thread")?;
    let (key_sender, mut keys) = mpsc::channel(1);
    let reading = thread::Builder::new().name("keys".to_owned());
    let mut signals = Signals::take().context("cannot handle signals")?;
    let mut ticks = tokio::time::interval(DRAW_EVERY);
    let mut terminal = Terminal::take().context("cannot use the terminal")?;
    // It begins when the terminal is in raw mode.
    reading.spawn(move || read_keys(&key_sender)).context("cannot start a thread")?;
    loop {
        let now_ms = clock::monotonic_ms();
        let drawn = terminal.draw(|frame| draw(&mut screen, now_ms, frame.area(), frame.buffer_mut()));
        drawn.context("cannot write to the terminal")?;
        tokio::select! {
            pressed = keys.recv() => {
                let Some(pressed) = pressed else { return Ok(()) };
                for key in pressed {
                    match screen.press(key, clock::monotonic_ms()) {
                        Action::Nothing => {}
                        Action::Quit => return Ok(()),
                        Action::Suspend => terminal.suspend()?,
                        Action::Redraw => terminal.forget()?,
                        Action::Pace => set_pace(&screen, &paces),
                    }
                }
            }
            reply = replies.recv() => {
                let reply = reply.ok_or_else(|| anyhow!("the thread that asks the tracker has failed"))?;
                screen.take(reply, clock::monotonic_ms());
            }
            _ = signals.resized.recv() => {}
            _ = signals.stopped.recv() => terminal.suspend()?,
            _ = signals.continued.recv() => terminal.resume()?,
            () = end(&mut signals.ended) => return Ok(()),
            _ = ticks.tick() => {}
        }
    }
}

/// Tells the thread when to ask.
fn set_pace(screen: &Screen, paces: &Sender<Option<Duration>>) {
    let pace = (!screen.is_paused).then(|| Duration::from_secs(screen.interval_s));
    // If the thread has failed, its replies tell.
    let _ = paces.send(pace);
}

/// Sends keys until the terminal is gone. It ends with the process.
fn read_keys(keys: &mpsc::Sender<Vec<Key>>) {
    while let Some(pressed) = terminal::keys() {
        if keys.blocking_send(pressed).is_err() {
            return;
        }
    }
}

/// Asks the tracker at an interval, which `paces` change; `None` is a pause.
fn ask_at(
    client: &ControlClient,
    interval: Duration,
    paces: &Receiver<Option<Duration>>,
    replies: &mpsc::Sender<Result<Stats, String>>,
) {
    let (mut pace, mut has_failed) = (Some(interval), false);
    loop {
        let new_pace = match pace {
            Some(pace) => paces.recv_timeout(if has_failed { pace.min(RETRY_MAX) } else { pace }),
            None => paces.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match new_pace {
            Ok(new_pace) => {
                let was_paused = core::mem::replace(&mut pace, new_pace).is_none();
                if !was_paused || pace.is_none() {
                    continue;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let reply = ask(client).map(|reply| reply.stats).map_err(|error| error.to_string());
        has_failed = reply.is_err();
        if replies.blocking_send(reply).is_err() {
            return;
        }
    }
}

impl Signals {
    /// Takes the signals over. To be called in a runtime.
    fn take() -> std::io::Result<Self> {
        Ok(Self {
            resized: signal(SignalKind::window_change())?,
            stopped: signal(SignalKind::from_raw(libc::SIGTSTP))?,
            continued: signal(SignalKind::from_raw(libc::SIGCONT))?,
            ended: [
                signal(SignalKind::terminate())?,
                signal(SignalKind::interrupt())?,
                signal(SignalKind::hangup())?,
            ],
        })
    }
}

/// Waits for one of the signals that end this program.
async fn end([terminate, interrupt, hangup]: &mut [Signal; 3]) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = hangup.recv() => {}
    }
}
