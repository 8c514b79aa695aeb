//! Fixture: nodes on one database that log the cluster events they receive, in order.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use posthaste_core::cluster::Shard;
use posthaste_core::id::EndpointId;
use posthaste_core::rng::Rng;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::postgres::{PostgresSettings, PostgresStore};
use posthaste_store::{
    Answer, Change, Cluster, ClusterEvents, Done, Store, StoreError, StoreSettings,
};
use posthaste_store_testing::NoHandOver;
use serde_json::{Value, json};

use crate::link::DatabaseLink;
use crate::postgres::{Database, Held, settings};

/// Maximum time that a test waits for a condition. No result depends on the real duration.
const PATIENCE: Duration = Duration::from_secs(30);

/// A cluster event that a node received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClusterEvent {
    Granted(Vec<Shard>),
    Revoked(Vec<Shard>),
    Expired,
    Work(Vec<(EndpointId, Timestamp)>),
    Changed(Vec<Change>),
    Missed,
    Asked(Value),
}

#[derive(Default)]
struct Log {
    events: Vec<(&'static str, ClusterEvent)>,
    held: Vec<(&'static str, Shard, Done<()>)>,
    /// Nodes that do not release revoked shards until [`Fixture::finish`].
    keepers: Vec<&'static str>,
    /// Nodes that answer no question.
    silent: Vec<&'static str>,
    /// Nodes whose store thread blocks when it delivers an event.
    frozen: Vec<&'static str>,
}

/// A database, and the log of the events of its nodes.
pub(crate) struct Fixture {
    pub(crate) database: Database,
    log: Arc<(Mutex<Log>, Condvar)>,
}

/// One node.
pub(crate) struct Node {
    pub(crate) store: PostgresStore,
    pub(crate) cluster: Arc<dyn Cluster>,
    pub(crate) link: DatabaseLink,
}

struct EventForwarder {
    name: &'static str,
    log: Arc<(Mutex<Log>, Condvar)>,
}

/// Waits for an answer.
pub(crate) fn wait<T>(answer: Answer<T>) -> Result<T, StoreError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let answer = tokio::time::timeout(PATIENCE, answer).await;
        answer.expect("an answer in time")
    })
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        Fixture {
            database: Database::create(),
            log: Arc::default(),
        }
    }

    /// Opens a node with this lease duration.
    pub(crate) fn node(&self, name: &'static str, lease_ms: u64) -> Node {
        self.node_with(name, lease_ms, |_| {})
    }

    pub(crate) fn node_with(
        &self,
        name: &'static str,
        lease_ms: u64,
        adjust: impl FnOnce(&mut PostgresSettings),
    ) -> Node {
        let link = DatabaseLink::default();
        let mut settings = settings(self.database.url());
        settings.dial = Arc::new(link.clone());
        settings.lease = Span::from_millis(lease_ms);
        name.clone_into(&mut settings.name);
        adjust(&mut settings);
        let cluster_events = EventForwarder {
            name,
            log: self.log.clone(),
        };
        let rng = StoreSettings::new(Rng::seeded(7));
        let store = PostgresStore::open(
            settings,
            rng,
            Arc::new(NoHandOver),
            Arc::new(cluster_events),
        );
        let store = store.expect("it opens");
        let cluster = store.cluster().expect("nodes share it");
        Node {
            store,
            cluster,
            link,
        }
    }

    /// Starts a transaction, and leaves it open.
    pub(crate) fn hold(&self, sql: &str) -> Held {
        self.database.hold(sql)
    }

    /// Waits until the condition holds.
    pub(crate) fn until(&self, what: &str, mut so: impl FnMut() -> bool) {
        let until = Instant::now() + PATIENCE;
        let (log, changed) = &*self.log;
        loop {
            if so() {
                return;
            }
            assert!(
                Instant::now() < until,
                "{what} never came: {:?}",
                self.short()
            );
            let log = log.lock().expect("the mutex is not poisoned");
            // Most conditions change with an event. The others are polled.
            let waited = changed.wait_timeout(log, Duration::from_millis(20));
            drop(waited.expect("the mutex is not poisoned"));
        }
    }

    /// Returns the events of all nodes, in order.
    pub(crate) fn events(&self) -> Vec<(&'static str, ClusterEvent)> {
        self.lock().events.clone()
    }

    /// Returns whether a node received such an event.
    pub(crate) fn has_received(&self, name: &str, what: impl Fn(&ClusterEvent) -> bool) -> bool {
        self.events()
            .iter()
            .any(|(to, event)| *to == name && what(event))
    }

    fn short(&self) -> Vec<String> {
        let events = self.events();
        let short = events.iter().map(|(name, event)| match event {
            ClusterEvent::Granted(shards) => format!("{name} granted {}", shards.len()),
            ClusterEvent::Revoked(shards) => format!("{name} recalled {}", shards.len()),
            ClusterEvent::Expired
            | ClusterEvent::Work(_)
            | ClusterEvent::Changed(_)
            | ClusterEvent::Missed
            | ClusterEvent::Asked(_) => {
                format!("{name} {event:?}")
            }
        });
        short.collect()
    }

    /// Notifies a node of a delivery for an endpoint, due at 77, as another node's commit does.
    pub(crate) fn announce_work(&self, node: &Node, endpoint: u128) {
        let channel = format!("posthaste_{}", node.cluster.me().0);
        let hex = format!("{endpoint:032x}");
        let sql = format!("SELECT pg_notify('{channel}', 'work ' || '{hex}'::uuid || '=77')");
        self.database.run(&sql);
    }

    /// Makes this node keep revoked shards until [`Fixture::finish`].
    pub(crate) fn keep_revoked(&self, name: &'static str) {
        self.lock().keepers.push(name);
    }

    /// Returns the revoked shards that are kept.
    pub(crate) fn kept(&self) -> Vec<Shard> {
        self.lock()
            .held
            .iter()
            .map(|(_, shard, _)| *shard)
            .collect()
    }

    /// Reports that nothing of a revoked shard is in flight any more.
    pub(crate) fn finish(&self, shard: Shard) {
        let mut log = self.lock();
        let at = log.held.iter().position(|(_, held, _)| *held == shard);
        let (_, _, done) = log.held.remove(at.expect("it is kept"));
        drop(log);
        done(Ok(()));
    }

    /// Makes this node answer no question.
    pub(crate) fn silence(&self, name: &'static str) {
        self.lock().silent.push(name);
    }

    /// Blocks the thread of this node's store at the next event, as if the process were stopped.
    pub(crate) fn freeze(&self, name: &'static str) {
        self.lock().frozen.push(name);
    }

    pub(crate) fn resume(&self) {
        self.lock().frozen.clear();
        self.log.1.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.0.lock().expect("the mutex is not poisoned")
    }
}

impl EventForwarder {
    fn log_event(&self, event: ClusterEvent) {
        let (log, changed) = &*self.log;
        let mut log = log.lock().expect("the mutex is not poisoned");
        while log.frozen.contains(&self.name) {
            log = changed.wait(log).expect("the mutex is not poisoned");
        }
        log.events.push((self.name, event));
        changed.notify_all();
    }
}

impl ClusterEvents for EventForwarder {
    fn granted(&self, shards: Vec<Shard>) {
        self.log_event(ClusterEvent::Granted(shards));
    }

    fn revoked(&self, shards: Vec<Shard>, done: Done<()>) {
        self.log_event(ClusterEvent::Revoked(shards.clone()));
        let mut log = self.log.0.lock().expect("the mutex is not poisoned");
        if log.keepers.contains(&self.name) {
            let [shard] = shards[..] else {
                panic!("each shard is recalled by itself");
            };
            log.held.push((self.name, shard, done));
            self.log.1.notify_all();
        } else {
            drop(log);
            done(Ok(()));
        }
    }

    fn expired(&self) {
        self.log_event(ClusterEvent::Expired);
    }

    fn work(&self, work: Vec<(EndpointId, Timestamp)>) {
        self.log_event(ClusterEvent::Work(work));
    }

    fn changed(&self, changes: Vec<Change>) {
        self.log_event(ClusterEvent::Changed(changes));
    }

    fn missed(&self) {
        self.log_event(ClusterEvent::Missed);
    }

    fn asked(&self, question: Value, done: Done<Value>) {
        self.log_event(ClusterEvent::Asked(question.clone()));
        let silent = {
            let log = self.log.0.lock().expect("the mutex is not poisoned");
            log.silent.contains(&self.name)
        };
        if silent {
            // Dropping the callback would answer the question, so it is leaked.
            std::mem::forget(done);
        } else {
            done(Ok(json!({ "by": self.name, "to": question })));
        }
    }
}

impl Node {
    pub(crate) fn owns(&self) -> usize {
        self.store.owned_shards().len()
    }
}
