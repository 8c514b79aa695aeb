//! Keeping house.

use posthaste_core::time::Span;

/// What came of failing what waits for an endpoint, a piece at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// How many were ended.
    pub ended: usize,
    /// More are left.
    pub more: bool,
}

/// How long what is finished is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Where the tenant's limits do not say.
    pub default: Span,
    /// At most so many events are looked at in one step.
    pub step: usize,
}

/// What one step of tidying did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tidied {
    /// Events removed, with all their deliveries and attempts.
    pub events: usize,
    /// There may be more to remove at once. Otherwise an hour is soon enough.
    pub more: bool,
}

/// Figures that are kept up to date and cost nothing to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Deliveries that have not ended.
    pub pending: u64,
    /// Deliveries that have failed and are still kept.
    pub dead_letters: u64,
}
