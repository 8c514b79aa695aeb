//! What can be wrong, and when somebody is to hear of it.
//!
//! Promises:
//!
//! - **Once.** An alert is raised when a reading is in its alarming range, and resolved when readings have been out of
//!   it for a while. In between nothing is said, whatever the readings do.
//! - **No flapping.** A reading that goes in and out of the range keeps its alert: only calm that lasts ends it.
//! - **Not for a handful.** A reading made of too few samples raises nothing. It does not end anything either while it
//!   is bad: little traffic is no recovery.
//! - **Not by silence of our own.** While nothing can be read, nothing is raised and nothing ends.
//!
//! Pure: what was read, what goes on and the time are given; what is to be done is returned.

mod course;
mod name;

pub use course::{Bound, Change, Course, Rule, Seen};
pub use name::{AlertName, Measure, UnknownAlert};
