//! Tests that call the server's router, configuration and pages in the test process, without the built program.
//!
//! All of them form one test program, and those in `program` another: each test program links the whole server, which
//! takes seconds.

#![allow(
    clippy::disallowed_methods,
    reason = "tests call the server as its callers do"
)]

mod config;
mod dashboard;
mod dependencies;
mod directory;
mod events;
mod fixture;
mod random_bodies;
mod tidy;
