//! The due time of an event: at once, at a time, or after a delay.
//!
//! [`Due`] is read from `deliver_at` or `delay`, which exclude each other. A time in the past means now, and none is
//! later than [`MAX_AHEAD`].

use posthaste_core::time::{Span, Timestamp, corrected_time_of};

/// Maximum time that an event may be scheduled ahead.
pub const MAX_AHEAD: Span = Span::from_days(365);

/// The due time that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// At once.
    Now,
    /// At this time, from `deliver_at`.
    At(Timestamp),
    /// This long after the event was received, from `delay`.
    After(Span),
}

impl Due {
    /// Returns the due time of an event received at `now`, or `None` if it is due at once. That clock is ahead of
    /// the caller's by `lead`.
    ///
    /// A time in the past means now. It does not make the deadline of the delivery earlier.
    pub(super) fn at(self, now: Timestamp, lead: Span) -> Option<Timestamp> {
        let due_at = match self {
            Due::Now => return None,
            Due::At(at) => corrected_time_of(at, now, lead),
            Due::After(delay) => now.after(delay),
        };
        (due_at > now).then_some(due_at)
    }

    /// Returns the text that stands for this in the fingerprint of an event. It contains a delay and not the time that
    /// follows from it, so a request that is repeated later has the same fingerprint.
    pub(super) fn fingerprint(self) -> String {
        match self {
            Due::Now => String::new(),
            Due::At(at) => at.0.to_string(),
            Due::After(delay) => format!("+{}", delay.as_millis()),
        }
    }
}

/// Parses `deliver_at` of an event received at `now`.
pub(super) fn parse_time(text: &str, now: Timestamp) -> Result<Due, String> {
    match text.parse::<Timestamp>() {
        Ok(at) => check_time(at, now),
        Err(error) => Err(error.to_string()),
    }
}

/// Checks the due time of an event received at `now`.
pub(super) fn check_time(at: Timestamp, now: Timestamp) -> Result<Due, String> {
    match at > now.after(MAX_AHEAD) {
        true => Err(format!("must be at most {MAX_AHEAD} ahead")),
        false => Ok(Due::At(at)),
    }
}

/// Parses `delay`.
pub(super) fn parse_delay(text: &str) -> Result<Due, String> {
    match text.parse::<Span>() {
        Ok(delay) if delay > MAX_AHEAD => Err(format!("must be at most {MAX_AHEAD}")),
        Ok(delay) => Ok(Due::After(delay)),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    #[test]
    fn a_past_time_and_no_delay_mean_now() {
        let due = |due: Due| due.at(NOW, Span::ZERO);
        assert_eq!(due(Due::Now), None);
        assert_eq!(due(Due::At(NOW)), None);
        assert_eq!(due(Due::At(Timestamp(0))), None);
        assert_eq!(due(Due::After(Span::ZERO)), None);
        let soon = NOW.after(Span::from_millis(1));
        assert_eq!(due(Due::At(soon)), Some(soon));
        assert_eq!(due(Due::After(Span::from_millis(1))), Some(soon));
        // With a lead of an hour, the caller's clock shows an hour less.
        let hour = Span::from_hours(1);
        let callers_now = Timestamp(NOW.0 - hour.as_millis());
        assert_eq!(Due::At(callers_now).at(NOW, hour), None);
        let at = Due::At(callers_now.after(Span::from_secs(20)));
        assert_eq!(at.at(NOW, hour), Some(NOW.after(Span::from_secs(19))));
        let after = Due::After(Span::from_secs(20));
        assert_eq!(after.at(NOW, hour), Some(NOW.after(Span::from_secs(20))));
    }

    #[test]
    fn an_event_is_scheduled_at_most_a_year_ahead() {
        let last = NOW.after(MAX_AHEAD);
        let too_late = Timestamp(last.0 + 1).to_string();
        assert_eq!(parse_time(&last.to_string(), NOW), Ok(Due::At(last)));
        assert!(parse_time(&too_late, NOW).is_err());
        assert_eq!(parse_delay("365d"), Ok(Due::After(MAX_AHEAD)));
        assert!(parse_delay("365d1ms").is_err_and(|error| error.contains("365d")));
        for text in ["", "5", "-5s", "soon", "2026-11-15T12:00:00Z"] {
            assert!(parse_delay(text).is_err(), "{text}");
        }
    }

    #[test]
    fn fingerprints_of_different_due_times_differ() {
        let all = [
            Due::Now,
            Due::At(Timestamp(5)),
            Due::After(Span::from_millis(5)),
        ];
        let texts = all.map(Due::fingerprint);
        assert_eq!(texts, ["", "5", "+5"]);
    }
}
