//! Behaviour specific to PostgreSQL off the hot path: daily partitions, the shared vault, long lists.
#![allow(
    clippy::disallowed_methods,
    reason = "tests reach their own server without the egress crate"
)]

#[path = "../engines/mod.rs"]
mod engines;
mod fixture;
mod keeping;

mod days;
mod dead;
mod plans;
mod replays;
mod vault;
mod walking;
