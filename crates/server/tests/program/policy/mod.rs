//! The policy commands as a person or a script meets them: the built program, its output, its
//! errors and its exit codes.

#![allow(
    clippy::disallowed_methods,
    reason = "tests call the program as people do"
)]

mod answers;
mod complaints;
mod program;
mod readme;
mod wording;
