//! The policy commands of the built program: output, errors and exit codes.

#![allow(
    clippy::disallowed_methods,
    reason = "tests call the program as people do"
)]

mod answers;
mod complaints;
mod program;
mod readme;
mod wording;
