//! The policy commands of the built program: output, errors and exit codes.

#![allow(
    clippy::disallowed_methods,
    reason = "tests call the program as people do"
)]

mod errors;
mod fixture;
mod output;
mod readme_examples;
mod wording;
