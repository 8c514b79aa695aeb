//! Several nodes step the same replays.

use posthaste_core::id::ReplayId;
use posthaste_store::{
    DeliveryFilter, PageRequest, ReplayFilter, ReplayScope, ReplayStatus, Store, StoredStatus,
};

use crate::given::{DAY, Given, HOUR, at, event, id, run};

fn waiting(given: &Given) -> usize {
    let filter = DeliveryFilter {
        status: Some(StoredStatus::Pending),
        ..DeliveryFilter::default()
    };
    let page = PageRequest {
        limit: 250,
        before: None,
    };
    let found = run(given.store.deliveries(id("acme"), filter, page)).expect("deliveries");
    found.items.len()
}

/// Steps the replays on two nodes at once, until both report that they are done.
fn step_together(one: &Given, other: &Given, replays: &[ReplayId]) {
    for _ in 0..50 {
        let steps: Vec<_> = replays
            .iter()
            .flat_map(|replay| {
                [one, other].map(|given| given.store.step_replay(at(DAY), *replay, 7))
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
fn two_nodes_never_set_the_same_going_twice() {
    let given = Given::acme();
    let other = given.another(9);
    for n in 0..100 {
        let delivery = given.send(at(n * 1_000)).deliveries[0].id;
        given.answer(delivery, at(HOUR), 400);
    }
    let filter = ReplayFilter {
        endpoint: None,
        event_type: None,
        error_kind: None,
        since: None,
        until: None,
        scope: ReplayScope::Ended(StoredStatus::Failed),
    };
    let mut replays = Vec::new();
    for _ in 0..2 {
        let replay = run(given
            .store
            .create_replay(at(DAY), id("acme"), filter.clone()));
        replays.push(replay.expect("it begins").id);
    }
    step_together(&given, &other, &replays);
    assert_eq!(waiting(&given), 100);
    assert_eq!(run(other.store.counts()).expect("counts").pending, 100);
    assert_eq!(run(other.store.counts()).expect("counts").dead_letters, 0);
}

#[test]
fn two_replays_of_what_was_missed_make_one_delivery_each() {
    let given = Given::acme();
    let other = given.another(9);
    let missed = 60;
    let batch = vec![event("acme"); missed];
    run(given.store.accept(at(0), batch)).expect("they are accepted");
    let late = given.add_endpoint(2, "acme");
    let filter = ReplayFilter {
        endpoint: Some(late),
        event_type: None,
        error_kind: None,
        since: None,
        until: None,
        scope: ReplayScope::Missed,
    };
    let mut replays = Vec::new();
    for node in [&given, &other] {
        let replay = run(node
            .store
            .create_replay(at(DAY), id("acme"), filter.clone()));
        let replay = replay.expect("it begins");
        assert_eq!(replay.total, missed as u64);
        replays.push(replay.id);
    }
    step_together(&given, &other, &replays);
    assert_eq!(run(given.store.pending(late)), Ok(missed as u64));
    let rows = given.count(
        "SELECT count(*) FROM waiting w JOIN endpoints e ON e.no = w.endpoint_no \
         WHERE e.id = '00000000-0000-0000-0000-000000000002'",
    );
    assert_eq!(rows, missed as u64);
}
