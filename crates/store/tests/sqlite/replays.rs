//! Searches for the targets of replays.

use std::sync::Arc;
use std::task::{Context, Waker};

use posthaste_core::delivery::DeadReason;
use posthaste_core::id::EndpointId;
use posthaste_store::{AcceptResult, CreateResult, ReplayFilter, ReplayScope, Store, StoredStatus};

use crate::fixture::{Fixture, NOW, event, id, run, tenant};

/// More than any page examines.
const MANY: usize = 6_000;

/// Accepts events of a tenant, and fails their deliveries.
fn fail(fixture: &Fixture, tenant: &str, endpoint: u128, count: usize) {
    for sent in vec![event(tenant, 1); count].chunks(1_000) {
        let accepted = run(fixture.store.accept(NOW, sent.to_vec()));
        assert!(matches!(accepted, Ok(AcceptResult::Done(_))));
    }
    let (endpoint, reason) = (EndpointId(endpoint), DeadReason::EndpointDisabled);
    while run(fixture
        .store
        .sweep(NOW, endpoint, reason, Arc::new([]), 1_000))
    .unwrap()
    .more
    {}
}

#[test]
fn a_short_search_does_not_wait_for_a_long_one() {
    let fixture = Fixture::acme();
    let made = fixture.store.create_tenant(NOW, tenant("other"));
    assert_eq!(run(made), Ok(CreateResult::Created));
    fixture.add_endpoint(2, "other");
    fail(&fixture, "acme", 1, MANY);
    fail(&fixture, "other", 2, 1);
    let filter = ReplayFilter {
        endpoint: None,
        event_type: None,
        error_kind: None,
        since: None,
        until: None,
        scope: ReplayScope::Ended(StoredStatus::Failed),
    };
    let mut long = fixture.store.count_replay(id("acme"), filter.clone());
    let short = fixture.store.count_replay(id("other"), filter);
    assert_eq!(run(short), Ok(1));
    let mut context = Context::from_waker(Waker::noop());
    assert!(long.as_mut().poll(&mut context).is_pending());
    assert_eq!(run(long), Ok(MANY as u64));
}
