//! The state of the screen: the latest statistics, and the operator's choice of the view.
//!
//! All text passes `printable`, because names come from clients, and the tracker may be another version or program.

use std::collections::VecDeque;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::figures::{Figures, View, requests};
use shoal_control::stats::Stats;

/// Maximum number of request rates that the sparkline remembers.
const REQUESTS_MAX: usize = 512;

/// The intervals for `+` and `-`, in seconds.
const INTERVALS_S: [u64; 8] = [1, 2, 5, 10, 30, 60, 300, 3600];

/// Time in seconds within which a reply is expected.
const REPLY_S: u64 = 3;

/// Longest time in seconds before the next request to a tracker that did not reply.
const RETRY_S_MAX: u64 = 10;

/// Number of lines of a page.
const PAGE: usize = 10;

#[derive(Debug, Default)]
pub(super) struct Screen {
    pub(super) url: String,
    pub(super) has_colour: bool,
    pub(super) view: View,
    pub(super) interval_s: u64,
    pub(super) is_paused: bool,
    pub(super) has_help: bool,
    /// Number of lines above the first visible one. Drawing limits it.
    pub(super) scroll: usize,
    /// The number of the row order of each view.
    orders: [usize; View::ALL.len()],
    pub(super) latest: Option<Stats>,
    pub(super) before: Option<Stats>,
    /// Requests per second, latest first.
    pub(super) requests: VecDeque<f64>,
    /// Why the last request got no reply.
    pub(super) error: Option<String>,
    /// The time of the last reply, or of the end of a pause, on the monotonic clock.
    answered_ms: u64,
    /// The time of the last change of the interval. The next reply is awaited from then on.
    paced_ms: u64,
    /// Whether a request is without a reply, and the start of the time to the next request.
    is_asking: bool,
    rested_ms: u64,
}

/// The consequence of a key, in addition to a new picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Quit,
    /// Stop this process until the shell continues it.
    Suspend,
    /// Draw everything again, because something else has written to the terminal.
    Redraw,
}

impl Screen {
    pub(super) fn new(url: &str, has_colour: bool, view: View, interval_s: u64) -> Self {
        Self { url: url.to_owned(), has_colour, view, interval_s, ..Self::default() }
    }

    /// Returns whether to send a request now. The caller must then do so.
    pub(super) fn asks(&mut self, now_ms: u64) -> bool {
        let pace_s = if self.error.is_some() { self.interval_s.min(RETRY_S_MAX) } else { self.interval_s };
        let is_due = now_ms >= self.rested_ms + pace_s * 1000;
        let asks = is_due && !self.is_paused && !self.is_asking;
        self.is_asking |= asks;
        asks
    }

    /// Takes a reply of the tracker, or the reason why there is none.
    pub(super) fn take(&mut self, reply: Result<Stats, String>, now_ms: u64) {
        (self.is_asking, self.rested_ms) = (false, now_ms);
        let stats = match reply {
            Ok(stats) => stats,
            Err(error) => return self.error = Some(error),
        };
        (self.error, self.answered_ms) = (None, now_ms);
        if self.latest.as_ref().is_some_and(|known| known.monotonic_ms == stats.monotonic_ms) {
            return;
        }
        self.before = self.latest.replace(stats);
        if let Some(rate) = self.figures().and_then(|figures| figures.rate(requests)) {
            self.requests.truncate(REQUESTS_MAX - 1);
            self.requests.push_front(rate);
        }
    }

    pub(super) fn figures(&self) -> Option<Figures<'_>> {
        self.latest.as_ref().map(|latest| Figures::new(latest, self.before.as_ref()))
    }

    /// Returns for how many seconds the tracker has not replied, if that is too long.
    pub(super) fn silence_s(&self, now_ms: u64) -> Option<u64> {
        let since_s = |ms: u64| now_ms.saturating_sub(ms) / 1000;
        let is_late = since_s(self.answered_ms.max(self.paced_ms)) > self.interval_s + REPLY_S;
        let is_silent = self.error.is_some() || (is_late && !self.is_paused);
        is_silent.then(|| since_s(self.answered_ms))
    }

    /// Returns the position of the view, and the number of its row order.
    pub(super) fn place(&self) -> (usize, usize) {
        let place = View::ALL.iter().position(|view| *view == self.view).unwrap_or(0);
        (place, self.orders[place])
    }

    /// Applies a key.
    pub(super) fn press(&mut self, key: KeyEvent, now_ms: u64) -> Action {
        let is_silent = self.silence_s(now_ms).is_some();
        let (place, order) = self.place();
        match key.code {
            KeyCode::Char(c) if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return match c {
                    'c' | 'd' => Action::Quit,
                    'z' => Action::Suspend,
                    'l' => Action::Redraw,
                    _ => Action::Nothing,
                };
            }
            KeyCode::Char('q' | 'Q') => return Action::Quit,
            KeyCode::Char('?' | 'h') => self.has_help = !self.has_help,
            KeyCode::Esc => self.has_help = false,
            KeyCode::Tab => self.show(place + 1),
            KeyCode::BackTab => self.show(place + View::ALL.len() - 1),
            KeyCode::Char(digit @ '1'..='4') => self.show(digit as usize - '1' as usize),
            KeyCode::Char('s') => self.orders[place] = (order + 1) % self.view.names().2.len().max(1),
            KeyCode::Char('p' | ' ') => {
                self.is_paused = !self.is_paused;
                if !self.is_paused && !is_silent {
                    self.answered_ms = now_ms;
                }
                // After a pause, a request is sent at once.
                self.rested_ms = 0;
            }
            KeyCode::Char(sign @ ('+' | '=' | '-' | '_')) => {
                let mut intervals = INTERVALS_S.into_iter();
                let next = match sign {
                    '+' | '=' => intervals.find(|other| *other > self.interval_s),
                    _ => intervals.rfind(|other| *other < self.interval_s),
                };
                self.interval_s = next.unwrap_or(self.interval_s);
                // The next reply is awaited from now on. An overdue reply stays overdue.
                self.paced_ms = if is_silent { self.paced_ms } else { now_ms };
                self.rested_ms = now_ms;
            }
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll += 1,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(PAGE),
            KeyCode::PageDown => self.scroll += PAGE,
            KeyCode::Home => self.scroll = 0,
            KeyCode::End => self.scroll = usize::MAX / 2,
            _ => {}
        }
        Action::Nothing
    }

    fn show(&mut self, place: usize) {
        (self.view, self.scroll) = (View::ALL[place % View::ALL.len()], 0);
    }
}
