//! Tests of the whole program, from a sent event to the webhook that arrives. The tests record the requests outside the
//! program.

mod admin_key;
mod alerts;
mod credentials;
mod custom_headers;
mod disk_full;
mod egress_proxy;
mod endpoint_actions;
mod endpoint_outage;
mod failure_details;
mod kill;
mod mutual_tls;
mod one_off_requests;
mod operational_events;
mod retention;
mod self_call;
mod signature_styles;
mod start;
mod stats;
mod stop;
mod telemetry;
mod trace;
mod webhook_requests;
mod wrong_keys;

use crate::fixture;
