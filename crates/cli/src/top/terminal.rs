//! The terminal: raw mode, the alternate screen, keys, and how everything is put back.
//!
//! A picture is collected in memory and written at once, within a synchronized update if the terminal knows that, so nothing
//! flickers. The terminal is put back when this is dropped, and before the message of a panic.

use std::fmt::Write as _;
use std::io::{self, Write as _, stdin, stdout};
use std::sync::Once;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::queue;
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType as Erase, DisableLineWrap, EnableLineWrap,
    EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
    size,
};
use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use ratatui_core::terminal::{Frame, Terminal as Pictures};

use super::keys::{Key, parse};

/// The terminal of this process, in raw mode.
pub(super) struct Terminal {
    pictures: Pictures<Output>,
}

impl Terminal {
    /// Takes the terminal over.
    pub(super) fn take() -> io::Result<Self> {
        restore_before_panics();
        enter()?;
        let pictures = Pictures::new(Output::default()).inspect_err(|_| leave())?;
        Ok(Self { pictures })
    }

    /// Draws a picture. Only what differs from the last one is sent.
    pub(super) fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.pictures.draw(picture).map(|_| ())
    }

    /// Draws everything again with the next picture.
    pub(super) fn forget(&mut self) -> io::Result<()> {
        self.pictures.clear()
    }

    /// Puts the terminal back, stops this process until the shell continues it, and takes the terminal over again.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        leave();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
        self.resume()
    }

    /// Takes the terminal over again, after something else has used it.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        // Otherwise the mode is taken to be what it was before.
        let _it_is_set_next = disable_raw_mode();
        enter()?;
        self.forget()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        leave();
    }
}

/// Waits for keys. Returns `None` when the terminal is gone.
///
/// It blocks: the descriptor belongs to the shell as well, which does not expect it to be set to anything else.
pub(super) fn keys() -> Option<Vec<Key>> {
    let mut bytes = [0; 64];
    match rustix::io::read(stdin(), &mut bytes) {
        Ok(0) => None,
        Ok(length) => Some(parse(&bytes[..length])),
        Err(rustix::io::Errno::INTR) => Some(Vec::new()),
        Err(_) => None,
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    let mut sequences = Vec::new();
    // Each picture fits, so wrapping only does harm while the size changes.
    queue!(sequences, EnterAlternateScreen, DisableLineWrap, Hide, Clear(Erase::All))?;
    write(&sequences)
}

/// Puts the terminal back. It does no harm to do so twice.
fn leave() {
    let mut sequences = Vec::new();
    // If the terminal is gone, there is nothing to put back.
    let _ = queue!(sequences, EndSynchronizedUpdate, EnableLineWrap, Show, LeaveAlternateScreen);
    let _ = write(&sequences);
    let _ = disable_raw_mode();
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// Puts the terminal back before the message of a panic, which would be lost on the alternate screen.
fn restore_before_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            print(panic);
        }));
    });
}

/// Standard output as the terminal of the pictures.
#[derive(Debug, Default)]
struct Output {
    /// The sequences of a picture so far.
    sequences: Vec<u8>,
}

impl Backend for Output {
    type Error = io::Error;

    fn draw<'a, I: Iterator<Item = (u16, u16, &'a Cell)>>(&mut self, cells: I) -> io::Result<()> {
        let mut next = None;
        let mut style = None;
        let mut text = String::new();
        for (x, y, cell) in cells {
            if next != Some((x, y)) {
                self.sequences.extend_from_slice(text.as_bytes());
                text.clear();
                queue!(self.sequences, MoveTo(x, y))?;
            }
            if style != Some((cell.fg, cell.modifier)) {
                style = Some((cell.fg, cell.modifier));
                text.push_str(&rendition(cell.fg, cell.modifier));
            }
            text.push_str(cell.symbol());
            // Where a wide character ends, the next cell is drawn with a position of its own.
            next = (cell.symbol().is_ascii() || cell.symbol().chars().all(is_drawing)).then_some((x + 1, y));
        }
        self.sequences.extend_from_slice(text.as_bytes());
        self.sequences.extend_from_slice(b"\x1b[0m");
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        queue!(self.sequences, Hide)
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        queue!(self.sequences, Show)
    }

    /// The cursor is hidden, and its position is of no importance.
    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        queue!(self.sequences, MoveTo(x, y))
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    /// Nothing here needs to clear less than everything.
    fn clear_region(&mut self, _: ClearType) -> io::Result<()> {
        queue!(self.sequences, Clear(Erase::All))
    }

    fn size(&self) -> io::Result<Size> {
        let (width, height) = size()?;
        Ok(Size { width, height })
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::default() })
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.sequences.is_empty() {
            return Ok(());
        }
        let mut update = Vec::with_capacity(self.sequences.len() + 32);
        queue!(update, BeginSynchronizedUpdate)?;
        update.append(&mut self.sequences);
        queue!(update, EndSynchronizedUpdate)?;
        write(&update)
    }
}

/// Returns whether a character of the bars, charts and punctuation takes one cell on every terminal.
const fn is_drawing(c: char) -> bool {
    matches!(c, '\u{2580}'..='\u{259f}' | '·' | '–' | '…')
}

/// Returns the sequence for a style (ECMA-48, SGR). Only the first eight colours are used, and no background.
fn rendition(colour: Color, modifier: Modifier) -> String {
    let mut sequence = "\x1b[0".to_owned();
    for (part, code) in [(Modifier::BOLD, 1), (Modifier::DIM, 2), (Modifier::REVERSED, 7)] {
        if modifier.contains(part) {
            // Writing to a string does not fail.
            let _ = write!(sequence, ";{code}");
        }
    }
    sequence.push_str(match colour {
        Color::Red => ";31m",
        Color::Green => ";32m",
        Color::Cyan => ";36m",
        _ => "m",
    });
    sequence
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui_core::buffer::Buffer;
    use ratatui_core::layout::Rect;
    use ratatui_core::style::Style;

    #[test]
    fn only_what_differs_is_sent() {
        let area = Rect::new(0, 0, 8, 2);
        let (empty, mut picture) = (Buffer::empty(area), Buffer::empty(area));
        picture.set_string(1, 0, "ab", Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD));
        picture.set_string(3, 1, "日c", Style::new());
        let mut output = Output::default();
        output.draw(empty.diff(&picture).into_iter()).unwrap();
        let sent = String::from_utf8(output.sequences).unwrap();
        assert_eq!(sent, "\x1b[1;2H\x1b[0;1;36mab\x1b[2;4H\x1b[0m日\x1b[2;6Hc\x1b[0m");
    }
}
