//! Searches for the targets of replays.

use std::sync::Arc;
use std::task::{Context, Waker};

use posthaste_core::delivery::DeadReason;
use posthaste_core::id::EndpointId;
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::Timestamp;
use posthaste_store::{
    AcceptResult, CreateResult, DisabledReason, ReplayFilter, ReplayScope, Store, StoredStatus,
};

use crate::fixture::{Fixture, NOW, event, id, run, tenant};

/// More than any page examines.
const MANY: usize = 6_000;

fn failed() -> ReplayFilter {
    ReplayFilter {
        endpoint: None,
        event_type: None,
        error_kind: None,
        since: None,
        until: None,
        scope: ReplayScope::Ended(StoredStatus::Failed),
    }
}

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
    let filter = failed();
    let mut long = fixture.store.count_replay(id("acme"), filter.clone());
    let short = fixture.store.count_replay(id("other"), filter);
    assert_eq!(run(short), Ok(1));
    let mut context = Context::from_waker(Waker::noop());
    assert!(long.as_mut().poll(&mut context).is_pending());
    assert_eq!(run(long), Ok(MANY as u64));
}

/// Number of long searches that keep a later one waiting for a while.
const LONG_SEARCHES: usize = 8;

#[test]
fn a_replay_has_no_events_that_were_accepted_after_its_request() {
    let fixture = Fixture::acme();
    fail(&fixture, "acme", 1, MANY);
    fixture.add_endpoint(2, "acme");
    let (disabled, manual) = (EndpointStatus::Disabled, Some(DisabledReason::Manual));
    let set = fixture
        .store
        .set_endpoint_status(NOW, EndpointId(2), disabled, manual, None);
    assert_eq!(run(set), Ok(true));
    let missed = ReplayFilter {
        endpoint: Some(EndpointId(2)),
        since: Some(Timestamp(0)),
        scope: ReplayScope::Missed,
        ..failed()
    };
    for (filter, expected) in [(missed, MANY), (failed(), MANY + 1)] {
        let long: Vec<_> = (0..LONG_SEARCHES)
            .map(|_| fixture.store.count_replay(id("acme"), failed()))
            .collect();
        let created = fixture.store.create_replay(NOW, id("acme"), filter);
        // Endpoint 1 fails, and endpoint 2 misses the event.
        fail(&fixture, "acme", 1, 1);
        assert_eq!(run(created).unwrap().total, expected as u64);
        for counted in long {
            assert!(run(counted).unwrap() >= MANY as u64);
        }
    }
}

#[test]
fn a_replay_of_failures_has_those_of_every_endpoint() {
    let fixture = Fixture::acme();
    fixture.add_endpoint(2, "acme");
    fixture.add_endpoint(3, "acme");
    // Endpoint 2 has no failures.
    fail(&fixture, "acme", 3, 1_500);
    fail(&fixture, "acme", 1, 1_024);
    let all = 1_500 + 2_524;
    assert_eq!(
        run(fixture.store.count_replay(id("acme"), failed())),
        Ok(all)
    );
    let created = fixture.store.create_replay(NOW, id("acme"), failed());
    assert_eq!(run(created).unwrap().total, all);
}
