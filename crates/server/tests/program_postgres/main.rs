//! The stories of the whole program that do not speak of files, on PostgreSQL: what holds on one store holds on the other.

#![allow(
    clippy::disallowed_methods,
    reason = "tests call the program as people do"
)]
#![allow(
    dead_code,
    unused_imports,
    reason = "what the stories stand on serves files too, which are told of elsewhere"
)]

#[path = "../program/alerts.rs"]
mod alerts;
#[path = "../program/deliver.rs"]
mod deliver;
#[path = "../program/figures.rs"]
mod figures;
#[path = "../program/kill.rs"]
mod kill;
#[path = "../program/life.rs"]
mod life;
#[path = "../program/night.rs"]
mod night;
#[path = "../program/notices.rs"]
mod notices;
#[path = "../program/retention.rs"]
mod retention;
#[path = "../program/signed.rs"]
mod signed;
#[path = "../program/stop.rs"]
mod stop;
#[path = "../program/support/mod.rs"]
mod support;
#[path = "../program/telemetry.rs"]
mod telemetry;
#[path = "../program/trace.rs"]
mod trace;
