//! The writer: group commit, failing operations, full and failing disks.

use std::sync::Arc;

use posthaste_core::id::EndpointId;
use posthaste_store::sqlite::SqliteStore;
use posthaste_store::{
    AcceptResult, CreateResult, HandOver, HandedOver, Store, StoreError, StoreSettings,
};

use crate::fixture::{Fixture, NOW, event, id, open, run, settings, succeed, tenant};

#[test]
fn operations_enqueued_during_a_commit_form_one_group() {
    let fixture = Fixture::acme();
    fixture.hand.shut();
    let first = fixture.accept(10);
    fixture.hand.await_writer();
    let before = (fixture.faults.commits(), fixture.faults.operations());
    let rest: Vec<_> = (0..500).map(|_| fixture.accept(10)).collect();
    fixture.hand.open();
    run(first).unwrap();
    for answer in rest {
        assert!(matches!(run(answer), Ok(AcceptResult::Done(_))));
    }
    assert_eq!(fixture.faults.operations() - before.1, 500);
    assert_eq!(fixture.faults.commits() - before.0, 1);
}

#[test]
fn a_full_write_queue_refuses_at_once() {
    let fixture = Fixture::acme_with(StoreSettings {
        max_waiting_writes: 6,
        ..settings()
    });
    assert!(run(fixture.accept(10)).is_ok());
    let delivery = fixture.hand.taken.lock().unwrap()[0].delivery.clone();
    fixture.hand.shut();
    let first = fixture.accept(10);
    fixture.hand.await_writer();
    let waiting: Vec<_> = (0..3).map(|_| fixture.accept(10)).collect();
    // Answered although the writer is blocked.
    assert_eq!(run(fixture.accept(10)), Err(StoreError::Overloaded));
    // There is still room for another tenant, and for posthaste itself.
    let other = fixture.store.create_tenant(NOW, tenant("other"));
    let written = succeed(&fixture.store, &delivery);
    let state = fixture.store.write_queue_state();
    assert_eq!((state.tenants.count, state.tenants.refused), (4, 1));
    assert_eq!((state.internal.count, state.internal.refused), (1, 0));
    assert!(state.tenants.oldest_wait >= state.internal.oldest_wait);
    fixture.hand.open();
    assert!(run(first).is_ok());
    for answer in waiting {
        assert!(run(answer).is_ok());
    }
    assert_eq!(run(other), Ok(CreateResult::Created));
    assert!(written.recv().unwrap().is_ok());
    assert_eq!(run(fixture.store.counts()).unwrap().pending, 4);
    let state = fixture.store.write_queue_state();
    assert_eq!((state.tenants.count, state.tenants.oldest_wait), (0, None));
}

#[test]
fn reads_do_not_wait_for_the_writer() {
    let fixture = Fixture::acme();
    fixture.hand.shut();
    let first = fixture.accept(10);
    fixture.hand.await_writer();
    let found = run(fixture.store.endpoint(EndpointId(1)));
    assert!(found.unwrap().is_some());
    let fetched = run(fixture.store.fetch(EndpointId(1), NOW, 9, false)).unwrap();
    assert_eq!(fetched.deliveries.len(), 1, "it is committed");
    fixture.hand.open();
    assert!(run(first).is_ok());
}

#[test]
fn a_full_disk_refuses_and_loses_nothing() {
    let fixture = Fixture::acme();
    assert!(run(fixture.accept(10)).is_ok());
    fixture.faults.limit_pages(1);
    let mut accepted = 1;
    let refused = loop {
        match run(fixture.accept(2_000)) {
            Ok(_) => accepted += 1,
            Err(why) => break why,
        }
        assert!(accepted < 100, "the disk never fills");
    };
    assert_eq!(refused, StoreError::Full);
    assert_eq!(run(fixture.store.counts()).unwrap().pending, accepted);
    let listed = run(fixture.store.fetch(EndpointId(1), NOW, 999, false)).unwrap();
    assert_eq!(listed.deliveries.len() as u64, accepted);
    fixture.faults.limit_pages(0);
    assert!(run(fixture.accept(2_000)).is_ok(), "there is room again");
    assert_eq!(run(fixture.store.counts()).unwrap().pending, accepted + 1);
    assert!(fixture.hand.broken.lock().unwrap().is_empty());
    let handed_over = fixture.hand.taken.lock().unwrap().len() as u64;
    assert_eq!(handed_over, accepted + 1, "nothing else was handed over");
}

#[test]
fn a_failing_operation_fails_alone() {
    let fixture = Fixture::acme();
    fixture.hand.shut();
    let first = fixture.accept(10);
    fixture.hand.await_writer();
    // Room for about 100 kB.
    let pages = std::fs::metadata(fixture.path()).unwrap().len() / 4_096;
    fixture.faults.limit_pages(pages as u32 + 25);
    let before = fixture.store.create_tenant(NOW, tenant("before"));
    let small = fixture.accept(10);
    let large = fixture.accept(1_000_000);
    let after = fixture.store.create_tenant(NOW, tenant("after"));
    let taken = fixture.store.create_tenant(NOW, tenant("before"));
    fixture.hand.open();
    assert!(run(first).is_ok());
    assert_eq!(run(before), Ok(CreateResult::Created));
    assert!(run(small).is_ok());
    assert_eq!(run(large), Err(StoreError::Full));
    assert_eq!(run(after), Ok(CreateResult::Created));
    assert_eq!(run(taken), Ok(CreateResult::Taken));
    assert_eq!(run(fixture.store.counts()).unwrap().pending, 2);
    // The changes of the routing table by the rolled-back group were undone, and then made once.
    for name in ["before", "after"] {
        let accepted = run(fixture.store.accept(NOW, vec![event(name, 1)]));
        assert!(matches!(accepted, Ok(AcceptResult::Done(_))), "{name}");
    }
}

#[test]
fn after_a_failed_commit_nothing_is_acknowledged() {
    let fixture = Fixture::acme();
    assert!(run(fixture.accept(10)).is_ok());
    fixture.faults.fail_next_commit();
    let failed = run(fixture.accept(10));
    assert!(
        matches!(failed, Err(StoreError::Unavailable(_))),
        "{failed:?}"
    );
    assert!(matches!(
        run(fixture.accept(10)),
        Err(StoreError::Unavailable(_))
    ));
    assert!(matches!(
        run(fixture.store.probe(NOW)),
        Err(StoreError::Unavailable(_))
    ));
    assert_eq!(fixture.hand.broken.lock().unwrap().len(), 1);
    assert_eq!(fixture.hand.taken.lock().unwrap().len(), 1);
    // Acknowledged data can still be read, and is there for the next process.
    assert!(run(fixture.store.tenant(id("acme"))).unwrap().is_some());
    assert!(run(fixture.store.close()).is_err());
    let next = open(&fixture.path()).unwrap();
    assert_eq!(run(next.counts()).unwrap().pending, 1);
}

#[test]
fn a_locked_file_is_waited_for_once() {
    let fixture = Fixture::acme();
    fixture.hand.shut();
    let first = fixture.accept(10);
    fixture.hand.await_writer();
    let before = fixture.faults.commits();
    let rest: Vec<_> = (0..3).map(|_| fixture.accept(10)).collect();
    fixture.faults.fail_next_begin();
    fixture.hand.open();
    assert!(run(first).is_ok());
    for answer in rest {
        // Each operation alone would have waited as long as all of them together.
        assert!(matches!(run(answer), Err(StoreError::Unavailable(_))));
    }
    assert_eq!(fixture.faults.commits(), before);
    assert!(run(fixture.accept(10)).is_ok());
    assert_eq!(run(fixture.store.counts()).unwrap().pending, 2);
}

#[test]
fn the_number_of_events_per_transaction_is_bounded() {
    let fixture = Fixture::acme();
    fixture.hand.shut();
    let first = fixture.accept(10);
    fixture.hand.await_writer();
    let before = fixture.faults.commits();
    let batch = || (0..1_000).map(|_| event("acme", 1)).collect();
    let rest: Vec<_> = (0..20)
        .map(|_| fixture.store.accept(NOW, batch()))
        .collect();
    fixture.hand.open();
    assert!(run(first).is_ok());
    for answer in rest {
        assert!(matches!(run(answer), Ok(AcceptResult::Done(_))));
    }
    assert_eq!(run(fixture.store.counts()).unwrap().pending, 20_001);
    let commits = fixture.faults.commits() - before;
    assert!(commits >= 3, "{commits} for twenty thousand");
}

#[test]
fn a_flood_of_one_tenant_delays_others_by_one_group() {
    let fixture = Fixture::acme();
    let other = fixture.store.create_tenant(NOW, tenant("other"));
    assert_eq!(run(other), Ok(CreateResult::Created));
    fixture.add_endpoint(2, "other");
    assert!(run(fixture.accept(10)).is_ok());
    let delivery = fixture.hand.taken.lock().unwrap()[0].delivery.clone();
    fixture.hand.shut();
    let first = fixture.accept(10);
    fixture.hand.await_writer();
    let batch = || (0..400).map(|_| event("acme", 1)).collect();
    let flood: Vec<_> = (0..40)
        .map(|_| fixture.store.accept(NOW, batch()))
        .collect();
    let between = fixture.store.accept(NOW, vec![event("other", 1)]);
    let written = succeed(&fixture.store, &delivery);
    let before = fixture.hand.taken.lock().unwrap().len();
    fixture.hand.pass();
    fixture.hand.pass();
    assert!(run(first).is_ok());
    assert!(run(between).is_ok());
    assert!(written.recv().unwrap().is_ok());
    let passed = fixture.hand.taken.lock().unwrap().len() - before;
    assert!(
        passed <= 1_500,
        "{passed} of 16,000 before the other tenant"
    );
    fixture.hand.open();
    for answer in flood {
        assert!(matches!(run(answer), Ok(AcceptResult::Done(_))));
    }
    let (most_rows, _) = fixture.faults.take_largest();
    assert!(most_rows <= 2_048 + 802, "{most_rows}");
}

/// A hand-over that panics.
struct Clumsy;

impl HandOver for Clumsy {
    fn accepted(&self, _: Vec<HandedOver>) {
        panic!("as it was told to");
    }

    fn broken(&self, _: &StoreError) {}
}

#[test]
fn a_store_whose_writer_panicked_can_be_closed() {
    let fixture = Fixture::acme();
    let path = fixture.path();
    run(fixture.store.close()).unwrap();
    let store = SqliteStore::open(&path, settings(), Arc::new(Clumsy)).unwrap();
    let fallen = Err(StoreError::Unavailable(
        "the store's thread has stopped".to_owned(),
    ));
    assert_eq!(
        run(store.accept(NOW, vec![event("acme", 1)])).map(|_| ()),
        fallen
    );
    assert_eq!(run(store.close()), fallen);
    drop(store);
    // The event was committed before the hand-over, so it is there.
    assert_eq!(run(open(&path).unwrap().counts()).unwrap().pending, 1);
}

#[test]
fn ids_are_handed_over_in_increasing_order() {
    let fixture = Fixture::acme();
    fixture.add_endpoint(2, "acme");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let Ok(AcceptResult::Done(done)) = run(fixture.accept(10)) else {
                        panic!("it is not accepted");
                    };
                    let last = done[0].event.deliveries.last().unwrap().id;
                    let taken = fixture.hand.taken.lock().unwrap();
                    let found = taken.iter().any(|it| it.delivery.id() == last);
                    assert!(found, "answered before it was handed over");
                }
            });
        }
    });
    let taken = fixture.hand.taken.lock().unwrap();
    assert_eq!(taken.len(), 400);
    assert!(taken.is_sorted_by(|a, b| a.delivery.id() < b.delivery.id()));
}

#[test]
fn a_dropped_store_has_written_all_operations() {
    let fixture = Fixture::acme();
    let answers: Vec<_> = (0..50).map(|_| fixture.accept(10)).collect();
    drop(answers);
    let path = fixture.path();
    let Fixture {
        store, directory, ..
    } = fixture;
    drop(store);
    assert_eq!(run(open(&path).unwrap().counts()).unwrap().pending, 50);
    drop(directory);
}

#[test]
fn results_and_events_share_a_commit() {
    let fixture = Fixture::acme();
    assert!(run(fixture.accept(10)).is_ok());
    let waiting = fixture.hand.taken.lock().unwrap()[0].delivery.clone();
    fixture.hand.shut();
    let blocking = fixture.accept(10);
    fixture.hand.await_writer();
    let before = fixture.faults.commits();
    let written = succeed(&fixture.store, &waiting);
    let accepted = fixture.accept(10);
    fixture.hand.open();
    assert!(run(blocking).is_ok());
    assert!(run(accepted).is_ok());
    assert!(written.recv().unwrap().is_ok());
    assert_eq!(fixture.faults.commits() - before, 1);
    assert_eq!(run(fixture.store.counts()).unwrap().pending, 2);
}
