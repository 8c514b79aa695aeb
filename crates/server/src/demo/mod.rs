//! `posthaste demo`: a server, four receivers that misbehave in different ways, and traffic.
//!
//! Within half a minute a new user sees retries, a tripped breaker, a dead letter and a gradual recovery.
//! [`RunningDemo`](running::RunningDemo) is the server with its receivers, [`scenario`] their behaviour over time,
//! [`traffic`] sends the events, and [`poll`] reads the state of the endpoints. Guarantees:
//!
//! - only the receivers and the traffic are simulated. The server is the same that `posthaste serve` runs, and every
//!   figure comes from its API or from a receiver's count;
//! - the messages are a pure function of two consecutive snapshots ([`transition`]);
//! - the demo ends with its process and removes its files.

pub mod error;
pub mod poll;
pub mod receiver;
pub mod request_counts;
pub mod running;
pub mod scenario;
pub mod snapshot;
pub mod traffic;
pub mod transition;

pub use error::DemoError;
