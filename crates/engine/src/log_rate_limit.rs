//! Rate limit for log lines about internal errors.
//!
//! A proxy that is down or a limit of open files can fail a thousand attempts per second. [`LogLimiter`] lets each
//! cause be logged at once, and then at most once per [`SUPPRESS_FOR`], with the number of suppressed lines.

use posthaste_core::time::{Span, Tick};

/// Time for which a logged cause is suppressed.
const SUPPRESS_FOR: Span = Span::from_secs(30);
/// Maximum number of causes that are tracked. Beyond it, the least recently logged cause is forgotten.
const MAX_CAUSES: usize = 16;

/// The causes that were logged, and when.
#[derive(Debug, Default)]
pub(super) struct LogLimiter {
    causes: Vec<LoggedCause>,
}

#[derive(Debug)]
struct LoggedCause {
    cause: String,
    at: Tick,
    /// Number of lines suppressed since.
    suppressed: u64,
}

impl LogLimiter {
    /// Returns `None` if this cause must not be logged now. Otherwise returns the number of lines suppressed since it
    /// was last logged.
    pub(super) fn admit(&mut self, now: Tick, cause: &str) -> Option<u64> {
        let known = self.causes.iter_mut().find(|logged| logged.cause == cause);
        if let Some(logged) = known {
            if now < logged.at.after(SUPPRESS_FOR) {
                logged.suppressed += 1;
                return None;
            }
            logged.at = now;
            return Some(std::mem::take(&mut logged.suppressed));
        }
        if self.causes.len() == MAX_CAUSES {
            // Forget the least recently logged cause.
            let oldest = (0..MAX_CAUSES).min_by_key(|index| self.causes[*index].at);
            self.causes
                .swap_remove(oldest.expect("the list is not empty"));
        }
        self.causes.push(LoggedCause {
            cause: cause.to_owned(),
            at: now,
            suppressed: 0,
        });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_logged_at_once_and_then_at_intervals() {
        let mut limiter = LogLimiter::default();
        let mut admit = |at, cause| limiter.admit(Tick(at), cause);
        assert_eq!(admit(0, "no files"), Some(0));
        assert_eq!(admit(1, "no files"), None);
        assert_eq!(admit(2, "no proxy"), Some(0));
        assert_eq!(admit(29_999, "no files"), None);
        assert_eq!(admit(30_000, "no files"), Some(2));
        assert_eq!(admit(30_001, "no files"), None);
        assert_eq!(admit(60_000, "no files"), Some(1));
    }

    #[test]
    fn the_number_of_tracked_causes_is_bounded() {
        let mut limiter = LogLimiter::default();
        for number in 0..100 {
            let cause = format!("cause {number}");
            assert_eq!(limiter.admit(Tick(number), &cause), Some(0));
        }
        assert_eq!(limiter.causes.len(), MAX_CAUSES);
        assert_eq!(limiter.admit(Tick(100), "cause 99"), None);
        assert_eq!(limiter.admit(Tick(100), "cause 0"), Some(0));
    }
}
