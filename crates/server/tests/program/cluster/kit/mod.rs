//! What the stories stand on: a fleet of nodes, applications that send events, and a verdict.

mod fleet;
mod load;
mod verdict;

pub(crate) use fleet::{Fleet, TENANT, until};
pub(crate) use load::{Harvest, Load};
pub(crate) use verdict::{Fault, Verdict, all_ended, ended, explained};

/// Long enough that a busy machine is no fault.
pub(crate) const PATIENT_LEASE: &str = "6s";
/// Short, for stories in which a node must be found dead.
pub(crate) const SHORT_LEASE: &str = "2s";
