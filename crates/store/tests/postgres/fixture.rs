//! Databases, nodes, tenants, endpoints and events of the tests.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use bytes::Bytes;
use posthaste_core::classify::{Classification, HttpStatus, Outcome};
use posthaste_core::delivery::{Delivery, SettledAttempt, State, Trigger};
use posthaste_core::dispatcher::{AttemptRecord, Record};
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::ingest::Fingerprint;
use posthaste_core::lane::Health;
use posthaste_core::rng::Rng;
use posthaste_core::time::Timestamp;
use posthaste_store::postgres::{PostgresSettings, PostgresStore};
use posthaste_store::{
    AcceptResult, AcceptedOrStored, Answer, AttemptDetail, Content, CreateResult, Endpoint,
    Idempotency, NewEvent, Store, StoreError, StoreSettings, Tenant, Written,
};
use posthaste_store_testing::contract::Recorder;

use crate::engines::{Database, IgnoreClusterEvents, settings};

pub(crate) const NOW: Timestamp = Timestamp(1_700_000_000_000);
pub(crate) const HERE: EndpointId = EndpointId(1);

/// Refuses every registration. Without this, a node that was removed from the membership registers and claims its
/// shards again, within a second or as soon as it is notified of another node, and is then rightly a member.
pub(crate) const REFUSE_REGISTRATIONS: &str = "\
     CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
     RAISE EXCEPTION 'no node registers during this test'; END $$; \
     CREATE TRIGGER refuse BEFORE INSERT ON nodes FOR EACH ROW EXECUTE FUNCTION refuse()";

/// A node on a database.
pub(crate) struct Node {
    pub(crate) store: PostgresStore,
    pub(crate) hand: Arc<Recorder>,
}

/// Opens a node with its own RNG seed.
pub(crate) fn node(database: &Database, seed: u64) -> Node {
    node_with(settings(database.url()), seed)
}

/// The same with other settings.
pub(crate) fn node_with(settings: PostgresSettings, seed: u64) -> Node {
    let hand = Arc::new(Recorder::default());
    let store = StoreSettings::new(Rng::seeded(seed));
    let store = PostgresStore::open(settings, store, hand.clone(), Arc::new(IgnoreClusterEvents));
    let store = store.expect("it opens");
    Node { store, hand }
}

impl Node {
    /// Creates tenant `acme` and its endpoint.
    pub(crate) fn create_tenant_and_endpoint(&self) {
        self.create_tenant(acme());
        let made = run(self.store.create_endpoint(NOW, endpoint(HERE), 99));
        assert_eq!(made, Ok(CreateResult::Created));
    }

    /// Creates a tenant without endpoints.
    pub(crate) fn create_tenant(&self, id: TenantId) {
        let made = run(self.store.create_tenant(NOW, tenant(id)));
        assert_eq!(made, Ok(CreateResult::Created));
    }

    /// Accepts one event, and returns the result.
    pub(crate) fn accept(&self, event: NewEvent) -> AcceptedOrStored {
        one(run(self.store.accept(NOW, vec![event])).expect("it is accepted"))
    }
}

/// Returns the only event of a list.
pub(crate) fn one(ingest: AcceptResult) -> AcceptedOrStored {
    match ingest {
        AcceptResult::Done(mut done) => done.pop().expect("there is one"),
        refused @ (AcceptResult::Conflict(_)
        | AcceptResult::NoSuchTenant
        | AcceptResult::NoSuchEndpoint
        | AcceptResult::TooManyDeliveries { .. }
        | AcceptResult::OverLimit { .. }) => {
            panic!("it was refused: {refused:?}")
        }
    }
}

/// Waits until a statement with this text waits for a lock.
pub(crate) fn wait_for_lock(database: &Database, text: &str) {
    let sql = format!(
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() \
         AND wait_event_type = 'Lock' AND pid <> pg_backend_pid() AND query LIKE '%{text}%'"
    );
    while database.run(&sql).is_empty() {
        std::thread::yield_now();
    }
}

/// Waits for an answer.
pub(crate) fn run<T>(answer: Answer<T>) -> Result<T, StoreError> {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime")
        .block_on(answer)
}

pub(crate) fn acme() -> TenantId {
    "acme".parse().expect("a name")
}

pub(crate) fn tenant(id: TenantId) -> Tenant {
    Tenant::new(id, "Acme".to_owned(), NOW)
}

pub(crate) fn endpoint(id: EndpointId) -> Endpoint {
    Endpoint {
        owner_email_confirmed: true,
        ..Endpoint::new(id, acme(), "https://example.com/hook".to_owned(), NOW)
    }
}

/// Creates an event, with an idempotency key if one is given.
pub(crate) fn event(key: Option<&str>) -> NewEvent {
    NewEvent {
        idempotency: key.map(|key| Idempotency {
            key: key.to_owned(),
            fingerprint: Fingerprint::of(&[b"{}"]),
        }),
        ..NewEvent::new(
            acme(),
            Content::new(
                "invoice.paid".parse().expect("a type"),
                Bytes::from_static(b"{}"),
            ),
        )
    }
}

/// Records a successful attempt.
pub(crate) fn succeed(store: &PostgresStore, waiting: &Delivery) -> Result<Written, StoreError> {
    let recorded = hand_in_success(store, waiting);
    recorded.recv().expect("it is answered")
}

/// Records an attempt with its result, as the delivery is after it, and with the endpoint's health.
pub(crate) fn record(
    store: &PostgresStore,
    after: &Delivery,
    health: Option<Health>,
) -> Result<Written, StoreError> {
    let recorded = hand_in(store, after, health);
    recorded.recv().expect("it is answered")
}

/// Enqueues the record of a successful attempt. Its result is sent when it has been written.
pub(crate) fn hand_in_success(
    store: &PostgresStore,
    waiting: &Delivery,
) -> Receiver<Result<Written, StoreError>> {
    let succeeded = Delivery::restore(waiting.facts().clone(), State::Succeeded { at: NOW });
    hand_in(store, &succeeded, None)
}

/// Enqueues the record of an attempt: the delivery as it is after it, with the number of attempts before it.
fn hand_in(
    store: &PostgresStore,
    after: &Delivery,
    health: Option<Health>,
) -> Receiver<Result<Written, StoreError>> {
    let mut facts = after.facts().clone();
    facts.attempts += 1;
    facts.spent += 1;
    let settlement = SettledAttempt {
        number: facts.attempts,
        trigger: Trigger::Automatic,
        started_at: NOW,
        finished_at: NOW,
        outcome: Outcome::Answered {
            status: HttpStatus::new(200).expect("a status"),
            retry_after: None,
        },
        meaning: Classification::Success,
        next_attempt_at: None,
        retry_after: None,
    };
    let record = Record::Attempt(Box::new(AttemptRecord {
        delivery: Delivery::restore(facts, after.state()),
        settlement,
        health,
        disable: None,
        endpoint_changes: Vec::new(),
    }));
    let (sent, received) = std::sync::mpsc::channel();
    let done = Box::new(move |written| sent.send(written).expect("the caller waits"));
    store.record(NOW, record, AttemptDetail::default(), done);
    received
}
