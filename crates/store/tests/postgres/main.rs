//! Behaviour specific to PostgreSQL on the hot path: several nodes on one database, and lost connections.
#![allow(
    clippy::disallowed_methods,
    reason = "tests reach their own server without the egress crate"
)]

#[path = "../engines/mod.rs"]
mod engines;
mod fixture;

mod concurrency_shares;
mod connection_loss;
mod future_values;
mod large_accepts;
mod metering;
mod nodes;
mod open;
mod owner_emails_migration;
mod retries;
mod rolling_upgrade;
mod stats_migration;
