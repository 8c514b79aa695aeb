//! Connections that are lost and restored.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use posthaste_core::id::EndpointId;
use posthaste_core::time::Timestamp;
use posthaste_store::postgres::{
    ByteStream, Dial, DialFuture, ReconnectBackoff, ServerAddress, Tls,
};
use posthaste_store::{
    BucketWidth, CreateResult, StatsStore, Store, StoreError, SubjectScope, Written,
};
use tokio::task::AbortHandle;

use crate::engines::{Database, PlainDial, settings};
use crate::fixture::{
    HERE, NOW, Node, acme, endpoint, event, hand_in_success, node_with, run, succeed,
};

/// A connection to the server that a test can cut.
#[derive(Default)]
struct TcpProxy {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    cut: bool,
    flows: Vec<AbortHandle>,
}

impl TcpProxy {
    /// Cuts all connections and refuses new ones.
    fn cut(&self) {
        let mut state = self.state.lock().expect("the mutex is not poisoned");
        state.cut = true;
        for flow in state.flows.drain(..) {
            flow.abort();
        }
    }

    /// Refuses new connections; open ones continue to work, as at a server's connection limit.
    fn refuse_new(&self) {
        self.state.lock().expect("the mutex is not poisoned").cut = true;
    }

    /// Accepts new connections again.
    fn reconnect(&self) {
        self.state.lock().expect("the mutex is not poisoned").cut = false;
    }
}

struct ByCable(Arc<TcpProxy>);

impl Dial for ByCable {
    fn dial(&self, place: &ServerAddress, tls: &Tls) -> DialFuture {
        let cable = self.0.clone();
        let dialled = PlainDial.dial(place, tls);
        Box::pin(async move {
            if cable.state.lock().expect("the mutex is not poisoned").cut {
                return Err(io::Error::other("the cable is cut"));
            }
            let mut far = dialled.await?;
            let (near, mut middle) = tokio::io::duplex(64 * 1_024);
            let flow = tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut middle, &mut far).await;
            });
            let mut state = cable.state.lock().expect("the mutex is not poisoned");
            state.flows.push(flow.abort_handle());
            let wire: Box<dyn ByteStream> = Box::new(near);
            Ok(wire)
        })
    }
}

fn via_proxy(database: &Database) -> (Node, Arc<TcpProxy>) {
    let pauses = ReconnectBackoff {
        first: Duration::from_millis(1),
        longest: Duration::from_millis(2),
    };
    by_cable_with(database, pauses)
}

fn by_cable_with(database: &Database, pauses: ReconnectBackoff) -> (Node, Arc<TcpProxy>) {
    let cable = Arc::new(TcpProxy::default());
    let mut settings = settings(database.url());
    settings.dial = Arc::new(ByCable(cable.clone()));
    settings.pauses = pauses;
    (node_with(settings, 1), cable)
}

fn is_unavailable<T>(result: Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Unavailable(_)))
}

/// Waits until the store works again.
fn await_recovery(node: &Node) {
    while run(node.store.probe(NOW)).is_err() {
        std::thread::yield_now();
    }
}

#[test]
fn a_lost_connection_refuses_writes_and_reconnects() {
    let database = Database::create();
    let (node, cable) = via_proxy(&database);
    node.create_tenant_and_endpoint();
    let before = node.accept(event(Some("a")));
    for _ in 0..3 {
        cable.cut();
        assert!(is_unavailable(run(node
            .store
            .accept(NOW, vec![event(Some("b"))]))));
        assert!(is_unavailable(run(node.store.probe(NOW))));
        assert!(is_unavailable(run(node.store.endpoint(HERE))));
        cable.reconnect();
        await_recovery(&node);
        let again = node.accept(event(Some("a")));
        assert_eq!((again.is_new, again.event), (false, before.event.clone()));
        while run(node.store.endpoint(HERE)).is_err() {
            std::thread::yield_now();
        }
    }
    assert_eq!(run(node.store.counts()).expect("counts").pending, 1);
    assert!(node.accept(event(Some("b"))).is_new);
    assert_eq!(run(node.store.close()), Ok(()));
}

#[test]
fn one_failed_connect_fails_all_writes_waiting_for_it() {
    const WRITES: u32 = 50;
    let database = Database::create();
    let pause = Duration::from_secs(1);
    let pauses = ReconnectBackoff {
        first: pause,
        longest: pause,
    };
    let (node, cable) = by_cable_with(&database, pauses);
    cable.cut();
    let asked_at = Instant::now();
    let writes: Vec<_> = (0..WRITES).map(|_| node.store.probe(NOW)).collect();
    for write in writes {
        assert!(is_unavailable(run(write)));
    }
    let waited = asked_at.elapsed();
    assert!(
        waited < pause * (WRITES / 2),
        "each waited for a connect of its own: {waited:?}"
    );
}

#[test]
fn a_failing_connection_takes_no_reads_from_a_working_one() {
    const READS: usize = 50;
    let database = Database::create();
    let (node, cable) = via_proxy(&database);
    node.create_tenant_and_endpoint();
    run(node.store.endpoint(HERE)).expect("one connection is open");
    cable.refuse_new();
    let reads: Vec<_> = (0..READS).map(|_| node.store.endpoint(HERE)).collect();
    for read in reads {
        assert!(run(read).expect("it is read").is_some());
    }
}

#[test]
fn a_connection_ended_by_the_server_is_restored() {
    let database = Database::create();
    let (node, _cable) = via_proxy(&database);
    node.create_tenant_and_endpoint();
    for _ in 0..3 {
        database.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        );
        await_recovery(&node);
        node.accept(event(None));
    }
    assert_eq!(node.hand.take().len(), 3);
}

/// Simulates a failover to a server that has not received the last transaction of the old one.
#[test]
fn routes_missing_after_a_failover_are_not_used() {
    let database = Database::create();
    let (node, cable) = via_proxy(&database);
    node.create_tenant_and_endpoint();
    let other = EndpointId(2);
    let made = run(node.store.create_endpoint(NOW, endpoint(other), 99));
    assert_eq!(made, Ok(CreateResult::Created));
    assert_eq!(node.accept(event(None)).event.deliveries.len(), 2);
    cable.cut();
    database.run(
        "DELETE FROM healths WHERE endpoint_no = (SELECT max(no) FROM endpoints); \
         DELETE FROM endpoints WHERE no = (SELECT max(no) FROM endpoints); \
         DELETE FROM changes WHERE no = (SELECT last_change FROM directory); \
         UPDATE directory SET last_change = last_change - 1, last_no = last_no - 1",
    );
    cable.reconnect();
    await_recovery(&node);
    let deliveries = node.accept(event(None)).event.deliveries;
    let endpoints: Vec<EndpointId> = deliveries.iter().map(|it| it.endpoint).collect();
    assert_eq!(endpoints, [HERE]);
}

#[test]
fn an_attempt_with_a_lost_commit_answer_is_counted_once() {
    let database = Database::create();
    let (node, cable) = via_proxy(&database);
    node.create_tenant_and_endpoint();
    node.accept(event(None));
    let waiting = run(node.store.fetch(HERE, NOW, 1, false)).expect("the store can be read");
    let waiting = &waiting.deliveries[0];
    // The commit waits until the test releases the lock.
    database.run(
        "CREATE FUNCTION wait_there() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         PERFORM pg_advisory_xact_lock(77); RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON stats DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION wait_there()",
    );
    let held = database.hold("SELECT pg_advisory_xact_lock(77)");
    let unheard = hand_in_success(&node.store, waiting);
    let waits = "SELECT 1 FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid \
                 WHERE NOT granted AND locktype = 'advisory' AND a.datname = current_database()";
    while database.run(waits).is_empty() {
        std::thread::yield_now();
    }
    cable.cut();
    let unheard = unheard.recv().expect("it is answered");
    assert!(is_unavailable(unheard));
    cable.reconnect();
    await_recovery(&node);
    held.finish();
    let committed = "SELECT 1 FROM ended";
    while database.run(committed).is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(succeed(&node.store, waiting), Ok(Written::Superseded));
    for scope in [
        SubjectScope::Everything,
        SubjectScope::Tenant(acme()),
        SubjectScope::Endpoint(HERE),
    ] {
        let minutes = node.store.stats(scope, BucketWidth::Minute, Timestamp(0));
        let minutes = run(minutes).expect("the store can be read");
        let counted: Vec<(u64, u64)> = minutes
            .iter()
            .map(|(_, counters)| (counters.attempts, counters.succeeded))
            .collect();
        assert_eq!(counted, [(1, 1)]);
    }
}
