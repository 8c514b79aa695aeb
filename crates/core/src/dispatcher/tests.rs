//! Tests of the dispatcher with an in-memory store and a clock that moves only when a test moves it.
//!
//! In every test, [`bench`] checks for each `Send` that the delivery is waiting in the store, is in flight only
//! once, its endpoint accepts attempts, no limit is exceeded, and on an ordered lane no older delivery of its key
//! is unfinished.

mod attempt_checks;
mod bench;
mod breaker;
mod disk;
mod endpoint_status;
mod fairness;
mod faults;
mod fixture;
mod held_back;
mod late;
mod memory;
mod ordering;
mod quarantine;
mod random_inputs;
mod regressions;
mod release;
mod review_findings;
mod sending;
mod stale_inputs;
mod unwritten;
