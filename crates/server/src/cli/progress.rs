//! Progress bars.
//!
//! They are drawn on standard error and only on a terminal, so that piped output and logs stay clean.

use indicatif::{ProgressBar, ProgressStyle};

/// Creates a bar that ends at `total`. `doing` names what is counted, such as "replayed".
pub fn bar(total: u64, doing: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}, {eta} left")
        .expect("a valid template");
    // Without colours: the bar is clear enough.
    ProgressBar::new(total)
        .with_style(style)
        .with_message(doing)
}
