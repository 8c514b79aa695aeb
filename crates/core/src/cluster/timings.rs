//! How long a lease is, and what follows from it.

use crate::time::Span;

/// The shortest lease: a sixth of it is what clocks and a busy machine may be late.
pub const SHORTEST_LEASE: Span = Span::from_millis(1_200);
/// The longest lease: for so long a dead node's endpoints are sent nothing.
pub const LONGEST_LEASE: Span = Span::from_mins(5);

/// A lease that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lease of {0} is out of bounds: between {SHORTEST_LEASE} and {LONGEST_LEASE}")]
pub struct TimingsError(pub Span);

/// What follows from the length of a lease.
///
/// ```text
///  0      1/6             4/6        5/6        6/6
///  beat ▸ next beat ▸ …   begin_by   end_by     others take it for dead
///  └── counted from before the beat was sent    └── counted from after it was seen
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// After how long without a beat others take this node for dead.
    pub lease: Span,
    /// How often it beats.
    pub beat_every: Span,
    /// For how long after a beat it begins attempts.
    pub begin_within: Span,
    /// When it cuts off what is under way.
    pub end_within: Span,
    /// After how long without a look it knows nothing of the others' silence: it was deaf itself.
    pub deaf_after: Span,
    /// How soon it tries again what failed.
    pub try_again: Span,
    /// How long at least between two looks, however often the bell rings.
    pub look_pause: Span,
}

impl Timings {
    /// What follows from a lease.
    pub fn of(lease: Span) -> Result<Timings, TimingsError> {
        if lease < SHORTEST_LEASE || lease > LONGEST_LEASE {
            return Err(TimingsError(lease));
        }
        let part = |numerator: u64, denominator: u64| {
            Span::from_millis(lease.as_millis() * numerator / denominator)
        };
        Ok(Timings {
            lease,
            beat_every: part(1, 6),
            begin_within: part(4, 6),
            end_within: part(5, 6),
            deaf_after: part(1, 2),
            try_again: part(1, 24),
            look_pause: part(1, 60),
        })
    }
}

impl Default for Timings {
    fn default() -> Timings {
        Timings::of(Span::from_secs(6)).expect("within bounds")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_lease_is_six_seconds() {
        let timings = Timings::default();
        assert_eq!(timings.beat_every, Span::from_secs(1));
        assert_eq!(timings.begin_within, Span::from_secs(4));
        assert_eq!(timings.end_within, Span::from_secs(5));
        assert_eq!(timings.look_pause, Span::from_millis(100));
    }

    #[test]
    fn a_lease_has_bounds() {
        let short = Span::from_millis(1_199);
        assert_eq!(Timings::of(short), Err(TimingsError(short)));
        assert!(Timings::of(SHORTEST_LEASE).is_ok());
        assert!(Timings::of(LONGEST_LEASE).is_ok());
        assert!(Timings::of(LONGEST_LEASE.plus(Span::from_millis(1))).is_err());
    }
}
