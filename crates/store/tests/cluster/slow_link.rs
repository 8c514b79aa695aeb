//! A node with a slow link to the database: the others do not wait for it, and it gives its shards away.
//!
//! The link is a TCP proxy that delays everything. While the slow node writes, a quick node accepts events one after the
//! other. An accept that waits for a lock that the slow node holds during a round trip takes at least as long as that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use posthaste_core::cluster::{Capacity, Shard};
use posthaste_core::id::{EndpointId, KeyId};
use posthaste_core::lane::{EndpointStatus, Health, LimitOverrides, ProtectionOverrides};
use posthaste_core::sign::SignatureStyle;
use posthaste_core::time::Timestamp;
use posthaste_store::{
    AcceptResult, ApiKey, Content, CreateResult, Endpoint, KeyHash, Limits, NewEvent,
    ReplaceResult, ReplayFilter, ReplayScope, ReplayStatus, Store, StoredStatus, Tenant,
};
use posthaste_testbed::TcpProxy;

use crate::fixture::{Fixture, Node, wait};

const LEASE: u64 = 6_000;
const NOW: Timestamp = Timestamp(1_700_000_000_000);
/// Delay in each direction.
const DELAY_MS: u64 = 250;
/// Maximum time of an accept by the quick node: half a round trip of the slow one.
const QUICK: Duration = Duration::from_millis(DELAY_MS);

fn tenant(id: &str) -> Tenant {
    Tenant {
        plan: None,
        id: id.parse().expect("a name"),
        name: id.to_owned(),
        default_retry_policy: None,
        sealed_keys: Vec::new(),
        limits: Limits::default(),
        endpoint_defaults: LimitOverrides::default(),
        protection: ProtectionOverrides::default(),
        created_at: NOW,
        revision: 0,
    }
}

fn endpoint(id: EndpointId) -> Endpoint {
    Endpoint {
        id,
        tenant: "acme".parse().expect("a name"),
        url: format!("https://example.com/{}", id.0),
        description: String::new(),
        event_types: Vec::new(),
        retry_policy: None,
        limits: LimitOverrides::default(),
        protection: ProtectionOverrides::default(),
        ordered: false,
        sealed_headers: Vec::new(),
        sealed_keys: Vec::new(),
        signature_style: SignatureStyle::Standard,
        sealed_credentials: Vec::new(),
        owner_email: None,
        owner_email_confirmed: true,
        is_origin: false,
        created_at: NOW,
        revision: 0,
    }
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

/// An operation of the slow node.
type SlowOperation<'a> = Box<dyn FnOnce() + Send + 'a>;

/// A quick node and a slow one.
struct Pair {
    fixture: Fixture,
    quick: Node,
    slow: Node,
    proxy: TcpProxy,
}

impl Pair {
    /// Starts both with a quick link, and waits until each owns half of the shards.
    fn start() -> Pair {
        let fixture = Fixture::new();
        let proxy = fixture.database.proxy();
        let url = fixture.database.url_via(&proxy);
        let quick = fixture.node("quick", LEASE);
        let slow = fixture.node_with("slow", LEASE, |settings| settings.server = url);
        let pair = Pair {
            fixture,
            quick,
            slow,
            proxy,
        };
        pair.until_even();
        wait(pair.quick.store.create_tenant(NOW, tenant("acme"))).expect("it is made");
        pair
    }

    fn until_even(&self) {
        self.fixture.until("an even share", || {
            self.quick.owns() == 128 && self.slow.owns() == 128
        });
    }

    /// Waits until the slow node knows from a heartbeat that its link is slow: the one that was sent before the delay may
    /// not show it.
    fn until_slow_heartbeats(&self) {
        let me = self.slow.cluster.me().0;
        let beat = format!("SELECT beat FROM beats WHERE node = {me}");
        let beat = || -> u64 {
            self.fixture.database.run(&beat)[0]
                .parse()
                .expect("a number")
        };
        let enough = beat() + 3;
        self.fixture.until("three heartbeats", || beat() >= enough);
    }

    /// Returns an id of an endpoint that the slow node owns.
    fn endpoint_of_slow(&self, from: u128) -> EndpointId {
        let owned = self.slow.store.owned_shards();
        let mut ids = (from..).map(EndpointId);
        ids.find(|id| owned.contains(&Shard::of(*id)))
            .expect("it owns some")
    }

    fn accept(&self) {
        let accepted = wait(
            self.quick
                .store
                .accept_within(NOW, vec![event()], Default::default()),
        );
        assert!(
            matches!(accepted, Ok(AcceptResult::Done(_))),
            "{accepted:?}"
        );
    }

    /// Runs an operation of the slow node, and returns the longest time that an accept or a probe of the quick node took
    /// meanwhile.
    fn longest_while(&self, operation: impl FnOnce() + Send) -> Duration {
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            let operation = scope.spawn(|| {
                operation();
                is_done.store(true, Ordering::SeqCst);
            });
            let mut longest = Duration::ZERO;
            while !operation.is_finished() {
                let began = Instant::now();
                self.accept();
                wait(self.quick.store.probe(NOW)).expect("it is written");
                longest = longest.max(began.elapsed());
            }
            operation.join().expect("no panic");
            longest
        })
    }
}

#[test]
fn accepts_of_other_nodes_do_not_wait_for_writes_over_a_slow_link() {
    let pair = Pair::start();
    let store = &pair.slow.store;
    let id = pair.endpoint_of_slow(1);
    wait(store.create_endpoint(NOW, endpoint(id), 100)).expect("it is made");
    pair.accept();
    pair.proxy.delay(DELAY_MS..=DELAY_MS, 1);
    pair.until_slow_heartbeats();
    let other = pair.endpoint_of_slow(1_000_000);
    let key = |number: u128| ApiKey {
        id: KeyId(number),
        tenant: Some("acme".parse().expect("a name")),
        name: "key".to_owned(),
        hash: KeyHash([number as u8; 32]),
        created_at: NOW,
    };
    let acme = || key(1).tenant.expect("it has one");
    for number in [1, 2] {
        let made = wait(pair.quick.store.create_key(NOW, key(number)));
        assert_eq!(made, Ok(CreateResult::Created));
    }
    let filter = ReplayFilter {
        endpoint: None,
        event_type: None,
        error_kind: None,
        since: None,
        until: None,
        scope: ReplayScope::Ended(StoredStatus::Failed),
    };
    let made = wait(pair.quick.store.create_replay(NOW, acme(), filter.clone()));
    let replay = made.expect("it is made").id;
    let operations: [(&str, SlowOperation<'_>); 10] = [
        // First, because the node soon gives its shards away.
        (
            "pause an endpoint",
            Box::new(|| {
                let health = Some(Health::default());
                let status = EndpointStatus::Paused;
                let set = wait(store.set_endpoint_status(NOW, id, status, None, health));
                assert_eq!(set, Ok(true));
            }),
        ),
        (
            "probe",
            Box::new(|| wait(store.probe(NOW)).expect("it is written")),
        ),
        (
            "create a tenant",
            Box::new(|| {
                let made = wait(store.create_tenant(NOW, tenant("other")));
                assert_eq!(made, Ok(CreateResult::Created));
            }),
        ),
        (
            "replace a tenant",
            Box::new(|| {
                let made = wait(store.replace_tenant(NOW, tenant("other")));
                assert_eq!(made, Ok(ReplaceResult::Done));
            }),
        ),
        (
            "create an endpoint",
            Box::new(|| {
                let made = wait(store.create_endpoint(NOW, endpoint(other), 100));
                assert_eq!(made, Ok(CreateResult::Created));
            }),
        ),
        (
            "replace an endpoint",
            Box::new(|| {
                let made = wait(store.replace_endpoint(NOW, endpoint(other)));
                assert_eq!(made, Ok(ReplaceResult::Done));
            }),
        ),
        (
            "create a replay",
            Box::new(|| {
                let made = wait(store.create_replay(NOW, acme(), filter.clone()));
                assert_eq!(made.map(|made| made.total), Ok(0));
            }),
        ),
        (
            "cancel a replay",
            Box::new(|| {
                let cancelled = wait(store.cancel_replay(NOW, acme(), replay));
                let cancelled = cancelled.expect("it is written").expect("it is there");
                assert_eq!(cancelled.status, ReplayStatus::Cancelled);
            }),
        ),
        (
            "revoke a key",
            Box::new(|| {
                let revoked = wait(store.revoke_key(NOW, Some(acme()), KeyId(1)));
                assert_eq!(revoked, Ok(true));
            }),
        ),
        (
            "delete a tenant",
            Box::new(|| {
                let id = tenant("other").id;
                assert_eq!(wait(store.delete_tenant(NOW, id)), Ok(Some(Vec::new())));
            }),
        ),
    ];
    for (name, operation) in operations {
        let longest = pair.longest_while(operation);
        eprintln!("{name}: the longest accept took {longest:?}");
        assert!(longest < QUICK, "{name}: an accept took {longest:?}");
    }
    let row = wait(pair.quick.store.endpoint(id)).expect("a read");
    assert_eq!(row.map(|row| row.status), Some(EndpointStatus::Paused));
}

#[test]
fn a_change_over_a_slow_link_sees_concurrent_changes() {
    let pair = Pair::start();
    let id = pair.endpoint_of_slow(1);
    wait(pair.quick.store.create_endpoint(NOW, endpoint(id), 100)).expect("it is made");
    pair.proxy.delay(DELAY_MS..=DELAY_MS, 1);
    pair.until_slow_heartbeats();
    // Both create the same tenant, and both change the same revision: one of each fails.
    let (made, replaced) = thread::scope(|scope| {
        let made = scope.spawn(|| {
            let other = || tenant("other");
            let slow = pair.slow.store.create_tenant(NOW, other());
            thread::sleep(Duration::from_millis(3 * DELAY_MS));
            let quick = wait(pair.quick.store.create_tenant(NOW, other()));
            [quick, wait(slow)]
        });
        let made = made.join().expect("no panic");
        let slow = pair.slow.store.replace_endpoint(NOW, endpoint(id));
        thread::sleep(Duration::from_millis(3 * DELAY_MS));
        let quick = wait(pair.quick.store.replace_endpoint(NOW, endpoint(id)));
        (made, [quick, wait(slow)])
    });
    assert_eq!(made, [Ok(CreateResult::Created), Ok(CreateResult::Taken)]);
    assert_eq!(
        replaced,
        [Ok(ReplaceResult::Done), Ok(ReplaceResult::Outdated)]
    );
    // The tenant is deleted with all endpoints that are created meanwhile.
    let other = tenant("other").id;
    let deleted = pair.slow.store.delete_tenant(NOW, other.clone());
    let mut expected = Vec::new();
    for number in 0..6 {
        thread::sleep(Duration::from_millis(2 * DELAY_MS));
        let id = EndpointId(2_000_000 + number);
        let of_other = Endpoint {
            tenant: other.clone(),
            ..endpoint(id)
        };
        match wait(pair.quick.store.create_endpoint(NOW, of_other, 100)) {
            Ok(CreateResult::Created) => expected.push(id),
            made => assert_eq!(made, Ok(CreateResult::NoSuchTenant)),
        }
    }
    assert!(!expected.is_empty());
    assert_eq!(wait(deleted), Ok(Some(expected)));
}

#[test]
fn a_slow_node_gives_its_shards_away_and_takes_them_back() {
    let pair = Pair::start();
    pair.proxy.delay(DELAY_MS..=DELAY_MS, 1);
    pair.fixture
        .until("the quick node to own all", || pair.quick.owns() == 256);
    let nodes = wait(pair.quick.cluster.list_nodes()).expect("a read");
    let [quick, slow] = &nodes[..] else {
        panic!("{nodes:?}");
    };
    assert_eq!((quick.name.as_str(), quick.shards), ("quick", 256));
    assert_eq!(quick.capacity, Some(Capacity::FULL));
    assert_eq!((slow.name.as_str(), slow.shards), ("slow", 0));
    assert_eq!(slow.capacity, Some(Capacity::NONE));
    assert!(
        slow.round_trips
            .heartbeat
            .is_some_and(|it| it.as_millis() >= 2 * DELAY_MS)
    );
    assert!(
        slow.version.is_some() && slow.started_at.is_some() && slow.last_heartbeat_at.is_some()
    );
    pair.proxy.undelay();
    pair.until_even();
}

#[test]
fn nodes_that_are_equally_slow_keep_their_shards() {
    let fixture = Fixture::new();
    let proxy = fixture.database.proxy();
    let url = fixture.database.url_via(&proxy);
    let node = |name| fixture.node_with(name, LEASE, |settings| settings.server = url.clone());
    let (a, b) = (node("a"), node("b"));
    fixture.until("an even share", || a.owns() == 128 && b.owns() == 128);
    proxy.delay(DELAY_MS..=DELAY_MS, 1);
    let beats = || -> u64 {
        let sum = fixture.database.run("SELECT sum(beat) FROM beats");
        sum[0].parse().expect("a number")
    };
    let enough = beats() + 20;
    fixture.until("ten heartbeats of each", || beats() >= enough);
    assert_eq!((a.owns(), b.owns()), (128, 128));
    let capacities = fixture.database.run("SELECT DISTINCT capacity FROM beats");
    assert_eq!(capacities, ["4"]);
}

/// Nodes of the previous version register without what this version reports. They divide the shards equally.
#[test]
fn a_node_of_the_previous_version_gets_an_equal_part() {
    let fixture = Fixture::new();
    let node = fixture.node("new", LEASE);
    // The upgrade is not finished, so nodes of the previous version may join.
    fixture
        .database
        .run("UPDATE meta SET value = 3 WHERE name = 'format'");
    fixture
        .database
        .run("SELECT enter(1::smallint, 'old/1', 60000)");
    fixture.until("an even share", || node.owns() == 128);
    let nodes = wait(node.cluster.list_nodes()).expect("a read");
    let [_, old] = &nodes[..] else {
        panic!("{nodes:?}");
    };
    assert_eq!((old.name.as_str(), old.role.as_str()), ("old/1", "all"));
    assert_eq!((&old.version, old.capacity, old.shards), (&None, None, 0));
}
