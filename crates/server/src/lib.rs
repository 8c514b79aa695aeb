//! The posthaste server and its command line.
//!
//! [`cli`] reads what was asked and prints the answer; [`picture`] turns data into charts, for a
//! terminal and as SVG; [`report`] gives answers the shape that tools rely on; [`advice`] finds what
//! would have gone better; [`bench`] measures.

pub mod advice;
pub mod bench;
pub mod cli;
pub mod clock;
pub mod engine;
pub mod picture;
pub mod report;
