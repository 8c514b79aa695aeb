//! Two nodes on one database, with the built program: a request to either node applies to the whole cluster.

mod forwarded_requests;
mod nodes;
mod operational_events;
mod roles;
mod start;
mod stats;
mod tls;

use std::time::Duration;

use serde_json::{Value, json};

/// Maximum time until every node applies a change.
const PROPAGATION_LIMIT: Duration = Duration::from_secs(1);

/// An event that all endpoints subscribe to.
fn event() -> Value {
    json!({"type": "invoice.paid", "payload": {"amount": 1}})
}
