//! The command line client of the API, through the built program, against scripted servers.

#![allow(
    clippy::disallowed_methods,
    reason = "tests call the program as people do"
)]

mod errors;
mod fixture;
mod listen_command;
mod output;
mod requests;
mod watch;
