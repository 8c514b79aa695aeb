//! Concurrency shares of nodes.

use posthaste_core::cluster::{ShareGrant, SlotDemand};
use posthaste_core::dispatcher::TenantDemand;
use posthaste_core::id::TenantId;
use posthaste_core::rng::Rng;
use posthaste_store::{Answer, Store, StoreError};

use crate::engines::Database;
use crate::fixture::{NOW, Node, REFUSE_REGISTRATIONS, acme, event, node, one, run};

fn globex() -> TenantId {
    "globex".parse().expect("a name")
}

/// Asks for a node's concurrency share. Returns its slots and how many of them are usable.
fn ask(node: &Node, most: u32, in_force: u32, under_way: u32, wants: u32) -> (u32, u32) {
    let grant = one_share(run(asks(node, acme(), most, in_force, under_way, wants)));
    (grant.slots, grant.usable)
}

fn asks(
    node: &Node,
    tenant: TenantId,
    most: u32,
    in_force: u32,
    under_way: u32,
    wants: u32,
) -> Answer<Vec<ShareGrant>> {
    let ask = SlotDemand {
        in_force,
        under_way,
        wants,
    };
    let cluster = node.store.cluster().expect("it can be shared");
    cluster.request_shares(vec![TenantDemand { tenant, most, ask }])
}

fn one_share(shares: Result<Vec<ShareGrant>, StoreError>) -> ShareGrant {
    let [grant] = shares.expect("it is told")[..] else {
        panic!("one was asked for");
    };
    grant
}

#[test]
fn nodes_share_the_concurrency_limit_of_a_tenant() {
    let database = Database::create();
    let (here, there) = (node(&database, 1), node(&database, 2));
    here.create_tenant_and_endpoint();
    let grant = |slots: u32, usable: u32| (slots, usable);
    assert_eq!(ask(&here, 1, 0, 0, 1), grant(1, 1));
    assert_eq!(ask(&there, 1, 0, 0, 1), grant(0, 0), "there is one");
    // Asked to give up its slot, the node does so when nothing is in flight, and not before.
    assert_eq!(ask(&here, 1, 1, 1, 1), grant(1, 0));
    assert_eq!(ask(&here, 1, 0, 1, 1), grant(1, 0));
    assert_eq!(ask(&there, 1, 0, 0, 1), grant(0, 0));
    assert_eq!(ask(&here, 1, 0, 0, 1), grant(0, 0));
    assert_eq!(ask(&there, 1, 0, 0, 1), grant(1, 1));
    // The slots of a node that was removed from the membership are free again, and the node has none.
    let other = there.store.cluster().expect("it can be shared").me();
    let remove_node = format!("DELETE FROM nodes WHERE no = {}", other.0);
    database.run(&format!("{remove_node}; {REFUSE_REGISTRATIONS}"));
    assert_eq!(ask(&here, 1, 0, 0, 1), grant(1, 1));
    assert_eq!(ask(&there, 1, 1, 1, 1), grant(0, 0));
    // An unchanged share is not written again.
    let me = here.store.cluster().expect("it can be shared").me().0;
    let written = format!("SELECT xmin::text || ' ' || ctid::text FROM grants WHERE node = {me}");
    let before = database.run(&written);
    assert_eq!((ask(&here, 1, 1, 0, 1), before.len()), (grant(1, 1), 1));
    assert_eq!(database.run(&written), before);
    // The shares of a tenant are deleted with it.
    run(here.store.delete_tenant(NOW, acme())).expect("it is deleted");
    assert_eq!(ask(&here, 1, 0, 0, 0), grant(0, 0));
    assert_eq!(database.run("SELECT count(*) FROM grants"), ["0"]);
}

#[test]
fn concurrency_shares_are_granted_while_the_writer_waits() {
    let database = Database::create();
    let node = node(&database, 1);
    node.create_tenant_and_endpoint();
    // The lock that a change of the directory takes.
    let held = database.hold("SELECT pg_advisory_xact_lock(70530001)");
    let waits = node.store.accept(NOW, vec![event(None)]);
    let waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    while database.run(waiting).is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(ask(&node, 3, 0, 0, 2), (2, 2));
    assert!(!database.run(waiting).is_empty(), "it still waits");
    held.finish();
    assert!(one(run(waits).expect("it is accepted")).is_new);
}

#[test]
fn shares_of_another_tenant_are_granted_without_waiting() {
    let database = Database::create();
    let (here, there) = (node(&database, 1), node(&database, 2));
    here.create_tenant_and_endpoint();
    here.create_tenant(globex());
    assert_eq!(ask(&here, 3, 0, 0, 1), (1, 1));
    let held = database.hold("SELECT 1 FROM grants FOR UPDATE");
    let waits = asks(&here, acme(), 3, 1, 1, 2);
    let waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() \
                   AND wait_event_type = 'Lock' AND query LIKE '%INTO grants%'";
    while database.run(waiting).is_empty() {
        std::thread::yield_now();
    }
    let grant = one_share(run(asks(&there, globex(), 3, 0, 0, 3)));
    assert_eq!((grant.slots, grant.usable), (3, 3));
    assert!(!database.run(waiting).is_empty(), "it still waits");
    held.finish();
    assert_eq!(one_share(run(waits)).slots, 2);
}

#[test]
fn concurrent_requests_never_exceed_the_concurrency_limit() {
    const MOST: u32 = 5;
    let database = Database::create();
    let nodes = [1, 2, 3].map(|seed| node(&database, seed));
    nodes[0].create_tenant_and_endpoint();
    nodes[0].create_tenant(globex());
    let ask_again_and_again = |seed: u64, node: &Node| {
        let mut rng = Rng::seeded(seed);
        let mut usable = [0; 2];
        for _ in 0..60 {
            let which = rng.between(0, 1) as usize;
            let tenant = [acme(), globex()][which].clone();
            let under_way = rng.between(0, usable[which].into()) as u32;
            let wants = rng.between(under_way.into(), MOST.into()) as u32;
            // Before it asks, a node has stopped using the slots it does not want.
            let in_force = usable[which].min(wants);
            let asked = asks(node, tenant, MOST, in_force, under_way, wants);
            usable[which] = one_share(run(asked)).usable;
        }
    };
    std::thread::scope(|scope| {
        let asking: Vec<_> = (1..)
            .zip(&nodes)
            .map(|(seed, node)| scope.spawn(move || ask_again_and_again(seed, node)))
            .collect();
        let most = "SELECT coalesce(max(slots), 0) FROM \
                    (SELECT sum(slots) AS slots FROM grants GROUP BY tenant_no) AS by_tenant";
        while asking.iter().any(|one| !one.is_finished()) {
            let slots: u32 = database.run(most)[0].parse().expect("a number");
            assert!(slots <= MOST, "{slots} slots");
        }
    });
}
