//! Times and durations. The rendered text does not depend on the current time, so that a live section changes only
//! when its data changes. The script adds relative times, such as "5 minutes ago".

use maud::{Markup, html};
use posthaste_charts::format;
use posthaste_core::time::Span;

/// An API time, such as `2026-01-02T03:04:05.678Z`, shown as date, hours, minutes and seconds.
pub(crate) fn time(text: &str) -> Markup {
    let plain = text.split('.').next().unwrap_or(text);
    let plain = plain.trim_end_matches('Z').replace('T', " ");
    html! { time datetime=(text) { (plain) } }
}

/// An API time with its milliseconds, for attempts: several can be made within a second.
pub(crate) fn time_with_ms(text: &str) -> Markup {
    let plain = text.trim_end_matches('Z').replace('T', " ");
    html! { time datetime=(text) { (plain) } }
}

/// A time that the node computes from its monotonic clock. Its milliseconds differ slightly each time and would
/// change the page at every rendering, so they are cut off.
pub(crate) fn to_the_second(at: &str) -> Markup {
    let seconds = at.split('.').next().unwrap_or(at).trim_end_matches('Z');
    time(&format!("{seconds}Z"))
}

/// A measured duration with at most two significant digits, such as `13 ms` or `6 min`.
pub(crate) fn rounded_duration(ms: u64) -> String {
    Span::from_millis(ms).about()
}

/// A duration in its two largest units, such as `42m 40s`.
pub(crate) fn duration(ms: u64) -> String {
    format::duration(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_rendered_as_text_and_as_attribute() {
        let markup = time("2026-01-02T03:04:05.678Z").0;
        let tag = "<time datetime=\"2026-01-02T03:04:05.678Z\">";
        assert_eq!(markup, format!("{tag}2026-01-02 03:04:05</time>"));
        let exact = time_with_ms("2026-01-02T03:04:05.678Z").0;
        assert_eq!(exact, format!("{tag}2026-01-02 03:04:05.678</time>"));
    }
}
