//! Fixtures for tests of whole nodes and clusters. For tests only: the program does not depend on this crate.
//!
//! It guarantees:
//!
//! - **Real parts.** [`PrivatePostgres`] is a PostgreSQL server, [`Node`] the shipped program, [`browser::Browser`] a
//!   Chromium and [`MailServer`] an SMTP server. [`TcpProxy`] is a TCP proxy between a node and its database that can be
//!   cut at any byte. Nothing is mocked.
//! - **Checks from outside.** A [`Receiver`] records what arrived and when, by its own monotonic clock. [`checks`]
//!   tests these records and uses nothing that a node reports about itself.
//! - **Long runs.** [`soak`] runs the program under random faults from a seed, and checks every guarantee.
//! - **Full cleanup.** Everything that a test starts ends with the test, also when the test fails or is killed.
//! - **Background threads.** Servers and proxies run on their own threads, so a test may block while they serve.
//!
//! ```text
//!  Api ─▶ Node ─▶ TcpProxy ─▶ Database on a server | PrivatePostgres
//!   ▲      └────▶ Receiver ─▶ ledger ─▶ checks
//! Browser
//! ```

#![allow(
    clippy::disallowed_methods,
    reason = "tests start programs, and call them as people do"
)]

mod api;
mod background;
pub mod browser;
pub mod checks;
mod collector;
mod database;
mod fake_clock;
mod mail;
mod node;
mod postgres;
mod postgres_programs;
mod receiver;
mod sender_process;
pub mod soak;
mod tcp_proxy;

pub use api::{Api, ApiResponse};
pub use collector::{Collector, METRICS, ReceivedSpan, TRACES};
pub use database::{Database, SERVER_VARIABLE};
pub use fake_clock::FakeClock;
pub use mail::{MailServer, MailSetup, MailStep, MailTls, PYTHON_VARIABLE, ReceivedEmail};
pub use node::{ADMIN_KEY, Node, NodeOptions, without_settings};
pub use postgres::{PrivatePostgres, StopMode};
pub use receiver::{Answer, Arrival, Receiver};
pub use tcp_proxy::{Direction, TcpProxy};

use std::time::Duration;

/// Maximum time that a test waits for anything before it fails. No correct run takes this long.
pub const PATIENCE: Duration = Duration::from_secs(60);
