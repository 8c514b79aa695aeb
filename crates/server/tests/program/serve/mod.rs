//! Tests of the whole program, from a sent event to the webhook that arrives. The tests record the requests outside the
//! program.

#![allow(
    clippy::disallowed_methods,
    reason = "tests call the program as people do"
)]

mod alerts;
mod credentials;
mod deliver;
mod figures;
mod full;
mod kill;
mod life;
mod night;
mod notices;
mod own;
mod proxy;
mod retention;
mod secured;
mod signed;
mod start;
mod stop;
pub(crate) mod support;
mod telemetry;
mod tour;
mod trace;
