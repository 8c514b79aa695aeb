//! The command line client of the API, through the built program, against scripted servers.

#![allow(
    clippy::disallowed_methods,
    reason = "tests call the program as people do"
)]

mod answers;
mod complaints;
mod kit;
mod listening;
mod requests;
mod watching;
