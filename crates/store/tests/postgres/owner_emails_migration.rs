//! Migration of owner addresses: those of earlier versions count as confirmed.

use posthaste_core::id::EndpointId;
use posthaste_core::lane::Health;
use posthaste_store::{OwnerEmails, Store};

use crate::engines::Database;
use crate::fixture::{node, run};

/// A tenant and an endpoint as nodes of the version before wrote them.
const OLDER_ROWS: &str = "INSERT INTO tenants (no, id, name, limits, created_at, revision, deleted) \
     VALUES (901, 'acme', 'acme', '{}', 0, 0, false); \
     INSERT INTO endpoints (no, id, shard, tenant_no, standing, url, description, event_types, timeout_ms, \
     max_in_flight, per_second, burst, ordered, sealed_headers, sealed_keys, signature_style, \
     sealed_credentials, owner_email, created_at, revision) VALUES (902, \
     '00000000-0000-0000-0000-000000000001', 0, 901, 0, 'https://example.com', '', '[]', 1000, 1, 1, 1, false, \
     '', '', 0, '', 'Ops@example.com', 0, 0)";

#[test]
fn addresses_of_before_count_as_confirmed() {
    let database = Database::create_empty();
    for step in [
        include_str!("../../src/postgres/schema/first.sql"),
        include_str!("../../src/postgres/schema/second.sql"),
        include_str!("../../src/postgres/schema/third.sql"),
        include_str!("../../src/postgres/schema/fourth.sql"),
        "UPDATE meta SET value = 4 WHERE name = 'format'",
        OLDER_ROWS,
    ] {
        database.run(step);
    }
    let health = serde_json::to_string(&Health::default()).expect("plain data");
    database.run(&format!(
        "INSERT INTO healths (endpoint_no, revision, tripped, health) VALUES (902, 0, false, '{health}')"
    ));
    let node = node(&database, 1);
    let row = run(node.store.endpoint(EndpointId(1))).expect("the endpoint can be read");
    let endpoint = row.expect("it exists").endpoint;
    assert_eq!(endpoint.owner_email.as_deref(), Some("Ops@example.com"));
    assert!(endpoint.owner_email_confirmed);
    let known = node
        .store
        .is_owner_confirmed(endpoint.tenant, "ops@example.com".to_owned());
    assert_eq!(run(known), Ok(true));
}
