//! Failures that count as failures of the link to the database, and those that do not.
//!
//! A lock on a table makes statements fail at their time limit, while heartbeats, which do not use the table, go on.

use posthaste_core::cluster::RoundTrips;
use posthaste_core::id::EndpointId;
use posthaste_core::time::Span;
use posthaste_store::{Store, StoreError};

use crate::fixture::{Fixture, Node, wait};
use crate::ownership::{NOW, accept, make, record, succeeded, waiting};

const LEASE: u64 = 6_000;
const ENDPOINT: EndpointId = EndpointId(7);
/// The duration that round trips which fail again and again count for.
const FAILED: Span = Span::from_secs(6);
/// Number of operations that fail: as many as it takes to count.
const FAILURES: usize = 2;

/// Returns the median round trips of the node, after heartbeats that report everything so far.
fn reported(fixture: &Fixture, node: &Node) -> RoundTrips {
    let beat = || -> u64 {
        let beats = fixture.database.run("SELECT beat FROM beats");
        beats[0].parse().expect("a number")
    };
    let enough = beat() + 3;
    fixture.until("three heartbeats", || beat() >= enough);
    let nodes = wait(node.cluster.list_nodes()).expect("a read");
    nodes[0].round_trips
}

#[test]
fn a_fetch_that_takes_too_long_is_no_failure_of_the_link() {
    let fixture = Fixture::new();
    let node = fixture.node("a", LEASE);
    make(&node, ENDPOINT);
    let lock = fixture.hold("LOCK TABLE waiting IN ACCESS EXCLUSIVE MODE");
    let fetches = [(); FAILURES].map(|()| node.store.fetch(ENDPOINT, NOW, 10, false));
    for fetch in fetches {
        let fetched = wait(fetch);
        assert!(
            matches!(fetched, Err(StoreError::Unavailable(_))),
            "{fetched:?}"
        );
    }
    assert_eq!(reported(&fixture, &node).fetch, None);
    lock.finish();
}

#[test]
fn a_record_that_fails_before_its_commit_is_a_failure_of_the_link() {
    let fixture = Fixture::new();
    let node = fixture.node("a", LEASE);
    fixture.until("all shards", || node.owns() == 256);
    make(&node, ENDPOINT);
    accept(&node);
    let deliveries = waiting(&node, ENDPOINT);
    // The first record of an endpoint reads the scopes that it is counted in.
    let lock = fixture.hold("LOCK TABLE endpoints IN ACCESS EXCLUSIVE MODE");
    for _ in 0..FAILURES {
        let recorded = wait(record(&node, succeeded(&deliveries[0])));
        assert!(
            matches!(recorded, Err(StoreError::Unavailable(_))),
            "{recorded:?}"
        );
    }
    assert_eq!(reported(&fixture, &node).record, Some(FAILED));
    lock.finish();
    let recorded = wait(record(&node, succeeded(&deliveries[0])));
    assert!(recorded.is_ok(), "{recorded:?}");
}
