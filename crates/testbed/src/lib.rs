//! What tests of whole clusters stand on. For tests only: the program does not depend on it.
//!
//! It promises:
//!
//! - **Real parts.** [`PrivatePostgres`] is a PostgreSQL, [`Node`] is the program as it is shipped, a [`browser::Browser`] is
//!   Chromium, a [`MailServer`] serves mail, and what lies between node and database is a [`Wire`] that can be cut at any byte. Nothing is played.
//! - **Judged from outside.** A [`Receiver`] notes what arrived and when, by a steady clock of its own. What it noted is held
//!   against the promises by [`judge`], which believes nothing that a node says of itself.
//! - **Nothing is left behind.** What a test starts ends with it, also when it fails or is killed.
//! - **From anywhere.** Servers and proxies run on threads of their own, so a test may block while they serve.
//!
//! ```text
//!  Api ─▶ Node ─▶ Wire ─▶ Database on a server | PrivatePostgres
//!   ▲      └────▶ Receiver ─▶ ledger ─▶ judge
//! Browser
//! ```

#![allow(
    clippy::disallowed_methods,
    reason = "tests start programs, and call them as people do"
)]

mod api;
mod background;
pub mod browser;
mod collector;
mod database;
pub mod judge;
mod mail;
mod node;
mod postgres;
mod programs;
mod receiver;
mod sender;
mod wire;

pub use api::{Api, Reply};
pub use collector::{Collector, METRICS, TRACES, Told};
pub use database::{Database, SERVER_VARIABLE};
pub use mail::{Arrived, MailServer, MailSetup, MailStep, MailTls, PYTHON_VARIABLE};
pub use node::{ADMIN_KEY, Launch, Node, without_settings};
pub use postgres::{PrivatePostgres, Stop};
pub use receiver::{Answer, Arrival, Receiver};
pub use wire::{Direction, Wire};

use std::time::Duration;

/// How long a test waits for anything before it has failed. Nothing is expected to take so long.
pub const PATIENCE: Duration = Duration::from_secs(60);
