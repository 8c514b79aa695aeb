//! Nodes that write down what they are told, in the order they were told it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use posthaste_core::cluster::Shard;
use posthaste_core::dice::Dice;
use posthaste_core::id::EndpointId;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::postgres::{PostgresSettings, PostgresStore};
use posthaste_store::{
    Answer, Change, Cluster, Done, HandOver, HandedOver, Orders, Store, StoreError, StoreSettings,
};
use serde_json::{Value, json};

use crate::gate::Gate;
use crate::postgres::{Database, Held, settings};

/// No test waits longer. Nothing depends on how long it really takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a node was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Granted(Vec<Shard>),
    Recalled(Vec<Shard>),
    Expired,
    Work(Vec<(EndpointId, Timestamp)>),
    Changed(Vec<Change>),
    Missed,
    Asked(Value),
}

#[derive(Default)]
struct Log {
    told: Vec<(&'static str, Told)>,
    held: Vec<(&'static str, Shard, Done<()>)>,
    /// These keep what is recalled.
    keepers: Vec<&'static str>,
    /// These answer no question.
    silent: Vec<&'static str>,
    /// These do nothing at all when they are told something.
    frozen: Vec<&'static str>,
}

/// A database, and what its nodes were told.
pub(crate) struct Stage {
    pub(crate) database: Database,
    log: Arc<(Mutex<Log>, Condvar)>,
}

/// One node.
pub(crate) struct Node {
    pub(crate) store: PostgresStore,
    pub(crate) cluster: Arc<dyn Cluster>,
    pub(crate) gate: Gate,
}

struct Teller {
    name: &'static str,
    log: Arc<(Mutex<Log>, Condvar)>,
}

struct Nobody;

impl HandOver for Nobody {
    fn accepted(&self, _: Vec<HandedOver>) {}
    fn broken(&self, why: &StoreError) {
        panic!("the store is broken: {why}");
    }
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

impl Stage {
    pub(crate) fn new() -> Stage {
        Stage {
            database: Database::create(),
            log: Arc::default(),
        }
    }

    /// A node with a lease of that length.
    pub(crate) fn node(&self, name: &'static str, lease_ms: u64) -> Node {
        self.node_with(name, lease_ms, |_| {})
    }

    pub(crate) fn node_with(
        &self,
        name: &'static str,
        lease_ms: u64,
        adjust: impl FnOnce(&mut PostgresSettings),
    ) -> Node {
        let gate = Gate::default();
        let mut settings = settings(self.database.url());
        settings.dial = Arc::new(gate.clone());
        settings.lease = Span::from_millis(lease_ms);
        name.clone_into(&mut settings.name);
        adjust(&mut settings);
        let orders = Teller {
            name,
            log: self.log.clone(),
        };
        let dice = StoreSettings::new(Dice::seeded(7));
        let store = PostgresStore::open(settings, dice, Arc::new(Nobody), Arc::new(orders));
        let store = store.expect("it opens");
        let cluster = store.cluster().expect("nodes share it");
        Node {
            store,
            cluster,
            gate,
        }
    }

    /// Begins a transaction, and leaves it open.
    pub(crate) fn hold(&self, sql: &str) -> Held {
        self.database.hold(sql)
    }

    /// Waits until this is so.
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
            let log = log.lock().expect("nobody panicked");
            // Most of it is told; the rest is looked for now and then.
            let waited = changed.wait_timeout(log, Duration::from_millis(20));
            drop(waited.expect("nobody panicked"));
        }
    }

    /// What all nodes were told, in order.
    pub(crate) fn told(&self) -> Vec<(&'static str, Told)> {
        self.lock().told.clone()
    }

    /// Whether a node was told this.
    pub(crate) fn was_told(&self, name: &str, what: impl Fn(&Told) -> bool) -> bool {
        self.told()
            .iter()
            .any(|(to, told)| *to == name && what(told))
    }

    fn short(&self) -> Vec<String> {
        let told = self.told();
        let short = told.iter().map(|(name, told)| match told {
            Told::Granted(shards) => format!("{name} granted {}", shards.len()),
            Told::Recalled(shards) => format!("{name} recalled {}", shards.len()),
            Told::Expired | Told::Work(_) | Told::Changed(_) | Told::Missed | Told::Asked(_) => {
                format!("{name} {told:?}")
            }
        });
        short.collect()
    }

    /// Tells a node of work for an endpoint, due at 77, as another node's commit does.
    pub(crate) fn call_out_work(&self, node: &Node, endpoint: u128) {
        let channel = format!("posthaste_{}", node.cluster.me().0);
        let hex = format!("{endpoint:032x}");
        let sql = format!("SELECT pg_notify('{channel}', 'work ' || '{hex}'::uuid || '=77')");
        self.database.run(&sql);
    }

    /// This node keeps what is recalled, until [`Stage::finish`].
    pub(crate) fn keep_recalled(&self, name: &'static str) {
        self.lock().keepers.push(name);
    }

    /// The shards that are recalled and kept.
    pub(crate) fn kept(&self) -> Vec<Shard> {
        self.lock()
            .held
            .iter()
            .map(|(_, shard, _)| *shard)
            .collect()
    }

    /// Nothing of a recalled shard is under way any more.
    pub(crate) fn finish(&self, shard: Shard) {
        let mut log = self.lock();
        let at = log.held.iter().position(|(_, held, _)| *held == shard);
        let (_, _, done) = log.held.remove(at.expect("it is kept"));
        drop(log);
        done(Ok(()));
    }

    /// This node answers no question.
    pub(crate) fn silence(&self, name: &'static str) {
        self.lock().silent.push(name);
    }

    /// The thread of this node's store stands still as soon as it tells the node something, as a process
    /// does that is stopped.
    pub(crate) fn freeze(&self, name: &'static str) {
        self.lock().frozen.push(name);
    }

    pub(crate) fn thaw(&self) {
        self.lock().frozen.clear();
        self.log.1.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.0.lock().expect("nobody panicked")
    }
}

impl Teller {
    fn tell(&self, told: Told) {
        let (log, changed) = &*self.log;
        let mut log = log.lock().expect("nobody panicked");
        while log.frozen.contains(&self.name) {
            log = changed.wait(log).expect("nobody panicked");
        }
        log.told.push((self.name, told));
        changed.notify_all();
    }
}

impl Orders for Teller {
    fn granted(&self, shards: Vec<Shard>) {
        self.tell(Told::Granted(shards));
    }

    fn recalled(&self, shards: Vec<Shard>, done: Done<()>) {
        self.tell(Told::Recalled(shards.clone()));
        let mut log = self.log.0.lock().expect("nobody panicked");
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
        self.tell(Told::Expired);
    }

    fn work(&self, work: Vec<(EndpointId, Timestamp)>) {
        self.tell(Told::Work(work));
    }

    fn changed(&self, changes: Vec<Change>) {
        self.tell(Told::Changed(changes));
    }

    fn missed(&self) {
        self.tell(Told::Missed);
    }

    fn asked(&self, question: Value, done: Done<Value>) {
        self.tell(Told::Asked(question.clone()));
        let silent = {
            let log = self.log.0.lock().expect("nobody panicked");
            log.silent.contains(&self.name)
        };
        if silent {
            // Whoever forgets a question has answered it; this one is never forgotten.
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
