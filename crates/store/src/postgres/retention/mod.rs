//! Retention: deletes data when its retention period is over.
//!
//! A retention run ([`run`]) is a sequence of short transactions. Small days are scanned and deleted row by row
//! ([`scan`], [`delete_rows`]). A large day is dropped as a whole ([`large_days`]); its [`partition_plan`] is the pure
//! state machine that decides what is done with it next. [`policy_changes`] notices changed retention periods, and
//! [`empty_days`] drops days without rows.
//!
//! Guarantees: nothing is deleted before its retention period is over for its tenant. A delivery that waits, and its
//! event, are never deleted. No step holds a lock for long.

pub(in crate::postgres) mod delete_rows;
pub(in crate::postgres) mod empty_days;
pub(in crate::postgres) mod large_days;
pub(in crate::postgres) mod partition_plan;
pub(in crate::postgres) mod policy_changes;
pub(in crate::postgres) mod run;
pub(in crate::postgres) mod scan;
