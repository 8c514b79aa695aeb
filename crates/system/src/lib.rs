//! Clock, randomness and timing of background tasks.
//!
//! [`clock`] provides the time that is stored, shown or decided about. Time limits and measured durations use the
//! monotonic clock of the operating system directly. [`random`] is the only module of the server that uses the random
//! source of the operating system; it also makes API keys and signing secrets from it. Everything else gets a
//! [`clock::Clock`] or a seeded generator as a parameter, so that tests control both.
//! [`periodic_task`] repeats a round of background work until it is stopped, and [`backoff`] computes the pause after a
//! failure. [`machine`] names this process.

pub mod backoff;
pub mod clock;
pub mod machine;
pub mod periodic_task;
pub mod random;
