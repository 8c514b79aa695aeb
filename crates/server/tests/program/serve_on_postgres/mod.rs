//! The tests of `serve` that need no files, a second time on PostgreSQL.

#![allow(
    clippy::disallowed_methods,
    reason = "tests call the program as people do"
)]
#![allow(
    dead_code,
    unused_imports,
    reason = "what the stories stand on serves files too, which are told of elsewhere"
)]

#[path = "../serve/alerts.rs"]
mod alerts;
#[path = "../serve/deliver.rs"]
mod deliver;
#[path = "../serve/figures.rs"]
mod figures;
#[path = "../serve/kill.rs"]
mod kill;
#[path = "../serve/life.rs"]
mod life;
#[path = "../serve/night.rs"]
mod night;
#[path = "../serve/notices.rs"]
mod notices;
#[path = "../serve/retention.rs"]
mod retention;
#[path = "../serve/signed.rs"]
mod signed;
#[path = "../serve/stop.rs"]
mod stop;
#[path = "../serve/support/mod.rs"]
mod support;
#[path = "../serve/telemetry.rs"]
mod telemetry;
#[path = "../serve/trace.rs"]
mod trace;
