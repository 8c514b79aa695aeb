//! Keeping house.

/// What came of failing what waits for an endpoint, a piece at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// How many were ended.
    pub ended: usize,
    /// More are left.
    pub more: bool,
}

/// What one step of tidying did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tidied {
    /// Events removed, with all their deliveries and attempts.
    pub events: usize,
    /// Events of which what they carry was removed, and nothing else.
    pub payloads: usize,
    /// Deliveries whose attempts were removed but for the last, and which stay.
    pub attempts: usize,
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
