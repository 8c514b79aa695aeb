//! The tests of `serve` that need no files, a second time on PostgreSQL.

#![allow(
    dead_code,
    unused_imports,
    reason = "the fixture is compiled a second time, and these tests use a part of it"
)]

#[path = "../serve/admin_key.rs"]
mod admin_key;
#[path = "../serve/alerts.rs"]
mod alerts;
#[path = "../serve/endpoint_actions.rs"]
mod endpoint_actions;
#[path = "../serve/endpoint_outage.rs"]
mod endpoint_outage;
#[path = "../fixture/mod.rs"]
mod fixture;
#[path = "../serve/kill.rs"]
mod kill;
#[path = "../serve/one_off_requests.rs"]
mod one_off_requests;
#[path = "../serve/operational_events.rs"]
mod operational_events;
#[path = "../serve/retention.rs"]
mod retention;
#[path = "../serve/signature_styles.rs"]
mod signature_styles;
#[path = "../serve/stats.rs"]
mod stats;
#[path = "../serve/stop.rs"]
mod stop;
#[path = "../serve/telemetry.rs"]
mod telemetry;
#[path = "../serve/trace.rs"]
mod trace;
#[path = "../serve/webhook_requests.rs"]
mod webhook_requests;
