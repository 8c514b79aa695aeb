//! What whole-program tests stand on: the real binary, a receiver that keeps a ledger outside of it,
//! and a caller of the API.

#![allow(
    clippy::disallowed_methods,
    reason = "tests call the program as people do"
)]

mod disk;
mod server;

pub(crate) use posthaste_testbed::{
    ADMIN_KEY, Answer, Api, Arrival, Collector, METRICS, PATIENCE, Receiver, TRACES, Told,
};
pub(crate) use server::{Server, posthaste};
