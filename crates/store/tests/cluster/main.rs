//! Several nodes on one database, in one process: ownership of shards, and messages between nodes.

#![allow(
    clippy::disallowed_methods,
    reason = "the tests open the way to their own database"
)]

#[allow(dead_code, reason = "not every test that has engines uses all of them")]
#[path = "../engines/postgres.rs"]
mod postgres;

mod change_notifications;
mod dead_connections;
mod failed_round_trips;
mod fixture;
mod link;
mod metering;
mod node_rpc;
mod ownership;
mod shard_distribution;
mod slow_link;
