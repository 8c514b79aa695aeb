//! Points in time and durations, as types that cannot be mixed up.
//!
//! - [`Timestamp`] is a wall-clock time: it is shown to users, stored and signed. An administrator or NTP may move
//!   the wall clock by a day in either direction.
//! - [`Tick`] is a reading of a monotonic clock, which only moves forward while the process runs. Everything that
//!   protects a receiver (rates, breakers, pauses) uses ticks. A jump of the wall clock can therefore neither open
//!   a gate early nor keep it closed for a day.
//! - [`ClockSync`] derives the wall-clock time from ticks and a reference clock, so that all nodes agree on it.
//! - [`Span`] is a duration. It is parsed and printed as users write it: `"250ms"`, `"3d"`.
//!
//! Times and durations count whole milliseconds and saturate instead of overflowing.

mod clock_sync;
mod month;
mod rfc3339;
mod span;

pub use clock_sync::{
    CLOCK_SAVE_INTERVAL, ClockJump, ClockReading, ClockSync, ClockUpdate, CorrectedTime,
    MAX_CLOCK_LEAD, StoredClock, corrected_time_of,
};
pub use month::Month;
pub use rfc3339::TimestampError;
pub use span::{MAX_SPAN, Span, SpanError};

use serde::{Deserialize, Serialize};

/// A wall-clock time: milliseconds since the Unix epoch.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Returns the time `span` after this one.
    pub fn after(self, span: Span) -> Timestamp {
        Timestamp(self.0.saturating_add(span.as_millis()))
    }

    /// Returns the duration since `earlier`; zero if it is in the future.
    pub fn since(self, earlier: Timestamp) -> Span {
        Span::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// A reading of the monotonic clock: milliseconds since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u64);

impl Tick {
    /// The start of the process.
    pub const START: Tick = Tick(0);

    /// Returns the tick `span` after this one.
    pub fn after(self, span: Span) -> Tick {
        Tick(self.0.saturating_add(span.as_millis()))
    }

    /// Returns the duration since `earlier`; zero if it is in the future.
    pub fn since(self, earlier: Tick) -> Span {
        Span::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// A reading of both clocks at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The wall-clock time.
    pub wall: Timestamp,
    /// The reading of the monotonic clock.
    pub tick: Tick,
}

impl Now {
    /// Returns the tick at which the wall clock will show `at`, if the wall clock is not changed.
    pub fn tick_at(&self, at: Timestamp) -> Tick {
        self.tick.after(at.since(self.wall))
    }

    /// Returns the wall-clock time at `tick`, if the wall clock is not changed.
    pub fn wall_at(&self, tick: Tick) -> Timestamp {
        self.wall.after(tick.since(self.tick))
    }
}
