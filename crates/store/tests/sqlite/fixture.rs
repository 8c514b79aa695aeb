//! Stores in temporary folders, tenants, endpoints and events of the tests.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

use bytes::Bytes;
use posthaste_core::classify::{Classification, HttpStatus, Outcome};
use posthaste_core::delivery::{Delivery, SettledAttempt, State, Trigger};
use posthaste_core::dispatcher::{AttemptRecord, Record};
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::rng::Rng;
use posthaste_core::time::Timestamp;
use posthaste_store::sqlite::{Faults, SqliteStore};
use posthaste_store::{
    AcceptResult, Answer, AttemptDetail, Content, CreateResult, Endpoint, HandOver, HandedOver,
    NewEvent, Store, StoreError, StoreSettings, Tenant, Written,
};

pub(crate) const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// A hand-over that keeps the deliveries, and can make the writer wait.
#[derive(Default)]
pub(crate) struct BlockingHandOver {
    pub(crate) taken: Mutex<Vec<HandedOver>>,
    pub(crate) broken: Mutex<Vec<StoreError>>,
    gate: Mutex<Gate>,
    moved: Condvar,
}

#[derive(Default)]
struct Gate {
    shut: bool,
    waiting: bool,
    /// Number of hand-overs that may pass although the gate is shut.
    passes: usize,
}

impl BlockingHandOver {
    /// Makes the writer wait in the next hand-over until the gate is opened.
    pub(crate) fn shut(&self) {
        self.gate.lock().unwrap().shut = true;
    }

    /// Waits until the writer is in the gate.
    pub(crate) fn await_writer(&self) {
        let gate = self.gate.lock().unwrap();
        drop(self.moved.wait_while(gate, |gate| !gate.waiting).unwrap());
    }

    pub(crate) fn open(&self) {
        self.gate.lock().unwrap().shut = false;
        self.moved.notify_all();
    }

    /// Lets the hand-over that waits in the gate pass, and waits for the next one.
    pub(crate) fn pass(&self) {
        let mut gate = self.gate.lock().unwrap();
        gate.passes = 1;
        self.moved.notify_all();
        let passed = |gate: &mut Gate| gate.passes > 0 || !gate.waiting;
        drop(self.moved.wait_while(gate, passed).unwrap());
    }

    /// Waits until this number of deliveries was handed over.
    pub(crate) fn await_taken(&self, count: usize) {
        let taken = |_: &mut Gate| self.taken.lock().unwrap().len() < count;
        let gate = self.gate.lock().unwrap();
        drop(self.moved.wait_while(gate, taken).unwrap());
    }
}

impl HandOver for BlockingHandOver {
    fn accepted(&self, deliveries: Vec<HandedOver>) {
        let mut gate = self.gate.lock().unwrap();
        gate.waiting = true;
        self.moved.notify_all();
        let is_shut = |gate: &mut Gate| gate.shut && gate.passes == 0;
        let mut gate = self.moved.wait_while(gate, is_shut).unwrap();
        gate.waiting = false;
        gate.passes = gate.passes.saturating_sub(1);
        self.taken.lock().unwrap().extend(deliveries);
        self.moved.notify_all();
    }

    fn broken(&self, why: &StoreError) {
        self.broken.lock().unwrap().push(why.clone());
    }
}

/// A store in its own directory.
pub(crate) struct Fixture {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) hand: Arc<BlockingHandOver>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) store: Arc<SqliteStore>,
}

impl Fixture {
    /// Opens a store with tenant `acme` and its endpoint 1.
    pub(crate) fn acme() -> Fixture {
        Fixture::acme_with(settings())
    }

    pub(crate) fn acme_with(settings: StoreSettings) -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let hand = Arc::new(BlockingHandOver::default());
        let faults = Arc::new(Faults::default());
        let path = directory.path().join("posthaste.db");
        let store = SqliteStore::open_with(path, settings, hand.clone(), faults.clone()).unwrap();
        let fixture = Fixture {
            directory,
            hand,
            faults,
            store: Arc::new(store),
        };
        assert_eq!(
            run(fixture.store.create_tenant(NOW, tenant("acme"))),
            Ok(CreateResult::Created)
        );
        fixture.add_endpoint(1, "acme");
        fixture
    }

    pub(crate) fn add_endpoint(&self, number: u128, tenant: &str) {
        let made = self
            .store
            .create_endpoint(NOW, endpoint(number, tenant), 99);
        assert_eq!(run(made), Ok(CreateResult::Created));
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("posthaste.db")
    }

    /// Accepts one event with a payload of `bytes` bytes.
    pub(crate) fn accept(&self, bytes: usize) -> Answer<AcceptResult> {
        self.store.accept(NOW, vec![event("acme", bytes)])
    }
}

pub(crate) fn settings() -> StoreSettings {
    StoreSettings::new(Rng::seeded(5))
}

/// Opens a store whose hand-over can be made to wait.
pub(crate) fn open_with(path: &Path, hand: Arc<BlockingHandOver>) -> SqliteStore {
    SqliteStore::open(path, settings(), hand).unwrap()
}

pub(crate) fn open(path: &Path) -> Result<SqliteStore, posthaste_store::OpenError> {
    SqliteStore::open(path, settings(), Arc::new(BlockingHandOver::default()))
}

/// Waits for an answer.
pub(crate) fn run<T>(answer: Answer<T>) -> Result<T, StoreError> {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(answer)
}

pub(crate) fn id(tenant: &str) -> TenantId {
    tenant.parse().unwrap()
}

pub(crate) fn tenant(name: &str) -> Tenant {
    Tenant::new(id(name), name.to_owned(), NOW)
}

pub(crate) fn endpoint(number: u128, tenant: &str) -> Endpoint {
    Endpoint {
        owner_email_confirmed: true,
        ..Endpoint::new(
            EndpointId(number),
            id(tenant),
            "https://example.com/hook".to_owned(),
            NOW,
        )
    }
}

pub(crate) fn event(tenant: &str, bytes: usize) -> NewEvent {
    NewEvent::new(
        id(tenant),
        Content::new(
            "invoice.paid".parse().unwrap(),
            Bytes::from(vec![b'x'; bytes]),
        ),
    )
}

/// Records a successful attempt.
pub(crate) fn succeed(
    store: &SqliteStore,
    waiting: &Delivery,
) -> std::sync::mpsc::Receiver<Result<Written, StoreError>> {
    let mut facts = waiting.facts().clone();
    facts.attempts += 1;
    facts.spent += 1;
    let settlement = SettledAttempt {
        number: facts.attempts,
        trigger: Trigger::Automatic,
        started_at: NOW,
        finished_at: NOW,
        outcome: Outcome::Answered {
            status: HttpStatus::new(200).unwrap(),
            retry_after: None,
        },
        meaning: Classification::Success,
        next_attempt_at: None,
        retry_after: None,
    };
    let record = Record::Attempt(Box::new(AttemptRecord {
        delivery: Delivery::restore(facts, State::Succeeded { at: NOW }),
        settlement,
        health: None,
        disable: None,
        endpoint_changes: Vec::new(),
    }));
    let (sent, received) = std::sync::mpsc::channel();
    let done = Box::new(move |written| sent.send(written).unwrap());
    store.record(NOW, record, AttemptDetail::default(), done);
    received
}

/// Removes what the migration of owner addresses and the later ones added.
pub(crate) const WITHOUT_OWNER_EMAILS: &str = "
    DROP TABLE payloads;
    DROP TABLE staged_payloads;
    ALTER TABLE events DROP COLUMN payload_no;
    DROP TABLE schedules;
    DROP TABLE schedule_runs;
    ALTER TABLE tenants DROP COLUMN schedules;
    ALTER TABLE events DROP COLUMN schedule;
    ALTER TABLE events DROP COLUMN scheduled_for;
    DROP INDEX origin_endpoints;
    DROP INDEX origins;
    ALTER TABLE endpoints DROP COLUMN is_origin;
    ALTER TABLE events DROP COLUMN request;
    ALTER TABLE tenants DROP COLUMN sealed_keys;
    DROP INDEX endpoints_by_owner;
    ALTER TABLE endpoints DROP COLUMN owner_email_confirmed;
    DROP TABLE email_confirmations;
    DROP TABLE email_usage;";
