//! Ownership of shards.

use posthaste_core::cluster::{NodeNo, Shard};
use posthaste_store::{Owner, Store};

use crate::fixture::{ClusterEvent, Fixture, wait};

/// A lease long enough for a busy machine, and one short enough for a test to wait for its end.
const LONG: u64 = 20_000;
const SHORT: u64 = 3_000;

#[test]
fn shards_are_divided_and_taken_over_when_a_node_leaves() {
    let fixture = Fixture::new();
    let a = fixture.node("a", LONG);
    assert_eq!(
        a.owns(),
        256,
        "alone it owns everything as soon as it is open"
    );
    let b = fixture.node("b", LONG);
    fixture.until("an even share", || a.owns() == 128 && b.owns() == 128);
    let c = fixture.node("c", LONG);
    fixture.until("a third each", || {
        let mut shares = [a.owns(), b.owns(), c.owns()];
        shares.sort_unstable();
        shares == [85, 85, 86]
    });
    fixture.until("every node knowing who owns what", || {
        Shard::all().all(|shard| {
            let owner = [&a, &b, &c].map(|node| match node.cluster.owner(shard) {
                Owner::Me => Some(node.cluster.me()),
                Owner::Other(other) => Some(other),
                Owner::None => None,
            });
            owner[0].is_some() && owner[0] == owner[1] && owner[1] == owner[2]
        })
    });
    assert_eq!(a.cluster.nodes().len(), 3);
    wait(b.cluster.retire()).expect("it goes");
    assert_eq!(b.owns(), 0);
    fixture.until("its share", || a.owns() == 128 && c.owns() == 128);
    wait(a.store.close()).expect("it closes");
    fixture.until("all of it", || c.owns() == 256);
    let left = fixture.database.run("SELECT name FROM nodes");
    assert_eq!(left, ["c"]);
    assert!(!fixture.has_received("b", |event| *event == ClusterEvent::Expired));
}

#[test]
fn a_revoked_shard_is_kept_until_nothing_is_in_flight() {
    let fixture = Fixture::new();
    let a = fixture.node("a", LONG);
    fixture.keep_revoked("a");
    let b = fixture.node("b", LONG);
    fixture.until("half recalled", || fixture.kept().len() == 128);
    assert_eq!((a.owns(), b.owns()), (256, 0));
    let first = fixture.kept()[5];
    fixture.finish(first);
    fixture.until("the first", || b.owns() == 1);
    assert_eq!(b.store.owned_shards(), [first]);
    assert_eq!(a.owns(), 255);
    assert_eq!(fixture.kept().len(), 127);
    for shard in fixture.kept() {
        fixture.finish(shard);
    }
    fixture.until("the rest", || b.owns() == 128);
}

#[test]
fn a_node_without_renewal_stops_before_the_takeover() {
    let fixture = Fixture::new();
    let a = fixture.node("a", SHORT);
    let b = fixture.node("b", SHORT);
    fixture.until("an even share", || a.owns() == 128 && b.owns() == 128);
    let number = a.cluster.me();
    a.link.set_shut(true);
    fixture.until("all of it", || b.owns() == 256);
    let events = fixture.events();
    let expired = events
        .iter()
        .position(|event| *event == ("a", ClusterEvent::Expired));
    let taken = events
        .iter()
        .rposition(|(name, event)| *name == "b" && matches!(event, ClusterEvent::Granted(_)));
    assert!(
        expired < taken && expired.is_some(),
        "{expired:?} {taken:?}"
    );
    assert_eq!(a.owns(), 0);
    assert_eq!(a.cluster.lease().begin_by().0, 0);
    a.link.set_shut(false);
    fixture.until("a share for who came back", || a.owns() == 128);
    assert_ne!(a.cluster.me(), number, "it is another node now");
}

#[test]
fn a_frozen_node_owns_nothing_and_registers_again() {
    let fixture = Fixture::new();
    let a = fixture.node("a", SHORT);
    let b = fixture.node("b", SHORT);
    fixture.until("an even share", || a.owns() == 128 && b.owns() == 128);
    let number = a.cluster.me();
    fixture.freeze("a");
    // It blocks at its next event.
    fixture.announce_work(&a, 9);
    fixture.until("all of it", || b.owns() == 256);
    assert_eq!(a.owns(), 128, "it stands still");
    fixture.resume();
    fixture.until("an end", || {
        fixture.has_received("a", |event| *event == ClusterEvent::Expired)
    });
    fixture.until("a share for who came back", || a.owns() == 128);
    assert_ne!(a.cluster.me(), number);
}

#[test]
fn a_takeover_waits_for_the_last_commit_of_a_dead_node() {
    let fixture = Fixture::new();
    let a = fixture.node("a", SHORT);
    let b = fixture.node("b", SHORT);
    fixture.until("an even share", || a.owns() == 128 && b.owns() == 128);
    // The lock that its writer takes for a write that requires ownership.
    let number = a.cluster.me().0;
    let commit = fixture.hold(&format!(
        "SELECT 1 FROM nodes WHERE no = {number} FOR SHARE"
    ));
    a.link.set_shut(true);
    fixture.until("a session that waits for the commit", || {
        let waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
             AND query LIKE '%strike_off%' AND datname = current_database()";
        !fixture.database.run(waiting).is_empty()
    });
    assert_eq!(b.owns(), 128);
    commit.finish();
    fixture.until("all of it", || b.owns() == 256);
    a.link.set_shut(false);
}

#[test]
fn an_api_node_owns_nothing() {
    let fixture = Fixture::new();
    let api = fixture.node_with("api", LONG, |settings| settings.wants_shards = false);
    let worker = fixture.node("worker", LONG);
    assert_eq!(worker.owns(), 256);
    fixture.until("knowing it", || {
        Shard::all().all(|shard| api.cluster.owner(shard) == Owner::Other(worker.cluster.me()))
    });
    assert_eq!(api.owns(), 0);
    assert_ne!(api.cluster.me(), NodeNo(0));
    wait(worker.cluster.retire()).expect("it goes");
    fixture.until("knowing that no node does", || {
        Shard::all().all(|shard| api.cluster.owner(shard) == Owner::None)
    });
}
