//! Results of maintenance: [`SweepResult`], [`RetentionStepResult`] and the totals in [`Counts`].

/// The result of one step of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepResult {
    /// Number of deliveries that were failed.
    pub ended: usize,
    /// True if more deliveries are waiting.
    pub more: bool,
}

/// The result of one step of a retention run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionStepResult {
    /// Events deleted, with all their deliveries and attempts.
    pub events: usize,
    /// Events whose payload was deleted, and nothing else.
    pub payloads: usize,
    /// Deliveries whose attempts but the last were deleted, and which remain.
    pub attempts: usize,
    /// True if the next step should follow immediately. Otherwise the next run in an hour is soon enough.
    pub more: bool,
}

/// Totals that the store keeps up to date, so that reading them costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Deliveries that have not ended.
    pub pending: u64,
    /// Dead letters that are still stored.
    pub dead_letters: u64,
}
