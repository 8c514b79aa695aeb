//! Times. What is written does not depend on when it is read, so that a section changes only when what it
//! tells does; the script adds how long ago that was, or how long until.

use maud::{Markup, html};

use crate::picture::words;

/// A time of the API's, such as `2026-01-02T03:04:05.678Z`: day, hours, minutes and seconds.
pub(in crate::dashboard) fn time(text: &str) -> Markup {
    let plain = text.split('.').next().unwrap_or(text);
    let plain = plain.trim_end_matches('Z').replace('T', " ");
    html! { time datetime=(text) { (plain) } }
}

/// A time that is told by a clock which runs beside the wall's: its milliseconds come and go, and would
/// make a page change by itself.
pub(in crate::dashboard) fn to_the_second(at: &str) -> Markup {
    let whole = at.split('.').next().unwrap_or(at).trim_end_matches('Z');
    time(&format!("{whole}Z"))
}

/// How long something takes, in words.
pub(in crate::dashboard) fn duration(ms: u64) -> String {
    words::duration(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_for_people_and_for_machines() {
        let shown = time("2026-01-02T03:04:05.678Z").0;
        let machine = "<time datetime=\"2026-01-02T03:04:05.678Z\">";
        assert_eq!(shown, format!("{machine}2026-01-02 03:04:05</time>"));
    }
}
