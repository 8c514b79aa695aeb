//! A virtual world that drives the deciding core from a seed.
//!
//! - [`world`] is hostile: receivers that hang and flap, a disk that fails, a process that dies
//!   between any two commands, a clock that jumps. Its [`ledger`] holds the core to its promises, each
//!   of which is an [`oracle`], and [`planted`] bugs show that it would notice.
//! - [`cluster`] is several nodes over one table: who owns what, and never two at once.
//! - [`recovery`] is a forecast: what an outage would look like under a policy, for people.

pub mod agenda;
pub mod cluster;
pub mod disk;
mod entries;
pub mod ledger;
pub mod oracle;
pub mod planted;
pub mod receiver;
pub mod recovery;
pub mod weather;
pub mod world;
