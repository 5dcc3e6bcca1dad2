//! The state of the screen: the latest statistics, and what the operator has chosen to see of them.

use std::collections::VecDeque;

use super::figures::{View, requests};
use super::keys::Key;
use super::rates::Rates;
use super::table::Look;
use shoal_control::stats::Stats;

/// Maximum number of rates of requests that the sparkline remembers.
const REQUESTS_MAX: usize = 512;

/// The intervals among which `+` and `-` choose, in seconds.
const INTERVALS_S: [u64; 8] = [1, 2, 5, 10, 30, 60, 300, 3600];

/// Time in seconds within which a reply is expected.
const REPLY_S: u64 = 3;

/// Number of lines that a page moves by.
const PAGE: usize = 10;

/// The state of the screen.
#[derive(Debug)]
pub(super) struct Screen {
    /// The URL of the tracker.
    pub(super) url: String,
    pub(super) look: Look,
    pub(super) view: View,
    pub(super) interval_s: u64,
    pub(super) is_paused: bool,
    pub(super) has_help: bool,
    /// Number of lines above the first one that is shown. Drawing limits it.
    pub(super) scroll: usize,
    /// The number of the order of the rows of each view.
    orders: [usize; View::ALL.len()],
    latest: Option<Stats>,
    before: Option<Stats>,
    /// Requests per second, the oldest first.
    pub(super) requests: VecDeque<f64>,
    /// Why the last question has no reply.
    pub(super) error: Option<String>,
    /// When there was a reply, or when the operator went on after a pause, on the monotonic clock.
    answered_ms: u64,
    /// When the interval was changed, from which the next reply is awaited.
    paced_ms: u64,
}

/// The consequence of a key, apart from another picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Quit,
    /// To stop this process until the shell continues it.
    Suspend,
    /// To draw everything again, for when something else has written to the terminal.
    Redraw,
    /// To ask at another interval, or not at all while paused.
    Pace,
}

impl Screen {
    pub(super) fn new(url: String, look: Look, view: View, interval_s: u64) -> Self {
        Self {
            url,
            look,
            view,
            interval_s,
            is_paused: false,
            has_help: false,
            scroll: 0,
            orders: [0; View::ALL.len()],
            latest: None,
            before: None,
            requests: VecDeque::new(),
            error: None,
            answered_ms: 0,
            paced_ms: 0,
        }
    }

    /// Takes a reply of the tracker, or the reason why there is none.
    pub(super) fn take(&mut self, reply: Result<Stats, String>, now_ms: u64) {
        match reply {
            Err(error) => self.error = Some(error),
            Ok(stats) => {
                (self.error, self.answered_ms) = (None, now_ms);
                let known = self.latest.as_ref();
                if known.is_some_and(|known| known.monotonic_ms == stats.monotonic_ms) {
                    return;
                }
                self.before = self.latest.replace(stats);
                if let Some(rate) = self.rates().map(|rates| rates.of(requests)) {
                    if self.requests.len() == REQUESTS_MAX {
                        self.requests.pop_front();
                    }
                    self.requests.push_back(rate);
                }
            }
        }
    }

    /// Returns the latest statistics.
    pub(super) fn stats(&self) -> Option<&Stats> {
        self.latest.as_ref()
    }

    /// Returns for how many seconds the tracker has not replied, if that is longer than it should be.
    pub(super) fn silence_s(&self, now_ms: u64) -> Option<u64> {
        let since_s = |ms: u64| now_ms.saturating_sub(ms) / 1000;
        let silence_s = since_s(self.answered_ms);
        let is_long =
            !self.is_paused && since_s(self.answered_ms.max(self.paced_ms)) > self.interval_s + REPLY_S;
        (self.error.is_some() || is_long).then_some(silence_s)
    }

    /// Returns the rates of the latest statistics.
    pub(super) fn rates(&self) -> Option<Rates<'_>> {
        Rates::between(self.before.as_ref()?, self.latest.as_ref()?)
    }

    /// Returns the number of the order of the rows of the view.
    pub(super) fn order(&self) -> usize {
        self.orders[self.place()]
    }

    /// Applies a key.
    pub(super) fn press(&mut self, key: Key, now_ms: u64) -> Action {
        let is_silent = self.silence_s(now_ms).is_some();
        match key {
            Key::Char('q' | 'Q') | Key::Ctrl('c' | 'd') => return Action::Quit,
            Key::Ctrl('z') => return Action::Suspend,
            Key::Ctrl('l') => return Action::Redraw,
            Key::Char('?' | 'h') => self.has_help = !self.has_help,
            Key::Escape => self.has_help = false,
            Key::Tab => self.show(self.place() + 1),
            Key::BackTab => self.show(self.place() + View::ALL.len() - 1),
            Key::Char(digit @ '1'..='4') => self.show(digit as usize - '1' as usize),
            Key::Char('s') => {
                let order =
                    &mut self.orders[View::ALL.iter().position(|view| *view == self.view).unwrap_or(0)];
                *order = (*order + 1) % self.view.orders().len().max(1);
            }
            Key::Char('p' | ' ') => {
                self.is_paused = !self.is_paused;
                if !self.is_paused && !is_silent {
                    self.answered_ms = now_ms;
                }
                return Action::Pace;
            }
            Key::Char('+' | '=') => {
                let longer = INTERVALS_S.into_iter().find(|interval_s| *interval_s > self.interval_s);
                self.interval_s = longer.unwrap_or(self.interval_s);
                return self.set_pace(is_silent, now_ms);
            }
            Key::Char('-' | '_') => {
                let shorter = INTERVALS_S.into_iter().rev().find(|interval_s| *interval_s < self.interval_s);
                self.interval_s = shorter.unwrap_or(self.interval_s);
                return self.set_pace(is_silent, now_ms);
            }
            Key::Up | Key::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            Key::Down | Key::Char('j') => self.scroll += 1,
            Key::PageUp => self.scroll = self.scroll.saturating_sub(PAGE),
            Key::PageDown => self.scroll += PAGE,
            Key::Home => self.scroll = 0,
            Key::End => self.scroll = usize::MAX / 2,
            Key::Char(_) | Key::Ctrl(_) => {}
        }
        Action::Nothing
    }

    /// Waits for a reply from now on, after the interval has changed. If one is overdue, it stays so.
    fn set_pace(&mut self, is_silent: bool, now_ms: u64) -> Action {
        if !is_silent {
            self.paced_ms = now_ms;
        }
        Action::Pace
    }

    fn place(&self) -> usize {
        View::ALL.iter().position(|view| *view == self.view).unwrap_or(0)
    }

    fn show(&mut self, place: usize) {
        self.view = View::ALL[place % View::ALL.len()];
        self.scroll = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen() -> Screen {
        Screen::new("http://localhost".to_owned(), Look::Mono, View::Overview, 3)
    }

    #[test]
    fn keys_change_the_view_the_order_and_the_pace() {
        let mut screen = screen();
        screen.press(Key::Tab, 0);
        assert_eq!(screen.view, View::Clients);
        screen.press(Key::Char('s'), 0);
        screen.press(Key::BackTab, 0);
        assert_eq!((screen.view, screen.order()), (View::Overview, 0));
        screen.press(Key::BackTab, 0);
        assert_eq!(screen.view, View::Lists);
        screen.press(Key::Char('s'), 0);
        screen.press(Key::Char('2'), 0);
        assert_eq!((screen.view, screen.order()), (View::Clients, 1));
        screen.press(Key::Char('s'), 0);
        assert_eq!(screen.order(), 0);
        for (key, interval_s) in [('+', 5), ('+', 10), ('-', 5), ('-', 2), ('-', 1), ('-', 1)] {
            assert_eq!(screen.press(Key::Char(key), 0), Action::Pace);
            assert_eq!(screen.interval_s, interval_s);
        }
        assert_eq!((screen.press(Key::Char('p'), 0), screen.is_paused), (Action::Pace, true));
        assert_eq!(screen.press(Key::Ctrl('c'), 0), Action::Quit);
        assert_eq!(screen.press(Key::Ctrl('z'), 0), Action::Suspend);
    }

    #[test]
    fn keys_do_not_shorten_the_silence_of_a_tracker() {
        let mut screen = screen();
        screen.take(Ok(Stats::default()), 1000);
        screen.take(Err("gone".to_owned()), 17_000);
        for key in ['+', '-', 'p', 'p'] {
            screen.press(Key::Char(key), 23_000);
            assert_eq!(screen.silence_s(23_000), Some(22), "{key}");
        }
        screen.take(Ok(Stats::default()), 24_000);
        screen.press(Key::Char('p'), 25_000);
        screen.press(Key::Char('p'), 100_000);
        assert_eq!((screen.silence_s(101_000), screen.silence_s(107_000)), (None, Some(7)));
        screen.press(Key::Char('-'), 103_000);
        assert_eq!((screen.silence_s(107_000), screen.silence_s(109_000)), (None, Some(9)));
        screen.press(Key::Char('+'), 109_000);
        assert_eq!(screen.silence_s(109_000), Some(9));
    }

    #[test]
    fn a_fault_lasts_until_there_are_statistics() {
        let mut screen = screen();
        let stats = |monotonic_ms| Stats { monotonic_ms, ..Stats::default() };
        screen.take(Ok(stats(1000)), 1000);
        assert!(screen.rates().is_none());
        assert_eq!((screen.silence_s(7000), screen.silence_s(8000)), (None, Some(7)));
        screen.take(Err("gone".to_owned()), 2000);
        screen.take(Err("still gone".to_owned()), 3000);
        assert_eq!((screen.error.as_deref(), screen.silence_s(3000)), (Some("still gone"), Some(2)));
        screen.take(Ok(stats(1000)), 4000);
        assert!(screen.silence_s(4000).is_none() && screen.rates().is_none());
        screen.take(Ok(stats(3000)), 4000);
        assert_eq!(screen.rates().map(|rates| rates.elapsed_s), Some(2.0));
        (0..1000).for_each(|second| screen.take(Ok(stats(5000 + second)), 5000));
        assert_eq!(screen.requests.len(), REQUESTS_MAX);
    }
}
