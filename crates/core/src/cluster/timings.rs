//! Lease duration and the intervals derived from it.
//!
//! [`Timings::of`] derives all intervals from the lease: heartbeats every sixth of it, no new attempts after four
//! sixths without a renewal, all attempts aborted after five sixths. The last sixth is the margin for clocks that
//! run at different speeds. A lease outside [`SHORTEST_LEASE`] to [`LONGEST_LEASE`] is refused with
//! [`TimingsError`].

use crate::time::Span;

/// Minimum lease. A sixth of it (200 ms) is the margin for clock differences and delays of a busy machine.
pub const SHORTEST_LEASE: Span = Span::from_millis(1_200);
/// Maximum lease. For this long, nothing is sent to the endpoints of a dead node.
pub const LONGEST_LEASE: Span = Span::from_mins(5);

/// The lease is out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lease of {0} is out of bounds: between {SHORTEST_LEASE} and {LONGEST_LEASE}")]
pub struct TimingsError(pub Span);

/// The lease and the intervals derived from it.
///
/// ```text
///  0           1/6              4/6        5/6        6/6
///  heartbeat ▸ next one ▸ …     begin_by   end_by     others declare the node dead
///  └── counted from before the heartbeat was sent     └── counted from after it was seen
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// Time without a heartbeat after which other nodes declare this node dead.
    pub lease: Span,
    /// Interval between two heartbeats.
    pub heartbeat_interval: Span,
    /// Time after a heartbeat during which the node starts attempts.
    pub begin_within: Span,
    /// Time after a heartbeat at which the node aborts attempts in flight.
    pub end_within: Span,
    /// If this node has not read the table for this long, it restarts the silence timers of the other nodes: it
    /// cannot know what it missed.
    pub deaf_after: Span,
    /// Delay before a failed request is retried.
    pub try_again: Span,
    /// Minimum interval between a heartbeat and the next one, if a notification triggers it early.
    pub look_pause: Span,
}

impl Timings {
    /// Derives the intervals from a lease.
    pub fn of(lease: Span) -> Result<Timings, TimingsError> {
        if lease < SHORTEST_LEASE || lease > LONGEST_LEASE {
            return Err(TimingsError(lease));
        }
        let part = |numerator: u64, denominator: u64| {
            Span::from_millis(lease.as_millis() * numerator / denominator)
        };
        Ok(Timings {
            lease,
            heartbeat_interval: part(1, 6),
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
        Timings::of(Span::from_secs(6)).expect("the default lease is within the bounds")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_lease_is_six_seconds() {
        let timings = Timings::default();
        assert_eq!(timings.heartbeat_interval, Span::from_secs(1));
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
