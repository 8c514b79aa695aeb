//! Databases, nodes, tenants, endpoints and events of the tests.

use std::sync::Arc;

use bytes::Bytes;
use posthaste_core::classify::{HttpStatus, Outcome};
use posthaste_core::delivery::RetrySettings;
use posthaste_core::dispatcher::{AttemptRecord, Record};
use posthaste_core::id::{DeliveryId, EndpointId, TenantId};
use posthaste_core::ingest::Fingerprint;
use posthaste_core::lane::RETRY_AFTER_CAP;
use posthaste_core::policy::RetryPolicy;
use posthaste_core::rng::Rng;
use posthaste_core::time::{Span, Timestamp};
use posthaste_store::postgres::{PostgresSettings, PostgresStore};
use posthaste_store::{
    AcceptResult, AcceptedEvent, Answer, AttemptDetail, Content, CreateResult, Endpoint,
    Idempotency, Limits, Lists, NewEvent, Retention, RetentionStepResult, Store, StoreError,
    StoreSettings, Tenant, Written,
};
use posthaste_store_testing::NoHandOver;

use crate::engines::{Database, IgnoreClusterEvents, settings};

/// The start of a day.
pub(crate) const MIDNIGHT: u64 = 1_700_006_400_000;
pub(crate) const HOUR: u64 = 3_600_000;
pub(crate) const DAY: u64 = 24 * HOUR;

/// Returns the time `ms` milliseconds after the first midnight.
pub(crate) fn at(ms: u64) -> Timestamp {
    Timestamp(MIDNIGHT + ms)
}

/// A store in its own database, with tenant `acme` and its endpoint 1.
pub(crate) struct Fixture {
    pub(crate) store: PostgresStore,
    pub(crate) database: Arc<Database>,
}

impl Fixture {
    pub(crate) fn acme() -> Fixture {
        Fixture::acme_with(|_| {})
    }

    pub(crate) fn acme_with(change: impl FnOnce(&mut PostgresSettings)) -> Fixture {
        let database = Arc::new(Database::create());
        let fixture = Fixture::node(&database, 5, change);
        fixture.add_tenant("acme", None);
        fixture.add_endpoint(1, "acme");
        fixture
    }

    /// Opens a node on an existing database.
    pub(crate) fn again(database: &Arc<Database>) -> Fixture {
        Fixture::node(database, 7, |_| {})
    }

    /// Opens another node on the same database, which owns no endpoints.
    pub(crate) fn another(&self, seed: u64) -> Fixture {
        Fixture::node(&self.database, seed, |settings| {
            settings.wants_shards = false
        })
    }

    /// The same, with a setting that makes every non-empty day large.
    pub(crate) fn another_large(&self, seed: u64) -> Fixture {
        Fixture::node(&self.database, seed, |settings| {
            settings.wants_shards = false;
            settings.large_day_bytes = 1;
        })
    }

    fn node(
        database: &Arc<Database>,
        seed: u64,
        change: impl FnOnce(&mut PostgresSettings),
    ) -> Fixture {
        let mut settings = settings(database.url());
        change(&mut settings);
        let store = StoreSettings::new(Rng::seeded(seed));
        let store = PostgresStore::open(
            settings,
            store,
            Arc::new(NoHandOver),
            Arc::new(IgnoreClusterEvents),
        );
        Fixture {
            store: store.expect("it opens"),
            database: database.clone(),
        }
    }

    pub(crate) fn add_tenant(&self, name: &str, retention: Option<Span>) {
        let tenant = Tenant {
            limits: Limits {
                retention,
                ..Limits::default()
            },
            ..Tenant::new(id(name), name.to_owned(), at(0))
        };
        let made = run(self.store.create_tenant(at(0), tenant));
        assert_eq!(made, Ok(CreateResult::Created));
    }

    pub(crate) fn add_endpoint(&self, number: u128, tenant: &str) -> EndpointId {
        let made = run(self
            .store
            .create_endpoint(at(0), endpoint(number, tenant), 999));
        assert_eq!(made, Ok(CreateResult::Created));
        EndpointId(number)
    }

    /// Accepts an event of `acme`.
    pub(crate) fn send(&self, now: Timestamp) -> AcceptedEvent {
        self.accept(now, event("acme"))
    }

    pub(crate) fn accept(&self, now: Timestamp, event: NewEvent) -> AcceptedEvent {
        match run(self.store.accept(now, vec![event])) {
            Ok(AcceptResult::Done(mut done)) => done.remove(0).event,
            other => panic!("{other:?}"),
        }
    }

    /// Records an attempt with this response status.
    pub(crate) fn answer(&self, delivery: DeliveryId, now: Timestamp, code: u16) {
        let (stored, _) = run(self.store.delivery(id("acme"), delivery))
            .expect("it reads")
            .expect("it is there");
        let mut delivery = stored.delivery;
        let policy = RetryPolicy::default();
        let terms = RetrySettings {
            policy: &policy,
            retry_after_cap: RETRY_AFTER_CAP,
        };
        let outcome = Outcome::Answered {
            status: HttpStatus::new(code).expect("a status"),
            retry_after: None,
        };
        delivery.begin(now, false).expect("it waits");
        let settlement = delivery
            .settle(now, outcome, terms, &mut Rng::seeded(3))
            .expect("it was begun");
        let record = Record::Attempt(Box::new(AttemptRecord {
            delivery,
            settlement,
            health: None,
            disable: None,
            endpoint_changes: Vec::new(),
        }));
        let (sent, received) = std::sync::mpsc::channel();
        let done = Box::new(move |written| sent.send(written).expect("the caller waits"));
        self.store
            .record(now, record, AttemptDetail::default(), done);
        assert_eq!(received.recv().expect("an answer"), Ok(Written::Applied));
    }

    /// Runs retention steps until there is nothing more to do. Returns the number of deleted events.
    pub(crate) fn step_retention(&self, now: Timestamp, keep: Span) -> usize {
        self.run_retention_as(now, &Retention::all(keep, 10)).events
    }

    /// The same, and returns all counts.
    pub(crate) fn run_retention_as(
        &self,
        now: Timestamp,
        retention: &Retention,
    ) -> RetentionStepResult {
        let mut sum = RetentionStepResult::default();
        for _ in 0..1_000 {
            let step = run(self.store.step_retention(now, retention.clone())).expect("it tidies");
            sum.events += step.events;
            sum.payloads += step.payloads;
            sum.attempts += step.attempts;
            if !step.more {
                return sum;
            }
        }
        panic!("tidying never ends");
    }

    /// Returns the partitions of a table.
    pub(crate) fn partitions(&self, table: &str) -> Vec<String> {
        self.database.run(&format!(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = '{table}'::regclass \
             ORDER BY 1"
        ))
    }

    /// Runs a query that returns one number.
    pub(crate) fn count(&self, sql: &str) -> u64 {
        self.database.run(sql)[0].parse().expect("a number")
    }
}

/// Waits for an answer.
pub(crate) fn run<T>(answer: Answer<T>) -> Result<T, StoreError> {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime")
        .block_on(answer)
}

pub(crate) fn id(tenant: &str) -> TenantId {
    tenant.parse().expect("a tenant's id")
}

pub(crate) fn endpoint(number: u128, tenant: &str) -> Endpoint {
    Endpoint {
        owner_email_confirmed: true,
        ..Endpoint::new(
            EndpointId(number),
            id(tenant),
            "https://example.com/hook".to_owned(),
            at(0),
        )
    }
}

pub(crate) fn event(tenant: &str) -> NewEvent {
    NewEvent::new(
        id(tenant),
        Content::new(
            "invoice.paid".parse().expect("a type"),
            Bytes::from_static(b"{}"),
        ),
    )
}

pub(crate) fn keyed(tenant: &str, key: &str) -> NewEvent {
    NewEvent {
        idempotency: Some(Idempotency {
            key: key.to_owned(),
            fingerprint: Fingerprint::of(&[key.as_bytes()]),
        }),
        ..event(tenant)
    }
}
