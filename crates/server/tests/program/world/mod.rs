//! The real binary with its real rules, in a network of its own where every address there is can be
//! visited, every name is answered as the test likes, and every visit is seen.
//!
//! What is found stands in the tables of `docs/security.md`, which these tests write and compare.

#![allow(
    clippy::disallowed_methods,
    reason = "tests stand on both sides of the door"
)]

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

use posthaste_testbed::PATIENCE;
