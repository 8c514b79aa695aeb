//! Tests of the egress crate with real sockets: honest receivers, hostile ones, and forbidden destinations.

#![allow(
    clippy::disallowed_methods,
    reason = "tests stand on both sides of the door"
)]

mod database;
mod floods;
mod frames;
mod fuzz;
mod handshake;
mod hostile;
mod http2;
mod kit;
mod mail;
mod mutual;
mod operator;
mod own;
mod permit;
mod places;
mod plain;
mod proxy;
mod secure;
mod shapes;
mod sharing;
mod time;
