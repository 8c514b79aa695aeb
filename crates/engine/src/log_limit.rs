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
    told: Vec<LoggedCause>,
}

#[derive(Debug)]
struct LoggedCause {
    cause: String,
    at: Tick,
    /// Number of lines suppressed since.
    kept_back: u64,
}

impl LogLimiter {
    /// Returns `None` if this cause must not be logged now. Otherwise returns the number of lines suppressed since it
    /// was last logged.
    pub(super) fn tell(&mut self, now: Tick, cause: &str) -> Option<u64> {
        let known = self.told.iter_mut().find(|told| told.cause == cause);
        if let Some(told) = known {
            if now < told.at.after(SUPPRESS_FOR) {
                told.kept_back += 1;
                return None;
            }
            told.at = now;
            return Some(std::mem::take(&mut told.kept_back));
        }
        if self.told.len() == MAX_CAUSES {
            // Forget the least recently logged cause.
            let oldest = (0..MAX_CAUSES).min_by_key(|place| self.told[*place].at);
            self.told.swap_remove(oldest.expect("there are some"));
        }
        self.told.push(LoggedCause {
            cause: cause.to_owned(),
            at: now,
            kept_back: 0,
        });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_at_once_and_then_once_in_a_while() {
        let mut complaints = LogLimiter::default();
        let mut tell = |at, cause| complaints.tell(Tick(at), cause);
        assert_eq!(tell(0, "no files"), Some(0));
        assert_eq!(tell(1, "no files"), None);
        assert_eq!(tell(2, "no proxy"), Some(0));
        assert_eq!(tell(29_999, "no files"), None);
        assert_eq!(tell(30_000, "no files"), Some(2));
        assert_eq!(tell(30_001, "no files"), None);
        assert_eq!(tell(60_000, "no files"), Some(1));
    }

    #[test]
    fn few_causes_are_remembered() {
        let mut complaints = LogLimiter::default();
        for number in 0..100 {
            let cause = format!("cause {number}");
            assert_eq!(complaints.tell(Tick(number), &cause), Some(0));
        }
        assert_eq!(complaints.told.len(), MAX_CAUSES);
        assert_eq!(complaints.tell(Tick(100), "cause 99"), None);
        assert_eq!(complaints.tell(Tick(100), "cause 0"), Some(0));
    }
}
