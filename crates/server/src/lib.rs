//! The posthaste server and its command line.
//!
//! The main parts:
//!
//! - [`cli`] parses the command line, runs the command and prints the result. [`config`] reads the settings.
//! - [`node`] starts and stops one server process. [`api`] is the HTTP API, [`dashboard`] the web interface.
//! - [`engine`] sends deliveries. [`notices`] sends notifications about endpoints, and [`alerts`] finds what needs
//!   attention.
//! - [`vault`] encrypts secrets at rest: [`signing_keys`] and [`credentials`].
//! - [`observe`] counts and serves metrics, and [`telemetry`] exports spans to an OpenTelemetry collector.
//! - [`picture`] draws charts for terminals and as SVG, [`report`] defines JSON reports that tools rely on, and
//!   [`advice`] suggests a better rate limit after a simulated outage. [`mod@bench`] measures throughput, and [`demo`]
//!   shows a server with failing receivers.

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
