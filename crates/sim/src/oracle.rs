//! The oracles: checks of guarantees that must hold under all faults.
//!
//! Each [`Oracle`] is one guarantee of the core. The letters are those of the guarantees in
//! `docs/internals/testing.md`. [`BrokenGuarantee`] is a violated guarantee with the observation that violates it. The
//! checker decides which oracle has failed; the mutations prove that each of them can fail.

/// A guarantee that the simulator checks, marked with its letter in `docs/internals/testing.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oracle {
    /// A: every accepted delivery ends, in bounded time after the last fault.
    EverythingEnds,
    /// B: no round of a delivery has more attempts than the policy allows.
    AttemptsWithinPolicy,
    /// B: an attempt counts only if its result came back from the receiver.
    LocalFaultsCountNoAttempt,
    /// B: no retry is scheduled after the deadline.
    NoRetryBeyondTheDeadline,
    /// B: a probe that the receiver refuses does not fail its delivery.
    RefusedProbesFailNothing,
    /// C: every attempt is recorded, unless a fault excuses it. So nothing is sent twice without a fault.
    EveryResultIsKept,
    /// C: a delivery is never in flight twice at once.
    OneAtATime,
    /// C: no attempt is in flight after a graceful shutdown.
    CleanStop,
    /// D: no attempt starts after a pause, disable or delete was acknowledged.
    NothingAfterStatusChange,
    /// D: no attempt starts after a cancellation was acknowledged.
    NothingAfterCancel,
    /// E: no attempt starts after the delivery ended.
    NothingAfterTheEnd,
    /// E: a delivery that has ended changes only by a replay.
    TerminalStays,
    /// G: a healthy endpoint is not slowed down by other endpoints.
    HealthyEndpointUnaffected,
    /// H: the number of attempts in flight never exceeds the endpoint's limit.
    WithinTheWindow,
    /// H: the number of attempts in flight never exceeds the tenant's limit over all its endpoints.
    WithinTheTenant,
    /// H: the number of attempts in any second never exceeds the endpoint's rate limit.
    WithinTheRate,
    /// H: an endpoint gets no burst in the second in which it recovers.
    GentleRecovery,
    /// H: a tripped breaker allows one probe at a time, and no other attempts.
    OneProbe,
    /// H: no attempt starts before the time that the receiver asked for with `Retry-After`.
    RetryAfterIsHonoured,
    /// H: deliveries that failed together are not retried together.
    NoRetryWave,
    /// B: no retry starts before its due time.
    NotEarly,
    /// B: a delivery whose turn comes after its deadline is dropped if its policy says so, and no other is.
    LateIsDropped,
    /// Deliveries with the same ordering key are sent one after the other.
    InOrder,
    /// I: the same idempotency key makes one event.
    OneEventPerKey,
}

impl Oracle {
    /// Every oracle.
    pub const ALL: [Oracle; 24] = [
        Oracle::EverythingEnds,
        Oracle::AttemptsWithinPolicy,
        Oracle::LocalFaultsCountNoAttempt,
        Oracle::NoRetryBeyondTheDeadline,
        Oracle::RefusedProbesFailNothing,
        Oracle::EveryResultIsKept,
        Oracle::OneAtATime,
        Oracle::CleanStop,
        Oracle::NothingAfterStatusChange,
        Oracle::NothingAfterCancel,
        Oracle::NothingAfterTheEnd,
        Oracle::TerminalStays,
        Oracle::HealthyEndpointUnaffected,
        Oracle::WithinTheWindow,
        Oracle::WithinTheTenant,
        Oracle::WithinTheRate,
        Oracle::GentleRecovery,
        Oracle::OneProbe,
        Oracle::RetryAfterIsHonoured,
        Oracle::NoRetryWave,
        Oracle::NotEarly,
        Oracle::LateIsDropped,
        Oracle::InOrder,
        Oracle::OneEventPerKey,
    ];
}

/// A violated guarantee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenGuarantee {
    /// The oracle that failed.
    pub oracle: Oracle,
    /// The observation that violates it.
    pub detail: String,
}
