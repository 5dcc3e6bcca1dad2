//! The full screen: takes replies, keys and signals, draws pictures, and restores the terminal in the end.
//!
//! Separate threads read keys, wait for signals and send requests, so that a silent tracker does not delay keys.
//!
//! Tables, tabs and the chart are widgets of ratatui. crossterm handles keys and modes of the terminal. The whole
//! workspace uses the same version of signal-hook as crossterm.

use std::io::{self, stdout};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{DisableLineWrap, EnableLineWrap, EnterAlternateScreen, enable_raw_mode};
use ratatui::{DefaultTerminal, Terminal};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;

use super::screen::{Action, Screen};
use super::view::draw;
use super::{Reply, ask};
use crate::client::ControlClient;
use shoal_control::stats::Stats;
use shoal_runtime::clock;
use shoal_runtime::failure::Failure;

/// How often the picture is drawn without news, for the time since the last reply, and the next request considered.
const DRAW_EVERY: Duration = Duration::from_millis(200);

/// Events of the threads.
enum News {
    Input(Event),
    Signal(i32),
    Reply(Result<Box<Stats>, String>),
}

/// Shows the screen until the operator quits.
pub(crate) fn run(client: ControlClient, mut screen: Screen, first: Reply) -> Result<(), Failure> {
    screen.take(Ok(first.stats), clock::monotonic_ms());
    let _guard = Guard;
    Ok(show(client, screen)?)
}

/// Restores the terminal at the end, and after a panic.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        put_back();
    }
}

fn show(client: ControlClient, mut screen: Screen) -> anyhow::Result<()> {
    let (sender, news) = channel();
    let (asks, questions) = channel();
    let (keys, replies) = (sender.clone(), sender.clone());
    let mut signals =
        Signals::new([SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP]).context("cannot handle signals")?;
    // A panic in any thread restores the terminal before its message.
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    take(&mut terminal).context("cannot use the terminal")?;
    let asking = thread::spawn(move || {
        let mut questions = questions.into_iter();
        questions.try_for_each(|()| {
            let reply = ask(&client).map(|reply| Box::new(reply.stats)).map_err(|error| error.to_string());
            replies.send(News::Reply(reply))
        })
    });
    thread::spawn(move || signals.forever().try_for_each(|signal| sender.send(News::Signal(signal))));
    thread::spawn(move || while event::read().is_ok_and(|event| keys.send(News::Input(event)).is_ok()) {});
    loop {
        ensure!(!asking.is_finished(), "the thread that asks the tracker has failed");
        if screen.asks(clock::monotonic_ms()) {
            asks.send(()).context("the thread that asks the tracker has failed")?;
        }
        let drawn = terminal.draw(|frame| draw(&mut screen, clock::monotonic_ms(), frame));
        drawn.context("cannot write to the terminal")?;
        let action = match news.recv_timeout(DRAW_EVERY) {
            Ok(News::Input(Event::Key(key))) => screen.press(key, clock::monotonic_ms()),
            Ok(News::Signal(SIGTSTP)) => Action::Suspend,
            Ok(News::Signal(SIGCONT)) => Action::Redraw,
            Ok(News::Signal(_)) => Action::Quit,
            Ok(News::Reply(reply)) => {
                screen.take(reply.map(|stats| *stats), clock::monotonic_ms());
                Action::Nothing
            }
            Ok(News::Input(_)) | Err(_) => Action::Nothing,
        };
        match action {
            Action::Nothing => {}
            Action::Quit => return Ok(()),
            Action::Redraw => take(&mut terminal)?,
            Action::Suspend => {
                put_back();
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
                take(&mut terminal)?;
            }
        }
    }
}

/// Takes over the terminal, also if something else has used it, and draws everything with the next picture.
fn take(terminal: &mut DefaultTerminal) -> io::Result<()> {
    // Otherwise the library assumes the former mode.
    ratatui::try_restore()?;
    enable_raw_mode()?;
    // Each picture fits, so wrapping only does harm while the size changes.
    execute!(stdout(), EnterAlternateScreen, DisableLineWrap)?;
    *terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
    terminal.backend_mut().clear()
}

/// Restores the terminal. If it is gone, there is nothing to restore.
fn put_back() {
    let _ = execute!(stdout(), EnableLineWrap, Show);
    let _ = ratatui::try_restore();
}
