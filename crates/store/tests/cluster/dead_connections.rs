//! Connections that died unnoticed: reads are repeated on a new connection, and the caller sees no error.

use std::time::Duration;

use posthaste_core::id::TenantId;
use posthaste_store::{DeliveryFilter, Lists, PageRequest, Store};
use serde_json::json;

use crate::fixture::{Fixture, wait};

const LEASE_MS: u64 = 20_000;
const ROUNDS: usize = 5;

fn acme() -> TenantId {
    "acme".parse().expect("a name")
}

fn first_page<K>() -> PageRequest<K> {
    PageRequest {
        limit: 9,
        before: None,
    }
}

#[test]
fn a_read_on_a_dead_connection_is_repeated_on_a_new_one() {
    let fixture = Fixture::new();
    let node = fixture.node_with("a", LEASE_MS, |settings| settings.quick_readers = 1);
    for round in 0..ROUNDS {
        node.link.kill_unnoticed();
        // A single statement on each kind of connection, then several in one snapshot.
        assert_eq!(wait(node.store.tenant(acme())), Ok(None), "round {round}");
        let tenants = wait(node.store.tenants(first_page()));
        assert!(tenants.is_ok(), "round {round}: {tenants:?}");
        node.link.kill_unnoticed();
        let filter = DeliveryFilter::default();
        let listed = wait(node.store.deliveries(acme(), filter, first_page()));
        assert!(listed.is_ok(), "round {round}: {listed:?}");
    }
}

#[test]
fn a_question_to_another_node_is_sent_again_on_a_new_connection() {
    let fixture = Fixture::new();
    let a = fixture.node("a", LEASE_MS);
    let b = fixture.node("b", LEASE_MS);
    for round in 0..ROUNDS {
        a.link.kill_unnoticed();
        let within = Duration::from_secs(30);
        let answer = wait(a.cluster.ask(b.cluster.me(), json!(round), within));
        assert_eq!(answer, Ok(json!({ "by": "b", "to": round })));
    }
}
