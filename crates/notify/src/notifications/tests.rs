//! Tests of the notification dispatcher and the mailer on the model store, with a clock and a mail server that the test
//! controls.

mod errors;
mod owner_emails;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use posthaste_core::alert::AlertName;
use posthaste_core::classify::{HttpStatus, Outcome};
use posthaste_core::dispatcher::EndpointChange;
use posthaste_core::id::{AlertId, EndpointId};
use posthaste_core::ingest::Fingerprint;
use posthaste_core::lane::{DisableCause, TripReason};
use posthaste_core::rng::Rng;
use posthaste_core::time::{Now, Span, Tick, Timestamp};
use posthaste_engine::Engine;
use posthaste_store::{
    AcceptResult, ActionInterface, Alert, AuditFilter, AuditScope, CreateResult, Endpoint,
    EventFilter, Idempotency, MaxEmailDelay, NewEvent, Notification, PageRequest, PendingEmail,
    Store, StoreError, StoreSettings, SubjectScope,
};
use posthaste_store_testing::model::ModelStore;
use posthaste_system::clock::Clock;
use posthaste_telemetry::metrics::Metrics;
use serde_json::json;
use tokio::sync::Notify;

use super::dispatcher::{NotificationDispatcher, NotificationObserver, ObserverFuture};
use super::mail::address::AllowedDomains;
use super::mail::compose::ConfirmationEmail;
use super::mail::{EmailError, SendEmail, SendFuture};
use super::mailer::Mailer;
use super::settings::Audience;
use crate::shard_owner_task::ShardOwnerTask;
use crate::testing::{self, event, tenant_id as tenant};

const START: u64 = 1_700_000_000_000;
const GATHER: Span = Span::from_secs(30);
const OPS: &str = "ops@example.com";
const OWNER: &str = "owner@example.com";

struct Fixture {
    model: Arc<ModelStore>,
    store: Arc<dyn Store>,
    now: Arc<AtomicU64>,
    clock: Clock,
    metrics: Arc<Metrics>,
}

fn everything<K>() -> PageRequest<K> {
    PageRequest {
        limit: 100,
        before: None,
    }
}

impl Fixture {
    /// Starts with the tenants acme and operator, each with an endpoint that subscribes to all events.
    async fn start() -> Fixture {
        let engine = Engine::new();
        let settings = StoreSettings::new(Rng::seeded(1));
        let model = Arc::new(ModelStore::new(settings, engine.hand_over()));
        let store: Arc<dyn Store> = model.clone();
        let now = Arc::new(AtomicU64::new(START));
        let current = now.clone();
        let clock = Clock::from_fn(move || {
            let ms = current.load(Ordering::SeqCst);
            Now {
                wall: Timestamp(ms),
                tick: Tick(ms - START),
            }
        });
        let metrics = Arc::new(Metrics::new());
        let fixture = Fixture {
            model,
            store,
            now,
            clock,
            metrics,
        };
        for (number, name) in [(1, "acme"), (2, "operator")] {
            fixture.add(number, name).await;
        }
        fixture
    }

    async fn add(&self, number: u128, name: &str) {
        let at = self.clock.wall();
        let tenant = testing::tenant(name, at);
        let created = self.store.create_tenant(at, tenant).await;
        created.expect("the store creates it");
        let endpoint = Endpoint {
            owner_email: Some(OWNER.to_owned()),
            ..testing::endpoint(EndpointId(number), name, at)
        };
        let created = self.store.create_endpoint(at, endpoint, 9).await;
        created.expect("the store creates it");
    }

    /// Fails a delivery of this tenant for good, with these endpoint notifications.
    async fn fail(&self, name: &str, endpoint_changes: Vec<EndpointChange>) {
        let at = self.clock.wall();
        let event = event(name);
        let Ok(AcceptResult::Done(ingested)) = self.store.accept(at, vec![event]).await else {
            panic!("the event is accepted");
        };
        let id = ingested[0].event.deliveries[0].id;
        let found = self.store.delivery(tenant(name), id).await;
        let found = found
            .expect("the store reads")
            .expect("the delivery exists");
        let refused = Outcome::Answered {
            status: HttpStatus::new(400).expect("a valid status"),
            retry_after: None,
        };
        let record = testing::attempt(found.0.delivery, at, refused, endpoint_changes);
        testing::write(&*self.store, at, record).await;
    }

    fn dispatcher(
        &self,
        observer: Arc<dyn NotificationObserver>,
        sends_emails: bool,
    ) -> NotificationDispatcher {
        NotificationDispatcher {
            store: self.store.clone(),
            clock: self.clock.clone(),
            audience: Audience {
                tenant: Some(tenant("operator")),
                operator_emails: sends_emails.then(|| vec![OPS.to_owned()]),
                allowed_domains: AllowedDomains::default(),
            },
            gather: GATHER,
            observer,
            metrics: self.metrics.clone(),
        }
    }

    fn mailer(&self, sender: Arc<dyn SendEmail>) -> Mailer {
        Mailer {
            store: self.store.clone(),
            clock: self.clock.clone(),
            sender,
            min_interval: Span::from_mins(10),
            gather: GATHER,
            operator: vec![OPS.to_owned()],
            tenant_limit: 200,
            metrics: self.metrics.clone(),
        }
    }

    fn advance(&self, span: Span) {
        self.now.fetch_add(span.as_millis(), Ordering::SeqCst);
    }

    /// Returns the types of the operational events, oldest first.
    async fn operational(&self) -> Vec<String> {
        let found = self
            .store
            .events(tenant("operator"), EventFilter::default(), everything());
        let mut types: Vec<String> = found
            .await
            .expect("the store reads")
            .items
            .iter()
            .map(|it| it.content.event_type.to_string())
            .filter(|name| name != "a.b")
            .collect();
        types.reverse();
        types
    }

    async fn audited_actions(&self) -> Vec<String> {
        let found = self.store.audit(AuditFilter::default(), everything()).await;
        let mut actions: Vec<String> = found
            .expect("the store reads")
            .items
            .into_iter()
            .filter(|entry| entry.via == ActionInterface::Posthaste)
            .map(|entry| entry.action)
            .collect();
        actions.reverse();
        actions
    }

    async fn pending_emails(&self) -> Vec<PendingEmail> {
        let at = self.clock.wall();
        let claimed = self
            .store
            .claim_emails(at, at, MaxEmailDelay::ANY, 99)
            .await;
        claimed.expect("the store claims emails")
    }
}

fn alert(at: Timestamp, number: u128, scope: SubjectScope) -> Alert {
    Alert {
        id: AlertId(number),
        name: AlertName::RetryRatio,
        scope,
        tenant: None,
        is_gone: false,
        raised_at: at,
        resolved_at: None,
        detail: json!({}),
    }
}

fn tripped() -> EndpointChange {
    EndpointChange::BreakerTripped(TripReason::ConsecutiveFailures)
}

fn disabled() -> EndpointChange {
    EndpointChange::Disabled(DisableCause::PermanentFailures)
}

#[tokio::test]
async fn every_channel_gets_each_notification_once() {
    let fixture = Fixture::start().await;
    fixture
        .fail("acme", vec![tripped(), EndpointChange::Recovered])
        .await;
    let mut dispatcher = fixture.dispatcher(Arc::new(NoObserver), true);
    assert_eq!(dispatcher.round().await, Ok(true));
    assert_eq!(dispatcher.round().await, Ok(false), "nothing is left");
    let names = ["endpoint.breaker_tripped", "endpoint.recovered"];
    assert_eq!(fixture.operational().await, names);
    assert_eq!(fixture.audited_actions().await, names);
    // Failed deliveries are reported later, in one summary.
    for _ in 0..9 {
        fixture.fail("acme", vec![]).await;
    }
    assert_eq!(dispatcher.round().await, Ok(false));
    fixture.advance(GATHER);
    fixture.advance(Span::from_millis(1));
    assert_eq!(dispatcher.round().await, Ok(true));
    assert_eq!(fixture.operational().await.len(), 3);
    assert_eq!(fixture.audited_actions().await.len(), 2);
    let emails = fixture.pending_emails().await;
    let to: Vec<&str> = emails.iter().map(|it| it.recipient.as_str()).collect();
    assert_eq!(to, [OPS, OWNER]);
    for email in &emails {
        assert_eq!(email.lines.len(), 3);
        assert_eq!(email.lines[2].name, "delivery.failed");
        assert_eq!(email.lines[2].detail["count"], 10);
    }
}

#[tokio::test]
async fn the_operational_tenant_is_reported_by_email_only() {
    let fixture = Fixture::start().await;
    fixture.fail("operator", vec![disabled()]).await;
    fixture.advance(Span::from_mins(1));
    let mut dispatcher = fixture.dispatcher(Arc::new(NoObserver), true);
    while dispatcher.round().await.expect("the round succeeds") {}
    assert_eq!(fixture.operational().await, Vec::<String>::new());
    assert_eq!(fixture.audited_actions().await, ["endpoint.disabled"]);
    fixture.advance(GATHER);
    let emails = fixture.pending_emails().await;
    assert_eq!(emails[0].recipient, OPS);
    assert_eq!(emails[0].lines.len(), 2);
}

#[tokio::test]
async fn an_alert_about_the_operational_tenant_makes_no_event() {
    let fixture = Fixture::start().await;
    let at = fixture.clock.wall();
    for (number, scope) in [
        (1, SubjectScope::Tenant(tenant("operator"))),
        (2, SubjectScope::Endpoint(EndpointId(2))),
        (3, SubjectScope::Everything),
    ] {
        let alert = alert(at, number, scope);
        let raised = fixture.store.raise_alert(at, alert).await;
        assert_eq!(raised, Ok(CreateResult::Created));
        let resolved = fixture.store.resolve_alert(at, AlertId(number)).await;
        assert!(resolved.is_ok_and(|it| it.is_some()));
    }
    let mut dispatcher = fixture.dispatcher(Arc::new(NoObserver), true);
    while dispatcher.round().await.expect("the round succeeds") {}
    let names = ["alert.raised", "alert.resolved"];
    assert_eq!(
        fixture.operational().await,
        names,
        "only of the alert about everything"
    );
    assert_eq!(
        fixture.audited_actions().await,
        [names, names, names].concat()
    );
    fixture.advance(GATHER);
    assert_eq!(fixture.pending_emails().await[0].lines.len(), 6);
}

#[tokio::test]
async fn a_later_tenant_with_the_same_id_sees_no_earlier_audit_entries() {
    let fixture = Fixture::start().await;
    let at = fixture.clock.wall();
    let alert = alert(at, 1, SubjectScope::Tenant(tenant("acme")));
    let raised = fixture.store.raise_alert(at, alert).await;
    assert_eq!(raised, Ok(CreateResult::Created));
    let deleted = fixture.store.delete_tenant(at, tenant("acme")).await;
    deleted.expect("the tenant is deleted");
    // With the same timestamp.
    fixture.add(3, "acme").await;
    let mut dispatcher = fixture.dispatcher(Arc::new(NoObserver), false);
    assert_eq!(dispatcher.round().await, Ok(true));
    assert_eq!(fixture.audited_actions().await, ["alert.raised"]);
    let theirs = AuditFilter {
        of: AuditScope::Tenant(tenant("acme")),
        ..AuditFilter::default()
    };
    let theirs = fixture.store.audit(theirs, everything()).await;
    assert_eq!(theirs.expect("the store reads").items, []);
}

#[tokio::test]
async fn without_a_mail_server_no_emails_are_created() {
    let fixture = Fixture::start().await;
    fixture.fail("acme", vec![tripped()]).await;
    let mut dispatcher = fixture.dispatcher(Arc::new(NoObserver), false);
    assert_eq!(dispatcher.round().await, Ok(true));
    fixture.advance(Span::from_hours(1));
    assert_eq!(fixture.pending_emails().await, []);
}

#[tokio::test]
async fn an_idempotency_key_in_use_blocks_only_its_own_event() {
    let fixture = Fixture::start().await;
    let taken = NewEvent {
        idempotency: Some(Idempotency {
            key: "notice-1".to_owned(),
            fingerprint: Fingerprint::of(&[b"something else"]),
        }),
        ..event("operator")
    };
    let accepted = fixture
        .store
        .accept(fixture.clock.wall(), vec![taken])
        .await;
    accepted.expect("the event is accepted");
    fixture
        .fail("acme", vec![tripped(), EndpointChange::Recovered])
        .await;
    let mut dispatcher = fixture.dispatcher(Arc::new(NoObserver), true);
    assert_eq!(dispatcher.round().await, Ok(true));
    assert_eq!(fixture.operational().await, ["endpoint.recovered"]);
    assert_eq!(fixture.store.last_processed_notification().await, Ok(2));
}

/// Observer that does nothing.
struct NoObserver;

impl NotificationObserver for NoObserver {
    fn observe<'a>(&'a self, _notification: &'a Notification) -> ObserverFuture<'a> {
        Box::pin(async { Ok(()) })
    }
}

/// Observer that fails at the second notification, the first time.
#[derive(Default)]
struct FailsOnce {
    calls: AtomicUsize,
}

impl NotificationObserver for FailsOnce {
    fn observe<'a>(&'a self, _notification: &'a Notification) -> ObserverFuture<'a> {
        let calls = self.calls.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            match calls {
                1 => Err(StoreError::Unavailable("on purpose".to_owned())),
                _ => Ok(()),
            }
        })
    }
}

#[tokio::test]
async fn a_failed_round_is_repeated_without_duplicates() {
    let fixture = Fixture::start().await;
    fixture.fail("acme", vec![tripped(), disabled()]).await;
    let mut dispatcher = fixture.dispatcher(Arc::new(FailsOnce::default()), true);
    dispatcher.round().await.expect_err("the round fails");
    assert_eq!(
        fixture.audited_actions().await,
        ["endpoint.breaker_tripped"]
    );
    assert_eq!(fixture.store.last_processed_notification().await, Ok(0));
    assert_eq!(dispatcher.round().await, Ok(true));
    let names = ["endpoint.breaker_tripped", "endpoint.disabled"];
    assert_eq!(fixture.audited_actions().await, names);
    assert_eq!(fixture.operational().await, names);
    fixture.advance(GATHER);
    assert_eq!(fixture.pending_emails().await[0].lines.len(), 2);
}

/// Observer that blocks until the test releases it.
#[derive(Default)]
struct Slow {
    begun: Notify,
    go_on: Notify,
}

impl NotificationObserver for Slow {
    fn observe<'a>(&'a self, _notification: &'a Notification) -> ObserverFuture<'a> {
        Box::pin(async {
            self.begun.notify_one();
            self.go_on.notified().await;
            Ok(())
        })
    }
}

#[tokio::test]
async fn two_dispatchers_make_no_duplicates() {
    let fixture = Fixture::start().await;
    fixture.fail("acme", vec![tripped()]).await;
    let slow = Arc::new(Slow::default());
    let mut late = fixture.dispatcher(slow.clone(), true);
    let late = tokio::spawn(async move { late.round().await });
    slow.begun.notified().await;
    let mut dispatcher = fixture.dispatcher(Arc::new(NoObserver), true);
    assert_eq!(dispatcher.round().await, Ok(true));
    slow.go_on.notify_one();
    late.await
        .expect("the task ends")
        .expect("the round succeeds");
    let names = ["endpoint.breaker_tripped"];
    assert_eq!(fixture.audited_actions().await, names);
    assert_eq!(fixture.operational().await, names);
    fixture.advance(GATHER);
    assert_eq!(fixture.pending_emails().await[0].lines.len(), 1, "one line");
}

/// Mail server that gives the configured answers in turn, and keeps the emails.
#[derive(Default)]
struct FakeSmtp {
    results: Mutex<Vec<Result<(), EmailError>>>,
    received: Mutex<Vec<PendingEmail>>,
    confirmations: Mutex<Vec<ConfirmationEmail>>,
}

impl SendEmail for FakeSmtp {
    fn send<'a>(&'a self, email: &'a PendingEmail, _now: Timestamp) -> SendFuture<'a> {
        self.received
            .lock()
            .expect("the lock is not poisoned")
            .push(email.clone());
        let mut results = self.results.lock().expect("the lock is not poisoned");
        let result = if results.is_empty() {
            Ok(())
        } else {
            results.remove(0)
        };
        Box::pin(async move { result })
    }

    fn send_confirmation<'a>(
        &'a self,
        email: &'a ConfirmationEmail,
        _now: Timestamp,
    ) -> SendFuture<'a> {
        let mut confirmations = self.confirmations.lock().expect("the lock is not poisoned");
        confirmations.push(email.clone());
        let mut results = self.results.lock().expect("the lock is not poisoned");
        let result = results.pop().unwrap_or(Ok(()));
        Box::pin(async move { result })
    }
}

#[tokio::test]
async fn an_email_is_sent_when_due_and_retried_if_refused() {
    let fixture = Fixture::start().await;
    let mut dispatcher = fixture.dispatcher(Arc::new(NoObserver), true);
    let post = Arc::new(FakeSmtp {
        results: Mutex::new(vec![
            Err(EmailError::Later("busy".to_owned())),
            Err(EmailError::Never("no such recipient".to_owned())),
        ]),
        ..FakeSmtp::default()
    });
    let mut mailer = fixture.mailer(post.clone());
    let received = || {
        let received = post.received.lock().expect("the lock is not poisoned");
        let emails = received.iter();
        emails
            .map(|it| (it.recipient.clone(), it.lines.len()))
            .collect::<Vec<_>>()
    };
    let (ops, owner) = (OPS.to_owned(), OWNER.to_owned());
    fixture.fail("acme", vec![tripped()]).await;
    dispatcher.round().await.expect("the round succeeds");
    mailer.round().await.expect("the round succeeds");
    assert_eq!(received(), [], "lines are still collected");
    fixture.advance(GATHER);
    mailer.round().await.expect("the round succeeds");
    assert_eq!(received(), [(ops.clone(), 1), (owner.clone(), 1)]);
    // The email to the operator is retried with all lines added since; the other one is never sent.
    dispatcher.round().await.expect("the round succeeds");
    fixture.fail("acme", vec![EndpointChange::Recovered]).await;
    dispatcher.round().await.expect("the round succeeds");
    fixture.advance(Span::from_mins(2));
    mailer.round().await.expect("the round succeeds");
    let sent = received();
    assert_eq!(sent[2..].iter().filter(|it| it.0 == ops).count(), 1);
    let to_ops = sent
        .iter()
        .rfind(|it| it.0 == ops)
        .expect("the email was sent");
    assert!(to_ops.1 >= 2, "{sent:?}");
    // After that the operator gets no email during the quiet time.
    fixture.fail("acme", vec![tripped()]).await;
    dispatcher.round().await.expect("the round succeeds");
    fixture.advance(Span::from_mins(9));
    mailer.round().await.expect("the round succeeds");
    let count = |received: &[(String, usize)]| received.iter().filter(|it| it.0 == ops).count();
    assert_eq!(count(&received()), 2);
    fixture.advance(Span::from_mins(2));
    mailer.round().await.expect("the round succeeds");
    assert_eq!(count(&received()), 3);
}
