//! Tests of the dispatcher with an in-memory store and a clock that moves only when a test moves it.
//!
//! In every test, [`bench`] checks for each `Send` that the delivery is waiting in the store, is in flight only
//! once, its endpoint accepts attempts, no limit is exceeded, and on an ordered lane no older delivery of its key
//! is unfinished.

mod anything;
mod bench;
mod breaker;

mod disk;
mod disown;
mod faults;
mod given;
mod hostile;
mod memory;
mod order;
mod regressions;
mod repeats;
mod sending;
mod sharing;
mod standing;
