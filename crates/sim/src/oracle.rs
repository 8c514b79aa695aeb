//! The oracles: what must be true whatever happens.

/// A promise that can be seen broken. The letters are those of the design's promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oracle {
    /// A: every accepted delivery ends, in bounded time once the world is well.
    EverythingEnds,
    /// B: no round has more attempts than the policy allows.
    AttemptsWithinPolicy,
    /// B: no attempt is counted that did not come back from a receiver.
    OurFaultsSpendNothing,
    /// B: no retry is set beyond the deadline.
    NoRetryBeyondTheDeadline,
    /// C: what was sent is recorded, unless a fault excuses it; so nothing is sent twice without one.
    EveryResultIsKept,
    /// C: a delivery is never under way twice at once.
    OneAtATime,
    /// C: nothing is left over when the process was stopped properly.
    CleanStop,
    /// D: no attempt begins after a pause, disable or delete was answered.
    NothingAfterShut,
    /// D: no attempt begins after a cancel was answered.
    NothingAfterCancel,
    /// E: no attempt begins after the delivery ended.
    NothingAfterTheEnd,
    /// E: what has ended changes only by a replay.
    TerminalStays,
    /// G: an endpoint that is well does not feel the others.
    OthersUndisturbed,
    /// H: never more in flight than the endpoint allows.
    WithinTheWindow,
    /// H: never more in flight than the tenant may have, over all its endpoints.
    WithinTheTenant,
    /// H: never more in any second than the endpoint allows.
    WithinTheRate,
    /// H: in the second it recovers, no saved-up burst.
    GentleRecovery,
    /// H: a tripped breaker lets one probe through at a time, and nothing else.
    OneProbe,
    /// H: an endpoint that asked to be left alone is.
    RetryAfterIsHonoured,
    /// H: what failed together does not come back together.
    NoWave,
    /// No retry comes before its time.
    NotEarly,
    /// Deliveries of one ordering key go one after the other.
    InOrder,
    /// I: the same key makes one event.
    OneEventPerKey,
}

impl Oracle {
    /// Every oracle there is.
    pub const ALL: [Oracle; 22] = [
        Oracle::EverythingEnds,
        Oracle::AttemptsWithinPolicy,
        Oracle::OurFaultsSpendNothing,
        Oracle::NoRetryBeyondTheDeadline,
        Oracle::EveryResultIsKept,
        Oracle::OneAtATime,
        Oracle::CleanStop,
        Oracle::NothingAfterShut,
        Oracle::NothingAfterCancel,
        Oracle::NothingAfterTheEnd,
        Oracle::TerminalStays,
        Oracle::OthersUndisturbed,
        Oracle::WithinTheWindow,
        Oracle::WithinTheTenant,
        Oracle::WithinTheRate,
        Oracle::GentleRecovery,
        Oracle::OneProbe,
        Oracle::RetryAfterIsHonoured,
        Oracle::NoWave,
        Oracle::NotEarly,
        Oracle::InOrder,
        Oracle::OneEventPerKey,
    ];
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which.
    pub oracle: Oracle,
    /// What was seen.
    pub detail: String,
}
