//! The line that shows how a run goes, where somebody looks.

use indicatif::{ProgressBar, ProgressStyle};
use shoal_load::Progress;

/// One line on a terminal; nothing elsewhere.
pub(crate) struct Line(Option<ProgressBar>);

/// The bar counts in thousandths.
const STEPS: u64 = 1000;

impl Line {
    pub(crate) fn new(name: &str, on_terminal: bool) -> Self {
        let bar = on_terminal.then(|| {
            let style = ProgressStyle::with_template("{prefix:6} [{bar:24}] {msg}");
            let style = style.expect("the template is valid").progress_chars("=> ");
            ProgressBar::new(STEPS).with_style(style).with_prefix(name.to_owned())
        });
        Self(bar)
    }

    pub(crate) fn show(&self, progress: &Progress) {
        let Some(bar) = &self.0 else { return };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a thousand")]
        let steps = (progress.done_share.unwrap_or(0.0) * 1000.0) as u64;
        bar.set_position(steps);
        let Progress { responses_per_s, p50_us, p99_us, lost, errors, wrong, .. } = progress;
        let mut message = format!("{responses_per_s:.0} replies/s, p50 {p50_us:.0} µs, p99 {p99_us:.0} µs");
        for (name, count) in [("lost", lost), ("errors", errors), ("wrong", wrong)] {
            if *count > 0 {
                message += &format!(", {count} {name}");
            }
        }
        bar.set_message(message);
    }

    pub(crate) fn end(self) {
        if let Some(bar) = self.0 {
            bar.finish_and_clear();
        }
    }
}
