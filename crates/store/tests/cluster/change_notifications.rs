//! Notifications between nodes (`NOTIFY`), and what is found without them.

use std::time::Duration;

use posthaste_core::id::EndpointId;
use posthaste_core::time::Timestamp;
use posthaste_store::Change;
use serde_json::json;

use crate::fixture::{ClusterEvent, Fixture, Node, wait};

const LONG: u64 = 20_000;

/// Logs a change as the store does when a tenant is changed.
const CHANGE: &str = "WITH last AS (UPDATE directory SET last_change = last_change + 1 RETURNING last_change) \
     INSERT INTO changes (no, kind, id) SELECT last_change, 0, 'acme' FROM last";

fn changes_of_acme(fixture: &Fixture, name: &str) -> usize {
    let acme = Change::Tenant("acme".parse().expect("a name"));
    let events = fixture.events();
    let of = events.iter().filter(|(to, _)| *to == name);
    of.map(|(_, event)| match event {
        ClusterEvent::Changed(changes) => changes.iter().filter(|change| **change == acme).count(),
        ClusterEvent::Granted(_)
        | ClusterEvent::Revoked(_)
        | ClusterEvent::Expired
        | ClusterEvent::Work(_)
        | ClusterEvent::Missed
        | ClusterEvent::Asked(_) => 0,
    })
    .sum()
}

fn informed(fixture: &Fixture, node: &Node) {
    fixture.until("being informed", || node.cluster.is_up_to_date());
}

#[test]
fn every_node_is_notified_of_a_change_once() {
    let fixture = Fixture::new();
    let a = fixture.node("a", LONG);
    let b = fixture.node("b", LONG);
    informed(&fixture, &a);
    informed(&fixture, &b);
    fixture.database.run(CHANGE);
    fixture.until("the change", || {
        changes_of_acme(&fixture, "a") == 1 && changes_of_acme(&fixture, "b") == 1
    });
    fixture.database.run(CHANGE);
    fixture.until("another", || {
        changes_of_acme(&fixture, "a") == 2 && changes_of_acme(&fixture, "b") == 2
    });
}

#[test]
fn deleted_changes_are_reported_as_missed() {
    let fixture = Fixture::new();
    let a = fixture.node("a", LONG);
    informed(&fixture, &a);
    let missed = || {
        let events = fixture.events();
        events
            .iter()
            .filter(|(_, event)| *event == ClusterEvent::Missed)
            .count()
    };
    assert_eq!(
        missed(),
        1,
        "no node got a notification before the first look"
    );
    fixture
        .database
        .run("UPDATE directory SET last_change = last_change + 1");
    fixture.until("a gap", || missed() == 2);
    fixture.database.run(CHANGE);
    fixture.until("the next", || changes_of_acme(&fixture, "a") == 1);
    assert_eq!(missed(), 2);
}

#[test]
fn a_node_that_cannot_read_the_change_log_is_not_informed() {
    let fixture = Fixture::new();
    let a = fixture.node("a", LONG);
    informed(&fixture, &a);
    a.link.set_shut(true);
    fixture.until("not being informed", || !a.cluster.is_up_to_date());
    a.link.set_shut(false);
    informed(&fixture, &a);
}

#[test]
fn work_is_reported_after_the_listener_connection_was_lost() {
    let fixture = Fixture::new();
    let a = fixture.node("a", LONG);
    let listening = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%LISTEN posthaste%' \
         AND datname = current_database() AND pid <> pg_backend_pid()";
    fixture.until("a node that listens", || {
        !fixture.database.run(listening).is_empty()
    });
    let work = |number: u128| ClusterEvent::Work(vec![(EndpointId(number), Timestamp(77))]);
    fixture.announce_work(&a, 1);
    fixture.until("work", || {
        fixture.has_received("a", |event| *event == work(1))
    });
    let before = fixture.database.run(listening);
    fixture
        .database
        .run(&format!("SELECT pg_terminate_backend({})", before[0]));
    fixture.until("another node that listens", || {
        let now = fixture.database.run(listening);
        !now.is_empty() && now != before
    });
    fixture.until("work again", || {
        fixture.announce_work(&a, 2);
        fixture.has_received("a", |event| *event == work(2))
    });
}

#[test]
fn without_notify_everything_is_found_by_polling() {
    let fixture = Fixture::new();
    // `NOTIFY` stays within a database: a listener in another one receives nothing, as behind a pooling proxy.
    let elsewhere = fixture.database.url().with_database("postgres");
    let deaf = |name| {
        let listen = elsewhere.clone();
        fixture.node_with(name, LONG, |settings| settings.listen = Some(listen))
    };
    let a = deaf("a");
    let b = deaf("b");
    fixture.until("an even share", || a.owns() == 128 && b.owns() == 128);
    informed(&fixture, &a);
    fixture.database.run(CHANGE);
    fixture.until("the change", || changes_of_acme(&fixture, "a") == 1);
    let within = Duration::from_secs(30);
    let answer = wait(a.cluster.ask(b.cluster.me(), json!("?"), within));
    assert_eq!(answer, Ok(json!({ "by": "b", "to": "?" })));
    wait(a.cluster.retire()).expect("it goes");
    fixture.until("all of it", || b.owns() == 256);
}
