//! What PostgreSQL does its own way on the hot side: several nodes on one database, and connections that are lost.
#![allow(
    clippy::disallowed_methods,
    reason = "tests reach their own server without the door out"
)]

#[path = "../engines/mod.rs"]
mod engines;
mod given;

mod later;
mod loss;
mod metering;
mod nodes;
mod opening;
mod patience;
mod rooms;
