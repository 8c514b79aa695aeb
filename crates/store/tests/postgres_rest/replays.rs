//! Several nodes step the same replays, and searches for their targets.

use std::sync::Arc;
use std::task::{Context, Waker};

use posthaste_core::delivery::DeadReason;
use posthaste_core::id::{EndpointId, ReplayId};
use posthaste_core::lane::EndpointStatus;
use posthaste_store::{
    DeliveryFilter, DisabledReason, Lists, PageRequest, ReplayFilter, ReplayScope, ReplayStatus,
    Store, StoredStatus,
};

use crate::fixture::{DAY, Fixture, HOUR, at, event, id, run};

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

fn waiting(fixture: &Fixture) -> usize {
    let filter = DeliveryFilter {
        status: Some(StoredStatus::Pending),
        ..DeliveryFilter::default()
    };
    let page = PageRequest {
        limit: 250,
        before: None,
    };
    let found = run(fixture.store.deliveries(id("acme"), filter, page)).expect("deliveries");
    found.items.len()
}

/// Steps the replays on two nodes at once, until both report that they are done.
fn step_together(one: &Fixture, other: &Fixture, replays: &[ReplayId]) {
    for _ in 0..50 {
        let steps: Vec<_> = replays
            .iter()
            .flat_map(|replay| {
                [one, other].map(|fixture| fixture.store.step_replay(at(DAY), *replay, 7))
            })
            .collect();
        let mut done = true;
        for step in steps {
            let step = run(step).expect("it goes on").expect("it is there");
            done &= step.replay.status == ReplayStatus::Done;
            assert!(step.replay.replayed <= step.replay.total);
        }
        if done {
            return;
        }
    }
    panic!("the replays never end");
}

#[test]
fn two_nodes_do_not_replay_a_delivery_twice() {
    let fixture = Fixture::acme();
    let other = fixture.another(9);
    for n in 0..100 {
        let delivery = fixture.send(at(n * 1_000)).deliveries[0].id;
        fixture.answer(delivery, at(HOUR), 400);
    }
    let filter = failed();
    let mut replays = Vec::new();
    for _ in 0..2 {
        let replay = run(fixture
            .store
            .create_replay(at(DAY), id("acme"), filter.clone()));
        replays.push(replay.expect("it begins").id);
    }
    step_together(&fixture, &other, &replays);
    assert_eq!(waiting(&fixture), 100);
    assert_eq!(run(other.store.counts()).expect("counts").pending, 100);
    assert_eq!(run(other.store.counts()).expect("counts").dead_letters, 0);
}

#[test]
fn two_replays_of_missed_events_create_one_delivery_per_event() {
    let fixture = Fixture::acme();
    let other = fixture.another(9);
    let missed = 60;
    let batch = vec![event("acme"); missed];
    run(fixture.store.accept(at(0), batch)).expect("they are accepted");
    let late = fixture.add_endpoint(2, "acme");
    let filter = ReplayFilter {
        endpoint: Some(late),
        event_type: None,
        error_kind: None,
        since: None,
        until: None,
        scope: ReplayScope::Missed,
    };
    let mut replays = Vec::new();
    for node in [&fixture, &other] {
        let replay = run(node
            .store
            .create_replay(at(DAY), id("acme"), filter.clone()));
        let replay = replay.expect("it begins");
        assert_eq!(replay.total, missed as u64);
        replays.push(replay.id);
    }
    step_together(&fixture, &other, &replays);
    assert_eq!(run(fixture.store.pending(late)), Ok(missed as u64));
    let rows = fixture.count(
        "SELECT count(*) FROM waiting w JOIN endpoints e ON e.no = w.endpoint_no \
         WHERE e.id = '00000000-0000-0000-0000-000000000002'",
    );
    assert_eq!(rows, missed as u64);
}

/// More than any page of a search examines, several times.
const MANY: usize = 16_000;

/// Accepts events of a tenant, and fails the deliveries to one endpoint.
fn fail(fixture: &Fixture, tenant: &str, endpoint: u128, count: usize) {
    for sent in vec![event(tenant); count].chunks(1_000) {
        run(fixture.store.accept(at(0), sent.to_vec())).expect("they are accepted");
    }
    let (endpoint, reason) = (EndpointId(endpoint), DeadReason::EndpointDisabled);
    while run(fixture
        .store
        .sweep(at(1), endpoint, reason, Arc::new([]), 1_000))
    .expect("it is swept")
    .more
    {}
}

#[test]
fn a_short_search_does_not_wait_for_a_long_one() {
    let fixture = Fixture::acme();
    fixture.add_tenant("other", None);
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
    let late = fixture.add_endpoint(2, "acme");
    let (disabled, manual) = (EndpointStatus::Disabled, Some(DisabledReason::Manual));
    let set = fixture
        .store
        .set_endpoint_status(at(1), late, disabled, manual, None);
    assert_eq!(run(set), Ok(true));
    let missed = ReplayFilter {
        endpoint: Some(late),
        since: Some(at(0)),
        scope: ReplayScope::Missed,
        ..failed()
    };
    for (filter, expected) in [(missed, MANY), (failed(), MANY + 1)] {
        let long: Vec<_> = (0..LONG_SEARCHES)
            .map(|_| fixture.store.count_replay(id("acme"), failed()))
            .collect();
        let created = fixture.store.create_replay(at(2), id("acme"), filter);
        // Endpoint 1 fails, and endpoint 2 misses the event.
        fail(&fixture, "acme", 1, 1);
        let created = run(created).expect("it is created");
        assert_eq!(created.total, expected as u64);
        for counted in long {
            assert!(run(counted).expect("they are counted") >= MANY as u64);
        }
    }
}
