//! The whole cluster, through the real binary and a real PostgreSQL: what one process promises, several that share a
//! store promise too, whatever becomes of one of them or of the way to the database.
//!
//! Each story has two ledgers. The receiver's, outside, says what arrived, when, and from which node; the API, inside,
//! must end every event that it accepted. What arrives twice was on its way when something failed, and was not yet
//! written down.

#![allow(
    clippy::disallowed_methods,
    reason = "tests call the program as people do"
)]

mod changes;
mod cuts;
mod decrees;
mod frozen;
mod kill;
mod kit;
mod limits;
mod one_event;
mod quiet;
mod restart;
mod roles;
mod room;
mod turnover;
