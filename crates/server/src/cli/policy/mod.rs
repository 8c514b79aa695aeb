//! `posthaste policy`: explains and simulates retry policies.
//!
//! [`explain`] shows the times of the attempts, [`simulate`] an outage of a receiver with [`advice`] on the rate limit.
//! [`source`] loads the policy.

pub mod advice;
pub mod args;
pub mod explain;
pub mod simulate;
pub mod source;

pub use args::PolicyCommand;

use super::error::CommandError;

/// Runs a command.
pub fn run(command: &PolicyCommand) -> Result<(), CommandError> {
    match command {
        PolicyCommand::Explain(args) => explain::run(args),
        PolicyCommand::Simulate(args) => simulate::run(args),
    }
}
