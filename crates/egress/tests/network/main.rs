//! Tests of the egress crate with real sockets: honest receivers, hostile ones, and forbidden destinations.
//!
//! Every receiver is a local socket with a script in [`fixture`]. The modules cover what is sent, what may be
//! connected to, TLS, reuse of connections, time limits, and receivers that break the protocol. No test needs a
//! network beyond this machine.

#![allow(
    clippy::disallowed_methods,
    reason = "the receivers of the tests open sockets too"
)]

mod client_certificates;
mod connection_reuse;
mod database;
mod destinations;
mod fixture;
mod floods;
mod fuzz;
mod handshake;
mod hostile_http1;
mod http2;
mod http2_frames;
mod mail;
mod malformed_responses;
mod permit;
mod proxy;
mod requests;
mod self_call;
mod time_limit;
mod tls;
mod trusted_client;
