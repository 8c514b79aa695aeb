//! Fixture of the whole-program tests: the built program, a receiver that records requests, and an API client.

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
