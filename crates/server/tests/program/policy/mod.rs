//! The policy commands of the built program: output, errors and exit codes.

mod errors;
pub(crate) mod fixture;
mod output;
mod wording;
