//! The built program with its real rules for destinations, in a private network where every address is reachable, the
//! test answers every DNS query, and every connection is recorded.
//!
//! The results are in the tables of `docs/security`, which these tests write and compare.

#![allow(
    clippy::disallowed_methods,
    reason = "the tests open connections from both sides of the egress crate"
)]

mod authority;
mod dns;
mod docs;
mod faults;
mod frames;
mod handshakes;
mod names;
mod namespace;
mod outside;
mod program;
mod quickstart;
mod receivers;
mod self_call;
mod sharing;
mod tokens;
mod vectors;

use posthaste_testbed::PATIENCE;
