//! The dispatcher against a tiny disk and a clock that stands still unless told to move.
//!
//! The [`bench`] checks with every single `Send`, in every test, what must hold always: the delivery
//! still waits on disk, is in flight once, its endpoint is not shut, no limit is exceeded, and on an
//! ordered lane nothing older of its key is unfinished.

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
