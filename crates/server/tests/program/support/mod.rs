//! What whole-program tests stand on: the real binary, a receiver that keeps a ledger outside of it,
//! and a caller of the API.

#![allow(
    clippy::disallowed_methods,
    reason = "tests call the program as people do"
)]

mod api;
mod receiver;
mod server;

pub(crate) use api::Api;
pub(crate) use receiver::{Answer, Arrival, Receiver};
pub(crate) use server::{ADMIN_KEY, Server, posthaste};

use std::time::Duration;

/// How long a test waits for anything before it has failed. Nothing is expected to take so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
