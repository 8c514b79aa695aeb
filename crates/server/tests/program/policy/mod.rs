//! The policy commands of the built program: output, errors and exit codes.

mod errors;
mod fixture;
mod output;
mod readme_examples;
mod wording;
