//! The API from a terminal, through the built program, against servers that say what they are told.

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
