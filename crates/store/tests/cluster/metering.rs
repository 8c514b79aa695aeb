//! Shards that are released while events of a tenant with a quota wait.

use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use posthaste_core::time::Timestamp;
use posthaste_store::{AcceptResult, Content, NewEvent, Quotas, Store, Tenant};

use crate::fixture::{ClusterEvent, Fixture, wait};

/// Long enough for a busy machine, and short enough to wait for a heartbeat.
const LEASE: u64 = 5_000;
const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn tenant() -> Tenant {
    Tenant::new("acme".parse().expect("a name"), "Acme".to_owned(), NOW)
}

fn event() -> NewEvent {
    NewEvent::new(
        "acme".parse().expect("a name"),
        Content::new(
            "invoice.paid".parse().expect("a type"),
            Bytes::from_static(b"{}"),
        ),
    )
}

/// Events routed while this node owned the shards are committed before the shards go to another node, which reads
/// only once.
#[test]
fn shards_are_released_after_metered_writes() {
    let fixture = Fixture::new();
    let a = fixture.node("a", LEASE);
    wait(a.store.create_tenant(NOW, tenant())).expect("it is made");
    let limited = Quotas {
        per_second: Some(100),
        per_month: None,
    };
    let accept = || a.store.accept_within(NOW, vec![event()], limited);
    assert!(matches!(wait(accept()), Ok(AcceptResult::Done(_))));
    let held = fixture.hold("SELECT 1 FROM meters FOR UPDATE");
    let mut waits = accept();
    let waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() \
                   AND wait_event_type = 'Lock' AND query LIKE '%FROM meters%'";
    fixture.until("a session that waits for the meter", || {
        !fixture.database.run(waiting).is_empty()
    });
    let b = fixture.node("b", LEASE);
    fixture.until("half recalled", || {
        let events = fixture.events();
        let revoked = events
            .iter()
            .filter(|(_, event)| matches!(event, ClusterEvent::Revoked(_)));
        revoked.count() == 128
    });
    wait(a.store.probe(NOW)).expect("it writes");
    let me = a.cluster.me().0;
    let beat = || -> u64 {
        let beat = format!("SELECT beat FROM beats WHERE node = {me}");
        fixture.database.run(&beat)[0].parse().expect("a number")
    };
    // After one heartbeat the node would have released them by now.
    let enough = beat() + 2;
    let owned = format!("SELECT count(*) FROM shards WHERE owner = {me}");
    let mut answered = None;
    while answered.is_none() && beat() < enough {
        let owned = fixture.database.run(&owned);
        // An event that waits too long is answered. Only then may the shards be released without it.
        answered = match waits.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        };
        assert!(answered.is_some() || owned == ["256"], "{owned:?}");
    }
    held.finish();
    if answered.is_none() {
        assert!(matches!(wait(waits), Ok(AcceptResult::Done(_))));
    }
    fixture.until("an even share", || a.owns() == 128 && b.owns() == 128);
}
