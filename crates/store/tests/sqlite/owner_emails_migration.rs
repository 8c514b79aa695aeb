//! Migration of owner addresses: those of earlier versions count as confirmed.

use posthaste_core::id::EndpointId;
use posthaste_store::{OwnerEmails, Store};

use crate::fixture::{Fixture, WITHOUT_OWNER_EMAILS, open, run};

#[test]
fn addresses_of_before_count_as_confirmed() {
    let fixture = Fixture::acme();
    run(fixture.store.close()).unwrap();
    let conn = rusqlite::Connection::open(fixture.path()).unwrap();
    conn.execute_batch(WITHOUT_OWNER_EMAILS).unwrap();
    conn.execute("UPDATE endpoints SET owner_email = 'Ops@example.com'", [])
        .unwrap();
    conn.pragma_update(None, "user_version", 6).unwrap();
    drop(conn);
    let store = open(&fixture.path()).unwrap();
    let endpoint = run(store.endpoint(EndpointId(1)))
        .unwrap()
        .unwrap()
        .endpoint;
    assert_eq!(endpoint.owner_email.as_deref(), Some("Ops@example.com"));
    assert!(endpoint.owner_email_confirmed);
    let known = store.is_owner_confirmed(endpoint.tenant, "ops@example.com".to_owned());
    assert_eq!(run(known), Ok(true));
}
