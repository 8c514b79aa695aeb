//! A progress bar on standard error, if that is a terminal.
//!
//! [`Progress`] shows one part of a scenario. It is updated rarely, because drawing takes processor time from the
//! measurement.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::interval;

/// Interval between updates. Kept long, because drawing takes processor time from the measurement.
const UPDATE_INTERVAL: Duration = Duration::from_millis(200);

/// The progress bar of one part of a scenario. It disappears when dropped.
pub struct Progress(ProgressBar);

impl Progress {
    /// Creates a bar that ends at `total`.
    pub fn new(what: &str, total: u64) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(5));
        let style = ProgressStyle::with_template("{msg:28} {bar:30} {pos:>9}/{len} {eta:>4}");
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("█▌ "));
        }
        bar.set_message(what.to_owned());
        Progress(bar)
    }

    /// Sets the position.
    pub fn set(&self, position: u64) {
        self.0.set_position(position);
    }

    /// Runs a future and updates the bar from `position` until it is done.
    pub async fn track<T>(&self, work: impl Future<Output = T>, position: impl Fn() -> u64) -> T {
        let mut updates = interval(UPDATE_INTERVAL);
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                result = &mut work => return result,
                _ = updates.tick() => self.set(position()),
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
