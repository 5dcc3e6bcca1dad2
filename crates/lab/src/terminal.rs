//! Standard output and standard error, whose readers may leave early, and the progress of a run.

use std::cell::Cell;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use shoal_load::Progress;

/// Writes `text` to stdout. A reader that has left, such as `head`, is no error: the exit code is about the tracker.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// Writes a line to standard error and ignores failures, so that hours of measurements do not end with their reader.
pub(crate) fn note(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// The columns that text for a reader has: those of a terminal that was not widened.
pub(crate) const COLUMNS: usize = 80;

/// Wraps text to [`COLUMNS`]. Lines after the first one begin with `indent` spaces. A longer word stays whole, so that it can
/// be copied.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    let (mut out, mut width) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > COLUMNS {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            width = indent;
        } else if width > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += length;
    }
    out
}

/// Says that no `what` has this name, and which have a similar one.
pub(crate) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let lower = name.to_lowercase();
    let is_near = |known: &&&str| !lower.is_empty() && (known.contains(&lower) || lower.contains(**known));
    let near: Vec<&str> = known.iter().filter(is_near).copied().collect();
    let names = known.join(", ");
    if near.is_empty() {
        return format!("there is no {what} {name:?}: use {names}");
    }
    format!("there is no {what} {name:?}: did you mean {}? There are {names}", near.join(", "))
}

/// The progress of a part of a run on standard error: a live line on a terminal, and a plain line every
/// [`LINE_INTERVAL`] elsewhere.
pub(crate) enum ProgressLine {
    Live(ProgressBar),
    Plain {
        name: String,
        /// The time of the run at which the next line is due.
        due: Cell<Duration>,
    },
}

/// The length of the bar. It counts in thousandths.
const STEPS: u64 = 1000;

const LINE_INTERVAL: Duration = Duration::from_secs(5);

impl ProgressLine {
    pub(crate) fn new(name: &str, on_terminal: bool) -> Self {
        if !on_terminal {
            return Self::Plain { name: name.to_owned(), due: Cell::new(LINE_INTERVAL) };
        }
        let style = ProgressStyle::with_template("{prefix:6} [{bar:24}] {msg}");
        let style = style.expect("the template is valid").progress_chars("=> ");
        Self::Live(ProgressBar::new(STEPS).with_style(style).with_prefix(name.to_owned()))
    }

    pub(crate) fn show(&self, progress: &Progress) {
        let share = progress.done_share.unwrap_or(0.0);
        match self {
            Self::Live(bar) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a share of a thousand"
                )]
                bar.set_position((share * 1000.0) as u64);
                bar.set_message(message(progress));
            }
            Self::Plain { name, due } if progress.elapsed >= due.get() => {
                due.set(progress.elapsed + LINE_INTERVAL);
                note(&format!("{name}: {:.0} %, {}", 100.0 * share, message(progress)));
            }
            Self::Plain { .. } => {}
        }
    }

    pub(crate) fn end(self) {
        if let Self::Live(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn message(progress: &Progress) -> String {
    let Progress { responses_per_s, p50_us, p99_us, lost, errors, wrong, .. } = progress;
    let mut message = format!("{responses_per_s:.0} replies/s, p50 {p50_us:.0} µs, p99 {p99_us:.0} µs");
    for (name, count) in [("lost", lost), ("errors", errors), ("wrong", wrong)] {
        if *count > 0 {
            message += &format!(", {count} {name}");
        }
    }
    let left_s = progress
        .done_share
        .filter(|share| *share > 0.0)
        .map(|share| progress.elapsed.as_secs_f64() * (1.0 - share) / share);
    match left_s {
        Some(left_s) if left_s >= 120.0 => message += &format!(", {:.0} minutes left", left_s / 60.0),
        Some(left_s) => message += &format!(", {left_s:.0} s left"),
        None => {}
    }
    message
}

/// Returns a number with what it counts.
pub(crate) fn counted<N: Display + PartialEq + From<u8>>(number: N, one: &str, many: &str) -> String {
    let counted = if number == N::from(1) { one } else { many };
    format!("{number} {counted}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_name_gets_a_suggestion() {
        let known = ["shoal-mmsg", "shoal-uring", "echo-mmsg"];
        let text = unknown("tracker", "Shoal", &known);
        assert!(text.contains("did you mean shoal-mmsg, shoal-uring?"), "{text}");
        assert!(unknown("tracker", "echo-mmsg-2", &known).contains("did you mean echo-mmsg?"));
        assert_eq!(unknown("tracker", "x", &known[..1]), "there is no tracker \"x\": use shoal-mmsg");
    }

    #[test]
    fn progress_tells_the_time_that_is_left() {
        let at = |done_share, elapsed_s| {
            message(&Progress {
                done_share,
                elapsed: Duration::from_secs(elapsed_s),
                responses_per_s: 3400.0,
                lost: 2,
                ..Progress::default()
            })
        };
        assert_eq!(at(Some(0.1), 60), "3400 replies/s, p50 0 µs, p99 0 µs, 2 lost, 9 minutes left");
        assert!(at(Some(0.5), 7).ends_with(", 7 s left"));
        // Nothing is known of a fill without a reply, nor of a load without an end.
        assert!(at(Some(0.0), 7).ends_with("2 lost") && at(None, 7).ends_with("2 lost"));
    }

    #[test]
    fn text_is_wrapped_to_the_columns_of_a_terminal() {
        let text = "word ".repeat(40);
        let lines: Vec<String> = wrapped(&text, 4).lines().map(str::to_owned).collect();
        assert!(lines.len() == 3 && lines.iter().all(|line| line.len() <= COLUMNS), "{lines:?}");
        assert!(lines[1].starts_with("    word"), "{lines:?}");
        let path = format!("/{}", "x".repeat(100));
        assert_eq!(wrapped(&path, 2), path);
    }
}
