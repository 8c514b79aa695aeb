//! Bars for work that takes a while.
//!
//! They are drawn on standard error, and only where that is a terminal: what is piped or logged stays
//! clean.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar that fills up to `total`. `doing` says what is counted, such as "replayed".
pub fn bar(total: u64, doing: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}, {eta} to go")
        .expect("a valid template");
    // Without colours, as the bar says it all.
    ProgressBar::new(total)
        .with_style(style)
        .with_message(doing)
}
