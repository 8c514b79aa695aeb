//! Retention: deletes data when its retention period is over.
//!
//! A retention run ([`run`]) is a sequence of short transactions. Small days are scanned and deleted row by row
//! ([`scan`], [`delete_rows`]). A large day is dropped as a whole ([`large_days`]); its [`partition_plan`] is the pure
//! state machine that decides what is done with it next. [`policy_changes`] notices changed retention periods, and
//! [`empty_days`] drops days without rows.
//!
//! Guarantees: nothing is deleted before its retention period is over for its tenant. A delivery that waits, and its
//! event, are never deleted. No step holds a lock for long.

mod delete_rows;
mod empty_days;
mod large_days;
mod partition_plan;
mod policy_changes;
pub(in crate::postgres) mod run;
mod scan;
mod schedule_runs;
