//! The posthaste server and its command line.
//!
//! [`cli`] reads what was asked and prints the answer; [`picture`] turns data into charts, for a
//! terminal and as SVG; [`report`] gives answers the shape that tools rely on; [`advice`] finds what
//! would have gone better. [`vault`] seals what must not be read from the disk. [`observe`] keeps the
//! figures of the server at work.

pub mod advice;
pub mod chance;
pub mod cli;
pub mod clock;
pub mod engine;
pub mod observe;
pub mod picture;
pub mod report;
pub mod vault;
