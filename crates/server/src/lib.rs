//! The posthaste server and its command line.
//!
//! [`cli`] reads what was asked and prints the answer; [`api`] is what applications speak to; [`engine`]
//! sends; [`vault`] seals what must not be read from the disk: [`signing_keys`] and [`credentials`];
//! [`observe`] counts, and [`telemetry`] tells a collector. [`picture`] turns data into charts, for a terminal and as SVG; [`report`] gives
//! answers the shape that tools rely on; [`advice`] finds what would have gone better; [`mod@bench`]
//! measures; [`demo`] shows it all.

pub mod advice;
pub mod alerts;
pub mod api;
pub mod bench;
pub mod chance;
pub mod cli;
pub mod clock;
pub mod config;
pub mod credentials;
pub mod dashboard;
pub mod database;
pub mod demo;
pub mod engine;
pub mod housekeeping;
pub mod limits;
pub mod listener;
pub mod logging;
pub mod node;
pub mod notices;
pub mod observe;
pub mod orders;
pub mod picture;
pub mod queue_age;
pub mod replayer;
pub mod report;
pub mod signing_keys;
pub mod switchboard;
pub mod telemetry;
pub mod vault;
