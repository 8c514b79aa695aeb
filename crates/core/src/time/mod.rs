//! Time as an argument, in three types that cannot be mixed up.
//!
//! - [`Timestamp`] is the wall clock: what people see, what is stored, what is signed. An
//!   administrator or NTP may move it by a day in either direction.
//! - [`Tick`] is a steady clock that only runs forward while the process lives. Whatever protects
//!   a receiver (rates, breakers, holds) counts in ticks, so that a jump of the wall clock can
//!   neither open a gate early nor keep it shut for a day.
//! - [`Span`] is a length of time, and reads and prints as people write it: `"250ms"`, `"3d"`.
//!
//! All three count whole milliseconds and saturate instead of overflowing.

mod month;
mod rfc3339;
mod span;

pub use month::Month;
pub use rfc3339::TimestampError;
pub use span::{MAX_SPAN, Span, SpanError};

use serde::{Deserialize, Serialize};

/// A point on the wall clock: milliseconds since the Unix epoch.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The time `span` after this one.
    pub fn after(self, span: Span) -> Timestamp {
        Timestamp(self.0.saturating_add(span.as_millis()))
    }

    /// How long ago `earlier` was; nothing if it lies ahead.
    pub fn since(self, earlier: Timestamp) -> Span {
        Span::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// A point on the steady clock: milliseconds since this process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub u64);

impl Tick {
    /// The moment the process began.
    pub const START: Tick = Tick(0);

    /// The tick `span` after this one.
    pub fn after(self, span: Span) -> Tick {
        Tick(self.0.saturating_add(span.as_millis()))
    }

    /// How long ago `earlier` was; nothing if it lies ahead.
    pub fn since(self, earlier: Tick) -> Span {
        Span::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// What the wall clock says.
    pub wall: Timestamp,
    /// What the steady clock says.
    pub tick: Tick,
}

impl Now {
    /// The tick at which the wall clock will show `at`, if nobody moves it.
    pub fn tick_at(&self, at: Timestamp) -> Tick {
        self.tick.after(at.since(self.wall))
    }

    /// What the wall clock will show at `tick`, if nobody moves it.
    pub fn wall_at(&self, tick: Tick) -> Timestamp {
        self.wall.after(tick.since(self.tick))
    }
}
