//! The real binary with its real rules, in a network of its own where every address there is can be
//! visited, every name is answered as the test likes, and every visit is seen.
//!
//! What is found stands in the tables of `docs/security.md`, which these tests write and compare.

#![allow(
    clippy::disallowed_methods,
    reason = "tests stand on both sides of the door"
)]

#[path = "../program/support/api.rs"]
mod api;
mod authority;
mod dns;
mod docs;
mod faults;
mod frames;
mod handshakes;
mod names;
mod namespace;
mod ourselves;
mod outside;
mod program;
mod receivers;
mod sharing;
mod tokens;
mod vectors;

use std::time::Duration;

/// How long a test waits for anything before it has failed. Nothing is expected to take so long.
const PATIENCE: Duration = Duration::from_secs(60);
