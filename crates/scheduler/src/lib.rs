//! Runs schedules: decides about the occurrences that are due, and stores the decisions.
//!
//! ```text
//!  store: due schedules ──▶ runner (owner node) ── plan (core) ──▶ event or request of each run
//!        ▲                        ▲                                   │
//!        │                        └─ a schedule was changed           ▼
//!        └────────────────── one transaction: events, runs, next occurrence
//! ```
//!
//! Guarantees:
//!
//! - **Exactly one event per occurrence.** A decision is stored together with its events, for the version of the schedule
//!   that it was made from. If anything dies before the commit, the same occurrence is decided again; afterwards it is not
//!   due any more.
//! - **One decider.** The node that owns the shard of a schedule decides about it. A node that has lost the shard and does
//!   not know it yet writes nothing.
//! - **No schedule blocks others.** A schedule of a tenant that is over a rate is postponed. A run that cannot be accepted
//!   is recorded as skipped.
//! - **Bounded.** Memory depends on the schedules that are being decided about, not on those that are stored. While none is
//!   due, the runner sleeps.
//!
//! The arithmetic and the decisions are in [`posthaste_core::schedule`].

mod decision;
mod failure_streak;
mod in_flight;
mod run;
mod runner;

pub use runner::start;
