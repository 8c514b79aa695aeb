//! A play to look at: a server, four receivers that misbehave each in its own way, and traffic.
//!
//! Within half a minute a newcomer sees retries, a tripped breaker, a dead letter and a gentle recovery.
//! It promises:
//!
//! - nothing is staged but the receivers and the traffic: the server is the one that `posthaste serve`
//!   runs, and every figure is what its API says or what a receiver counted;
//! - what is worth a word is decided purely, from one look to the next ([`moment`]);
//! - it ends with its owner, and leaves nothing behind.

pub mod ledger;
pub mod moment;
pub mod page;
pub mod script;
pub mod snapshot;
pub mod stage;
pub mod traffic;
pub mod watch;
