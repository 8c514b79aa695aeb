//! Bounds of the offset of this machine's clock from the reference clock.
//!
//! The node itself works with the corrected time. Other parts of the machine do not: TLS checks the validity of certificates
//! by the machine's clock, and logs show it. So an offset is reported, and a node with a large one is not ready.

use posthaste_core::time::Span;

use super::code::Code;
use super::problem::Problem;

/// Maximum offset that is not reported. A larger one is logged and raises an alert.
pub const REPORTED_OFFSET: Span = Span::from_secs(1);
/// Maximum offset of a node that is ready.
pub const MAX_CLOCK_OFFSET: Span = Span::from_mins(1);

/// Refuses an offset above [`MAX_CLOCK_OFFSET`].
pub(super) fn check(offset_ms: Option<i64>) -> Result<(), Problem> {
    let offset_ms = offset_ms.unwrap_or(0);
    let by = Span::from_millis(offset_ms.unsigned_abs());
    if by <= MAX_CLOCK_OFFSET {
        return Ok(());
    }
    let direction = if offset_ms > 0 { "ahead of" } else { "behind" };
    let detail = format!(
        "The clock of this machine is {} {direction} the database's clock, more than the allowed {MAX_CLOCK_OFFSET}. Synchronise it, for example with NTP.",
        by.about(),
    );
    Err(Problem::new(Code::ClockOffset, detail).after(Span::from_secs(5)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_offset_in_either_direction_is_refused() {
        for fine in [None, Some(0), Some(60_000), Some(-60_000)] {
            assert!(check(fine).is_ok(), "{fine:?}");
        }
        for (offset_ms, text) in [
            (60_001, "60 s ahead of the database's"),
            (-3_600_000, "60 min behind the database's"),
        ] {
            let detail = check(Some(offset_ms)).expect_err("it is refused").detail;
            assert!(detail.contains(text), "{detail}");
        }
        assert!(check(Some(i64::MIN)).is_err());
    }
}
