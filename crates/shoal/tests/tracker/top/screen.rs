//! A pseudo terminal with `shoal top` in it, and what its screen shows.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::kit::harness::{command_in_session, eventually};

/// A running `shoal top`. Killed on drop, if it still runs by then.
pub(super) struct Screen {
    child: Child,
    terminal: File,
    /// Keeps the terminal open after the end of the program.
    other_end: OwnedFd,
    /// The attributes of the terminal before the program.
    before: Termios,
    /// Everything that the program has written.
    output: Arc<Mutex<Vec<u8>>>,
    columns: usize,
    rows: usize,
}

impl Screen {
    pub(super) fn start(columns: u16, rows: u16, arguments: &[&str], settings: &[(&str, &str)]) -> Self {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let ends = openpty(&size, None).unwrap();
        let before = tcgetattr(&ends.slave).unwrap();
        let mut command = command_in_session(settings);
        command.env("TERM", "xterm").arg("top").args(arguments);
        let end = || ends.slave.try_clone().unwrap();
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let terminal = File::from(ends.master);
        let output = Arc::<Mutex<Vec<u8>>>::default();
        let (mut reader, copy) = (terminal.try_clone().unwrap(), Arc::clone(&output));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut bytes) {
                copy.lock().unwrap().extend_from_slice(&bytes[..length]);
            }
        });
        let (columns, rows) = (columns.into(), rows.into());
        Self { child, terminal, other_end: ends.slave, before, output, columns, rows }
    }

    /// Presses keys.
    pub(super) fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    /// Changes the size of the terminal, which tells the program.
    pub(super) fn resize(&mut self, columns: u16, rows: u16) {
        (self.columns, self.rows) = (columns.into(), rows.into());
        let mut stty = std::process::Command::new("stty");
        stty.args(["cols", &columns.to_string(), "rows", &rows.to_string()]);
        assert!(stty.stdin(self.other_end.try_clone().unwrap()).status().unwrap().success());
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Waits for a picture, and returns its lines.
    pub(super) fn wait_for(&self, what: &str, is_there: impl Fn(&[String]) -> bool) -> Vec<String> {
        let look = || Some(self.lines()).filter(|lines| is_there(lines));
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| eventually(what, look)));
        found.unwrap_or_else(|_| panic!("waited in vain for {what}: {:#?}", self.lines()))
    }

    /// Waits until the program is stopped, as by the shell, and for what it wrote before: the terminal is put back.
    pub(super) fn wait_for_stop(&self) {
        let flags = WaitPidFlag::WUNTRACED | WaitPidFlag::WNOHANG;
        eventually("the program stops", || {
            matches!(waitpid(self.pid(), Some(flags)).unwrap(), WaitStatus::Stopped(..)).then_some(())
        });
        eventually("the terminal is put back", || self.is_put_back().then_some(()));
    }

    /// Waits for the end of the program, which puts the terminal back.
    pub(super) fn end(&mut self) -> ExitStatus {
        let status = eventually("the program ends", || self.child.try_wait().unwrap());
        eventually("the terminal is put back", || self.is_put_back().then_some(()));
        status
    }

    /// Returns whether the terminal is as it was: its attributes, the main screen, the cursor, wrapped lines.
    pub(super) fn is_put_back(&self) -> bool {
        let output = self.output();
        let ends_with =
            |on: &str, off: &str| output.rfind(on).is_some() && output.rfind(off) > output.rfind(on);
        tcgetattr(&self.terminal).unwrap() == self.before
            && ends_with("\u{1b}[?1049h", "\u{1b}[?1049l")
            && ends_with("\u{1b}[?25l", "\u{1b}[?25h")
            && ends_with("\u{1b}[?7l", "\u{1b}[?7h")
    }

    /// Returns everything that the program has written.
    pub(super) fn output(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().unwrap())
    }

    /// Returns the lines that the terminal shows: a terminal that knows what the program sends, and nothing else.
    fn lines(&self) -> Vec<String> {
        let output = self.output();
        let mut cells = vec![vec![' '; self.columns]; self.rows];
        let (mut row, mut column) = (0, 0);
        let mut rest = output.chars();
        while let Some(c) = rest.next() {
            match c {
                '\u{1b}' => {
                    assert_eq!(rest.next(), Some('['), "a sequence of another kind: {output:?}");
                    let mut parameters = String::new();
                    let end = rest.by_ref().find(|c| {
                        let is_end = ('@'..='~').contains(c);
                        if !is_end {
                            parameters.push(*c);
                        }
                        is_end
                    });
                    match end {
                        Some('H') => {
                            let mut numbers = parameters.split(';').map(|number| number.parse().unwrap_or(1));
                            (row, column) =
                                (numbers.next().unwrap_or(1) - 1, numbers.next().unwrap_or(1) - 1);
                        }
                        Some('J') => cells.iter_mut().for_each(|line| line.fill(' ')),
                        Some('m' | 'h' | 'l') | None => {}
                        Some(other) => panic!("the program sends {parameters}{other}"),
                    }
                }
                c => {
                    assert!(!c.is_control(), "the program sends {c:?}");
                    if let Some(cell) =
                        cells.get_mut(row).and_then(|line: &mut Vec<char>| line.get_mut(column))
                    {
                        *cell = c;
                    }
                    column += 1;
                }
            }
        }
        cells.into_iter().map(|line| line.into_iter().collect::<String>().trim_end().to_owned()).collect()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Both fail where the program has ended already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
