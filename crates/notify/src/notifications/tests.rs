//! Tests of the notification dispatcher and the mailer on the model store, with a clock and a mail server that the test
//! controls.

mod trouble;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use posthaste_core::alert::AlertName;
use posthaste_core::classify::{HttpStatus, Outcome};
use posthaste_core::delivery::RetrySettings;
use posthaste_core::dice::Dice;
use posthaste_core::dispatcher::{AttemptRecord, News, Record};
use posthaste_core::id::{AlertId, EndpointId, TenantId};
use posthaste_core::ingest::Fingerprint;
use posthaste_core::lane::{
    DEFAULT_MAX_IN_FLIGHT, DisableCause, RETRY_AFTER_CAP, RateLimit, TripReason,
};
use posthaste_core::policy::RetryPolicy;
use posthaste_core::sign::SignatureStyle;
use posthaste_core::time::{Now, Span, Tick, Timestamp};
use posthaste_engine::Engine;
use posthaste_engine::owner_router::OwnerRouter;
use posthaste_store::{
    Alert, AttemptDetail, AuditFilter, AuditScope, Content, CreateResult, Endpoint, EventFilter,
    Idempotency, Ingest, Limits, MaxEmailDelay, NewEvent, Notification, PageRequest, PendingEmail,
    Scope, Store, StoreError, StoreSettings, Tenant, Via, Written,
};
use posthaste_store_testing::model::ModelStore;
use posthaste_system::clock::Clock;
use posthaste_telemetry::metrics::Metrics;
use serde_json::json;
use tokio::sync::Notify;

use super::herald::{Hearing, NoObserver, NotificationDispatcher, NotificationObserver};
use super::letters::Mailer;
use super::mail::{EmailError, SendEmail, Sending};
use super::settings::Audience;

const START: u64 = 1_700_000_000_000;
const GATHER: Span = Span::from_secs(30);
const OPS: &str = "ops@example.com";
const OWNER: &str = "owner@example.com";

struct World {
    model: Arc<ModelStore>,
    store: Arc<dyn Store>,
    now: Arc<AtomicU64>,
    clock: Clock,
    observe: Arc<Metrics>,
    switchboard: Arc<OwnerRouter>,
}

fn tenant(name: &str) -> TenantId {
    name.parse().expect("a tenant's id")
}

fn everything<K>() -> PageRequest<K> {
    PageRequest {
        limit: 100,
        before: None,
    }
}

impl World {
    /// Starts with the tenants acme and operator, each with an endpoint that subscribes to all events.
    async fn start() -> World {
        let engine = Engine::new();
        let settings = StoreSettings::new(Dice::seeded(1));
        let model = Arc::new(ModelStore::new(settings, engine.hand_over()));
        let store: Arc<dyn Store> = model.clone();
        let now = Arc::new(AtomicU64::new(START));
        let said = now.clone();
        let clock = Clock::told(move || {
            let ms = said.load(Ordering::SeqCst);
            Now {
                wall: Timestamp(ms),
                tick: Tick(ms - START),
            }
        });
        let observe = Arc::new(Metrics::new());
        let switchboard =
            OwnerRouter::new(engine, observe.clone(), clock.clone(), store.clone(), None);
        let world = World {
            model,
            store,
            now,
            clock,
            observe,
            switchboard: Arc::new(switchboard),
        };
        for (number, name) in [(1, "acme"), (2, "operator")] {
            world.add(number, name).await;
        }
        world
    }

    async fn add(&self, number: u128, name: &str) {
        let at = self.clock.wall();
        let made = Tenant {
            id: tenant(name),
            name: name.to_owned(),
            default_retry_policy: None,
            limits: Limits::default(),
            plan: None,
            created_at: at,
            revision: 0,
        };
        self.store
            .create_tenant(at, made)
            .await
            .expect("it is made");
        let made = Endpoint {
            id: EndpointId(number),
            tenant: tenant(name),
            url: format!("https://{name}.example.com/in"),
            description: String::new(),
            event_types: Vec::new(),
            retry_policy: None,
            timeout: Span::from_secs(30),
            max_in_flight: DEFAULT_MAX_IN_FLIGHT,
            rate: RateLimit::default(),
            ordered: false,
            sealed_headers: Vec::new(),
            sealed_keys: Vec::new(),
            signature_style: SignatureStyle::Standard,
            sealed_credentials: Vec::new(),
            owner_email: Some(OWNER.to_owned()),
            created_at: at,
            revision: 0,
        };
        let made = self.store.create_endpoint(at, made, 9).await;
        made.expect("it is made");
    }

    /// Fails a delivery of this tenant for good, with these endpoint notifications.
    async fn fail(&self, name: &str, news: Vec<News>) {
        let at = self.clock.wall();
        let event = event(name);
        let Ok(Ingest::Done(ingested)) = self.store.accept(at, vec![event]).await else {
            panic!("it is accepted");
        };
        let id = ingested[0].event.deliveries[0].id;
        let found = self.store.delivery(tenant(name), id).await;
        let mut delivery = found.expect("it reads").expect("it is there").0.delivery;
        let policy = RetryPolicy::default();
        let terms = RetrySettings {
            policy: &policy,
            retry_after_cap: RETRY_AFTER_CAP,
        };
        delivery.begin(at, false).expect("it waits");
        let refused = Outcome::Answered {
            status: HttpStatus::new(400).expect("a status"),
            retry_after: None,
        };
        let settlement = delivery.settle(at, refused, terms, &mut Dice::seeded(1));
        let record = Record::Attempt(Box::new(AttemptRecord {
            delivery,
            settlement: settlement.expect("it was begun"),
            health: None,
            disable: None,
            news,
        }));
        let detail = AttemptDetail::default();
        let done = Box::new(|written| assert_eq!(written, Ok(Written::Applied)));
        self.store.record(at, record, detail, done);
    }

    fn herald(
        &self,
        hears: Arc<dyn NotificationObserver>,
        letters: bool,
    ) -> NotificationDispatcher {
        NotificationDispatcher {
            store: self.store.clone(),
            clock: self.clock.clone(),
            switchboard: self.switchboard.clone(),
            audience: Audience {
                tenant: Some(tenant("operator")),
                letters: letters.then(|| vec![OPS.to_owned()]),
            },
            gather: GATHER,
            hears,
            observe: self.observe.clone(),
        }
    }

    fn postman(&self, post: Arc<dyn SendEmail>) -> Mailer {
        Mailer {
            store: self.store.clone(),
            clock: self.clock.clone(),
            switchboard: self.switchboard.clone(),
            post,
            every: Span::from_mins(10),
            gather: GATHER,
            operator: vec![OPS.to_owned()],
            observe: self.observe.clone(),
        }
    }

    fn pass(&self, span: Span) {
        self.now.fetch_add(span.as_millis(), Ordering::SeqCst);
    }

    /// Returns the types of the operational events, oldest first.
    async fn operational(&self) -> Vec<String> {
        let found = self
            .store
            .events(tenant("operator"), EventFilter::default(), everything());
        let mut types: Vec<String> = found
            .await
            .expect("it reads")
            .items
            .iter()
            .map(|it| it.content.event_type.to_string())
            .filter(|name| name != "a.b")
            .collect();
        types.reverse();
        types
    }

    async fn acts(&self) -> Vec<String> {
        let found = self.store.audit(AuditFilter::default(), everything()).await;
        let mut acts: Vec<String> = found
            .expect("it reads")
            .items
            .into_iter()
            .filter(|entry| entry.via == Via::Posthaste)
            .map(|entry| entry.action)
            .collect();
        acts.reverse();
        acts
    }

    async fn letters(&self) -> Vec<PendingEmail> {
        let at = self.clock.wall();
        let claimed = self
            .store
            .claim_letters(at, at, MaxEmailDelay::ANY, 99)
            .await;
        claimed.expect("it claims")
    }
}

fn event(of: &str) -> NewEvent {
    NewEvent {
        tenant: tenant(of),
        content: Arc::new(Content {
            event_type: "a.b".parse().expect("a type"),
            content_type: None,
            payload: Bytes::from_static(b"{}"),
            trace: None,
        }),
        idempotency: None,
        deliver_at: None,
        ordering: None,
        only: None,
        received: None,
    }
}

fn alert(at: Timestamp, number: u128, scope: Scope) -> Alert {
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

fn tripped() -> News {
    News::BreakerTripped(TripReason::ConsecutiveFailures)
}

fn disabled() -> News {
    News::Disabled(DisableCause::PermanentFailures)
}

#[tokio::test]
async fn what_happened_is_told_once_to_everybody_who_wants_to_know() {
    let world = World::start().await;
    world.fail("acme", vec![tripped(), News::Recovered]).await;
    let herald = world.herald(Arc::new(NoObserver), true);
    assert_eq!(herald.round().await, Ok(true));
    assert_eq!(herald.round().await, Ok(false), "nothing is left");
    let names = ["endpoint.breaker_tripped", "endpoint.recovered"];
    assert_eq!(world.operational().await, names);
    assert_eq!(world.acts().await, names);
    // Failed deliveries are reported later, in one summary.
    for _ in 0..9 {
        world.fail("acme", vec![]).await;
    }
    assert_eq!(herald.round().await, Ok(false));
    world.pass(GATHER);
    world.pass(Span::from_millis(1));
    assert_eq!(herald.round().await, Ok(true));
    assert_eq!(world.operational().await.len(), 3);
    assert_eq!(world.acts().await.len(), 2);
    let letters = world.letters().await;
    let to: Vec<&str> = letters.iter().map(|it| it.recipient.as_str()).collect();
    assert_eq!(to, [OPS, OWNER]);
    for letter in &letters {
        assert_eq!(letter.lines.len(), 3);
        assert_eq!(letter.lines[2].name, "delivery.failed");
        assert_eq!(letter.lines[2].detail["count"], 10);
    }
}

#[tokio::test]
async fn nothing_is_told_of_the_operators_own_endpoints_but_by_mail() {
    let world = World::start().await;
    world.fail("operator", vec![disabled()]).await;
    world.pass(Span::from_mins(1));
    let herald = world.herald(Arc::new(NoObserver), true);
    while herald.round().await.expect("it tells") {}
    assert_eq!(world.operational().await, Vec::<String>::new());
    assert_eq!(world.acts().await, ["endpoint.disabled"]);
    world.pass(GATHER);
    let letters = world.letters().await;
    assert_eq!(letters[0].recipient, OPS);
    assert_eq!(letters[0].lines.len(), 2);
}

#[tokio::test]
async fn an_alert_about_the_operators_own_tenant_makes_no_event() {
    let world = World::start().await;
    let at = world.clock.wall();
    for (number, scope) in [
        (1, Scope::Tenant(tenant("operator"))),
        (2, Scope::Endpoint(EndpointId(2))),
        (3, Scope::Everything),
    ] {
        let alert = alert(at, number, scope);
        let raised = world.store.raise_alert(at, alert).await;
        assert_eq!(raised, Ok(CreateResult::Created));
        let resolved = world.store.resolve_alert(at, AlertId(number)).await;
        assert!(resolved.is_ok_and(|it| it.is_some()));
    }
    let herald = world.herald(Arc::new(NoObserver), true);
    while herald.round().await.expect("it tells") {}
    let told = ["alert.raised", "alert.resolved"];
    assert_eq!(world.operational().await, told, "of everything alone");
    assert_eq!(world.acts().await, [told, told, told].concat());
    world.pass(GATHER);
    assert_eq!(world.letters().await[0].lines.len(), 6);
}

#[tokio::test]
async fn a_later_tenant_of_the_same_id_reads_nothing_of_an_earlier() {
    let world = World::start().await;
    let at = world.clock.wall();
    let alert = alert(at, 1, Scope::Tenant(tenant("acme")));
    let raised = world.store.raise_alert(at, alert).await;
    assert_eq!(raised, Ok(CreateResult::Created));
    let deleted = world.store.delete_tenant(at, tenant("acme")).await;
    deleted.expect("it is deleted");
    // With the same timestamp.
    world.add(3, "acme").await;
    let herald = world.herald(Arc::new(NoObserver), false);
    assert_eq!(herald.round().await, Ok(true));
    assert_eq!(world.acts().await, ["alert.raised"]);
    let theirs = AuditFilter {
        of: AuditScope::Tenant(tenant("acme")),
        ..AuditFilter::default()
    };
    let theirs = world.store.audit(theirs, everything()).await;
    assert_eq!(theirs.expect("it reads").items, []);
}

#[tokio::test]
async fn without_a_mail_server_no_letters_pile_up() {
    let world = World::start().await;
    world.fail("acme", vec![tripped()]).await;
    let herald = world.herald(Arc::new(NoObserver), false);
    assert_eq!(herald.round().await, Ok(true));
    world.pass(Span::from_hours(1));
    assert_eq!(world.letters().await, []);
}

#[tokio::test]
async fn a_key_that_somebody_has_taken_keeps_nothing_else_back() {
    let world = World::start().await;
    let taken = NewEvent {
        idempotency: Some(Idempotency {
            key: "notice-1".to_owned(),
            fingerprint: Fingerprint::of(&[b"something else"]),
        }),
        ..event("operator")
    };
    let accepted = world.store.accept(world.clock.wall(), vec![taken]).await;
    accepted.expect("it is accepted");
    world.fail("acme", vec![tripped(), News::Recovered]).await;
    let herald = world.herald(Arc::new(NoObserver), true);
    assert_eq!(herald.round().await, Ok(true));
    assert_eq!(world.operational().await, ["endpoint.recovered"]);
    assert_eq!(world.store.told().await, Ok(2));
}

/// Observer that fails at the second notification, the first time.
#[derive(Default)]
struct HardOfHearing {
    heard: AtomicUsize,
}

impl NotificationObserver for HardOfHearing {
    fn heard<'a>(&'a self, _notice: &'a Notification) -> Hearing<'a> {
        let heard = self.heard.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            match heard {
                1 => Err(StoreError::Unavailable("on purpose".to_owned())),
                _ => Ok(()),
            }
        })
    }
}

#[tokio::test]
async fn a_round_that_was_cut_short_is_repeated_without_anybody_noticing() {
    let world = World::start().await;
    world.fail("acme", vec![tripped(), disabled()]).await;
    let herald = world.herald(Arc::new(HardOfHearing::default()), true);
    herald.round().await.expect_err("it is cut short");
    assert_eq!(world.acts().await, ["endpoint.breaker_tripped"]);
    assert_eq!(world.store.told().await, Ok(0));
    assert_eq!(herald.round().await, Ok(true));
    let names = ["endpoint.breaker_tripped", "endpoint.disabled"];
    assert_eq!(world.acts().await, names);
    assert_eq!(world.operational().await, names);
    world.pass(GATHER);
    assert_eq!(world.letters().await[0].lines.len(), 2);
}

/// Observer that blocks until the test releases it.
#[derive(Default)]
struct Slow {
    begun: Notify,
    go_on: Notify,
}

impl NotificationObserver for Slow {
    fn heard<'a>(&'a self, _notice: &'a Notification) -> Hearing<'a> {
        Box::pin(async {
            self.begun.notify_one();
            self.go_on.notified().await;
            Ok(())
        })
    }
}

#[tokio::test]
async fn two_heralds_tell_as_one() {
    let world = World::start().await;
    world.fail("acme", vec![tripped()]).await;
    let slow = Arc::new(Slow::default());
    let late = world.herald(slow.clone(), true);
    let late = tokio::spawn(async move { late.round().await });
    slow.begun.notified().await;
    let herald = world.herald(Arc::new(NoObserver), true);
    assert_eq!(herald.round().await, Ok(true));
    slow.go_on.notify_one();
    late.await.expect("it ends").expect("it tells");
    let names = ["endpoint.breaker_tripped"];
    assert_eq!(world.acts().await, names);
    assert_eq!(world.operational().await, names);
    world.pass(GATHER);
    assert_eq!(world.letters().await[0].lines.len(), 1, "one line");
}

/// Mail server that gives the configured answers in turn, and keeps the emails.
struct FakePost {
    answers: Mutex<Vec<Result<(), EmailError>>>,
    given: Mutex<Vec<PendingEmail>>,
}

impl SendEmail for FakePost {
    fn send<'a>(&'a self, letter: &'a PendingEmail, _now: Timestamp) -> Sending<'a> {
        self.given.lock().expect("no panics").push(letter.clone());
        let mut answers = self.answers.lock().expect("no panics");
        let answer = if answers.is_empty() {
            Ok(())
        } else {
            answers.remove(0)
        };
        Box::pin(async move { answer })
    }
}

#[tokio::test]
async fn a_letter_goes_when_it_is_due_and_again_if_it_was_not_taken() {
    let world = World::start().await;
    let herald = world.herald(Arc::new(NoObserver), true);
    let post = Arc::new(FakePost {
        answers: Mutex::new(vec![
            Err(EmailError::Later("busy".to_owned())),
            Err(EmailError::Never("nobody of that name".to_owned())),
        ]),
        given: Mutex::default(),
    });
    let postman = world.postman(post.clone());
    let given = || {
        let given = post.given.lock().expect("no panics");
        let letters = given.iter();
        letters
            .map(|it| (it.recipient.clone(), it.lines.len()))
            .collect::<Vec<_>>()
    };
    let (ops, owner) = (OPS.to_owned(), OWNER.to_owned());
    world.fail("acme", vec![tripped()]).await;
    herald.round().await.expect("it tells");
    postman.round().await.expect("it sends");
    assert_eq!(given(), [], "it gathers");
    world.pass(GATHER);
    postman.round().await.expect("it sends");
    assert_eq!(given(), [(ops.clone(), 1), (owner.clone(), 1)]);
    // The email to the operator is retried with all lines added since; the other one is never sent.
    herald.round().await.expect("it tells");
    world.fail("acme", vec![News::Recovered]).await;
    herald.round().await.expect("it tells");
    world.pass(Span::from_mins(2));
    postman.round().await.expect("it sends");
    let sent = given();
    assert_eq!(sent[2..].iter().filter(|it| it.0 == ops).count(), 1);
    let to_ops = sent.iter().rfind(|it| it.0 == ops).expect("it was sent");
    assert!(to_ops.1 >= 2, "{sent:?}");
    // After that the operator gets no email during the quiet time.
    world.fail("acme", vec![tripped()]).await;
    herald.round().await.expect("it tells");
    world.pass(Span::from_mins(9));
    postman.round().await.expect("it sends");
    let count = |given: &[(String, usize)]| given.iter().filter(|it| it.0 == ops).count();
    assert_eq!(count(&given()), 2);
    world.pass(Span::from_mins(2));
    postman.round().await.expect("it sends");
    assert_eq!(count(&given()), 3);
}
