//! Behaviour specific to PostgreSQL off the hot path: daily partitions, the shared vault, long lists.
#![allow(
    clippy::disallowed_methods,
    reason = "tests reach their own server without the egress crate"
)]

mod early_deletion;
#[path = "../engines/mod.rs"]
mod engines;
mod fixture;

mod dead_letters;
mod partitions;
mod query_plans;
mod replays;
mod retention_runs;
mod shared_master_key;
