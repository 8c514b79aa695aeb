//! `posthaste demo`: a server, four receivers that misbehave in different ways, and traffic.
//!
//! Within half a minute a new user sees retries, a tripped breaker, a dead letter and a gradual recovery. Guarantees:
//!
//! - only the receivers and the traffic are simulated. The server is the same that `posthaste serve` runs, and every
//!   figure comes from its API or from a receiver's count;
//! - the messages are a pure function of two consecutive snapshots ([`moment`]);
//! - the demo ends with its process and removes its files.

pub mod ledger;
pub mod moment;
pub mod page;
pub mod script;
pub mod snapshot;
pub mod stage;
pub mod traffic;
pub mod watch;
