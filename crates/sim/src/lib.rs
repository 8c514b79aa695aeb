//! Simulator: runs the core in virtual time from a seed.
//!
//! - [`simulation`] runs the dispatcher of one process under faults: receivers that hang and flap, a disk that
//!   fails, a process that crashes between any two commands, a wall clock that jumps. The [`guarantee_checker`] checks
//!   the guarantees of the core, each of which is an [`oracle`]. [`mutations`] prove that the oracles can
//!   fail.
//! - [`goodput`] measures how much gets through to receivers that fail in part.
//! - [`clocks`] runs the clocks of nodes that are corrected by the clock of the database.
//! - [`schedules`] runs the planner of schedules on several nodes over one store.
//! - [`cluster`] runs several nodes over one shared table and checks shard ownership: never two owners at once.

pub mod clocks;
pub mod cluster;
pub mod disk;
pub mod goodput;
pub mod guarantee_checker;
pub mod mutations;
pub mod oracle;
pub mod receiver;
mod records;
pub mod scenario;
pub mod schedules;
pub mod simulation;
