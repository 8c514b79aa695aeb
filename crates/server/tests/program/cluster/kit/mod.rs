//! Fixture of the cluster tests: several nodes ([`Fleet`]), producers of events ([`Load`]) and checks
//! ([`DeliveryLimits`]).

mod fleet;
mod load;
mod verdict;

pub(crate) use fleet::{Fleet, TENANT, until};
pub(crate) use load::{Load, LoadReport};
pub(crate) use verdict::{DeliveryLimits, Fault, all_ended, ended, explained};

/// A lease long enough that a busy machine does not lose it.
pub(crate) const LONG_LEASE: &str = "6s";
/// A short lease, for tests in which other nodes must notice that a node is dead.
pub(crate) const SHORT_LEASE: &str = "2s";
