//! The door out against real sockets: honest receivers, hostile ones, and places it may not go.

#![allow(
    clippy::disallowed_methods,
    reason = "tests stand on both sides of the door"
)]

mod hostile;
mod http2;
mod kit;
mod operator;
mod own;
mod places;
mod plain;
mod secure;
mod sharing;
mod time;
