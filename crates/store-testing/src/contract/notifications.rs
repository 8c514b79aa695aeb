//! Notifications and emails are kept until they are sent.
//!
//! Failures are gathered into one notification per endpoint. Notifications are dispatched once, in order; their
//! lines are collected in one email per recipient until it is due. A claimed email is not claimed again for a
//! while, and an email that could not be sent is retried or dropped. Both queues are bounded.

use std::sync::Arc;

use posthaste_core::alert::AlertName;
use posthaste_core::delivery::DeadReason;
use posthaste_core::dispatcher::EndpointChange;
use posthaste_core::id::{AlertId, AuditId, first_sequence, id_of};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::rng::Rng;
use posthaste_core::time::{Span, Timestamp};
use serde_json::json;

use super::Harness;
use super::fixture::{DAY, StoreFixture, all, answered, at, attempt, endpoint, event, id};
use posthaste_store::{
    ActionInterface, Alert, AuditEntry, AuditFilter, AuditOutcome, AuditScope, CreateResult,
    EmailLine, EmailResult, MAX_EMAIL_LINES, MAX_PENDING_NOTIFICATIONS, MaxEmailDelay,
    PendingEmail, RetryResult, SubjectScope, Written,
};

const OPS: &str = "ops@example.com";
const OWNER: &str = "owner@example.com";

fn line(number: u64) -> EmailLine {
    EmailLine {
        at: at(number),
        name: "endpoint.recovered".to_owned(),
        tenant: Some("acme".to_owned()),
        endpoint: None,
        endpoint_url: Some("https://\"ü\".example.com".to_owned()),
        detail: json!({ "number": number, "text": "a \"b\" ü" }),
    }
}

fn lines(recipient: &str, numbers: std::ops::Range<u64>) -> Vec<(String, EmailLine)> {
    let line = |number| (recipient.to_owned(), line(number));
    numbers.map(line).collect()
}

impl StoreFixture<'_> {
    async fn add_lines(&self, now: Timestamp, lines: Vec<(String, EmailLine)>, due_at: Timestamp) {
        let processed = self.store.last_processed_notification().await.unwrap();
        let moved = self
            .store
            .complete_notifications(now, processed, processed, lines, due_at)
            .await;
        assert_eq!(moved, Ok(true));
    }

    async fn claim(&self, now: Timestamp) -> Vec<PendingEmail> {
        let until = Timestamp(now.0 + 1_000);
        self.store
            .claim_emails(now, until, MaxEmailDelay::ANY, 9)
            .await
            .unwrap()
    }

    async fn settle(&self, email: &PendingEmail, posted: EmailResult) -> bool {
        let recipient = email.recipient.clone();
        let settled = self
            .store
            .record_email_result(recipient, email.revision, posted);
        settled.await.unwrap()
    }
}

pub(super) async fn failures_become_one_notification_per_endpoint(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add(endpoint(1, "acme", &["one"])).await;
    let other = world.add(endpoint(2, "acme", &["two"])).await;
    let mut sent = Vec::new();
    for ms in 0..5 {
        sent.push(world.send(at(ms), "one").await);
    }
    let elsewhere = world.send(at(5), "two").await;
    world.succeed(sent[4], at(50)).await;
    world.fail(elsewhere, at(95)).await;
    for (ms, delivery) in [(100, sent[2]), (90, sent[1]), (120, sent[3])] {
        world.fail(delivery, at(ms)).await;
    }
    world.set_status(made, EndpointStatus::Disabled).await;
    let reason = DeadReason::EndpointDisabled;
    world.sweep(at(130), made, reason).await;
    assert_eq!(world.store.notifications(0, 9).await, Ok(Vec::new()));
    // An attempt ends 10 ms after it began.
    let too_early = world.store.collect_failures(at(200), at(100), 9).await;
    assert_eq!(too_early, Ok(0));
    let world = world.reopened().await;
    let gathered = world.store.collect_failures(at(200), at(101), 9).await;
    assert_eq!(
        gathered,
        Ok(1),
        "the notification of the other endpoint is not due"
    );
    let gathered = world.store.collect_failures(at(200), at(200), 9).await;
    assert_eq!(gathered, Ok(1));
    let gathered = world.store.collect_failures(at(200), at(200), 9).await;
    assert_eq!(gathered, Ok(0), "once");
    let notifications = world.store.notifications(0, 9).await.unwrap();
    assert_eq!(notifications.len(), 2);
    assert!(notifications.iter().all(|it| it.name == "delivery.failed"));
    assert_eq!(notifications[0].scope, SubjectScope::Endpoint(made));
    assert_eq!(notifications[0].at, at(130));
    let expected = json!({
        "count": 4,
        "first_at": at(100).to_string(),
        "last_at": at(130).to_string(),
        "reasons": {"permanent": 3, "endpoint_disabled": 1},
        "error_kinds": {"http": 3, "webhook_disabled": 1},
        "delivery_id": sent[0].to_string(),
    });
    assert_eq!(notifications[0].detail, expected);
    assert_eq!(notifications[1].scope, SubjectScope::Endpoint(other));
    assert_eq!(notifications[1].detail["count"], 1);
    assert_eq!(
        notifications[1].detail["delivery_id"],
        elsewhere.to_string()
    );
}

pub(super) async fn swept_deliveries_of_a_deleted_endpoint_are_not_reported(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    let sent = world.send(at(1), "a.b").await;
    world.send(at(2), "a.b").await;
    world.fail(sent, at(3)).await;
    world.set_status(made, EndpointStatus::Deleted).await;
    world.sweep(at(4), made, DeadReason::EndpointDeleted).await;
    assert_eq!(world.store.collect_failures(at(99), at(99), 9).await, Ok(1));
    let notifications = world.store.notifications(0, 9).await.unwrap();
    assert_eq!(notifications[0].detail["reasons"], json!({"permanent": 1}));
    assert_eq!(notifications[0].scope, SubjectScope::Endpoint(made));
}

pub(super) async fn a_replayed_delivery_that_fails_again_is_counted_again(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    let sent = world.send(at(1), "a.b").await;
    world.fail(sent, at(2)).await;
    let replayed = RetryResult::Replayed { endpoint: made };
    let retried = world.store.retry(at(3), id("acme"), sent).await;
    assert_eq!(retried, Ok(replayed));
    world.fail(sent, at(4)).await;
    // A superseded record fails no delivery.
    let late = attempt(
        &{
            let fresh = world.accept(at(5), event("acme", "a.b")).await;
            world.delivery(fresh.deliveries[0].id).await
        },
        at(6),
        answered(400),
    );
    assert_eq!(world.record(at(6), late.clone()).await, Written::Applied);
    assert_eq!(world.record(at(7), late).await, Written::Superseded);
    assert_eq!(world.store.collect_failures(at(99), at(99), 9).await, Ok(1));
    let notifications = world.store.notifications(0, 9).await.unwrap();
    assert_eq!(notifications[0].detail["count"], 3);
}

pub(super) async fn notifications_are_sent_once_and_removed(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let store = &world.store;
    world.add_endpoint(1).await;
    for ms in 1..=3 {
        let sent = world.send(at(ms), "a.b").await;
        let mut settled = attempt(&world.delivery(sent).await, at(ms), answered(200));
        settled.endpoint_changes = vec![EndpointChange::Recovered];
        assert_eq!(world.record(at(ms), settled).await, Written::Applied);
    }
    let notifications = store.notifications(0, 9).await.unwrap();
    let numbers: Vec<u64> = notifications.iter().map(|it| it.number).collect();
    let first = numbers[0];
    assert_eq!(
        numbers,
        [first, first + 1, first + 2],
        "the numbers have no gaps"
    );
    let processed = store.last_processed_notification().await.unwrap();
    assert_eq!(processed + 1, first);
    let complete = |from, up_to| {
        let due = at(9);
        store.complete_notifications(at(9), from, up_to, lines(OPS, 0..1), due)
    };
    assert_eq!(complete(processed, numbers[1]).await, Ok(true));
    assert_eq!(
        complete(processed, numbers[2]).await,
        Ok(false),
        "the position has already been advanced"
    );
    assert_eq!(store.last_processed_notification().await, Ok(numbers[1]));
    let world = world.reopened().await;
    let store = &world.store;
    assert_eq!(store.last_processed_notification().await, Ok(numbers[1]));
    let left = store.notifications(0, 9).await.unwrap();
    assert_eq!(left, notifications[2..]);
    let emails = world.claim(at(9)).await;
    assert_eq!(emails.len(), 1);
    assert_eq!(emails[0].lines, [line(0)], "the notification is sent once");
    // The number of the last dispatched notification is not reused.
    let moved = store.complete_notifications(at(9), numbers[1], numbers[2], vec![], at(9));
    assert_eq!(moved.await, Ok(true));
    let world = world.reopened().await;
    let store = &world.store;
    let sent = world.send(at(20), "a.b").await;
    let mut settled = attempt(&world.delivery(sent).await, at(20), answered(200));
    settled.endpoint_changes = vec![EndpointChange::Recovered];
    assert_eq!(world.record(at(20), settled).await, Written::Applied);
    let next = store.notifications(numbers[2], 9).await.unwrap();
    assert_eq!(next[0].number, numbers[2] + 1);
}

pub(super) async fn an_audit_entry_of_a_notification_belongs_to_its_tenant(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let store = &world.store;
    let made = world.add_endpoint(1).await;
    let alert = |number, scope| Alert {
        id: AlertId(number),
        name: AlertName::RetryRatio,
        scope,
        tenant: None,
        is_gone: false,
        raised_at: at(1),
        resolved_at: None,
        detail: json!({}),
    };
    let scopes = [
        SubjectScope::Tenant(id("acme")),
        SubjectScope::Endpoint(made),
        SubjectScope::Everything,
    ];
    for (number, scope) in (1..).zip(scopes.clone()) {
        let raised = store.raise_alert(at(1), alert(number, scope)).await;
        assert_eq!(raised, Ok(CreateResult::Created));
    }
    let deleted = store.delete_tenant(at(1), id("acme")).await;
    assert!(deleted.unwrap().is_some());
    world.add_tenant("acme").await;
    let own = alert(9, SubjectScope::Tenant(id("acme")));
    let raised = store.raise_alert(at(1), own).await;
    assert_eq!(raised, Ok(CreateResult::Created));
    let act = |notification: u64, tenant| AuditEntry {
        id: AuditId(id_of(first_sequence(at(1)), notification)),
        at: at(1),
        actor: "posthaste".to_owned(),
        actor_key: None,
        via: ActionInterface::Posthaste,
        from: None,
        action: "alert.raised".to_owned(),
        tenant,
        resource: format!("/v1/{notification}"),
        outcome: Some(AuditOutcome::Done),
    };
    let notifications = store.notifications(0, 9).await.unwrap();
    assert_eq!(notifications.len(), 4);
    let acme = || Some(id("acme"));
    let acts: Vec<AuditEntry> = notifications
        .iter()
        .zip([acme(), acme(), None, acme()])
        .map(|(notification, tenant)| act(notification.number, tenant))
        .collect();
    for (notification, act) in notifications.iter().zip(&acts) {
        let kept = store
            .audit_notification(notification.number, act.clone())
            .await;
        assert_eq!(kept, Ok(CreateResult::Created));
        let again = store
            .audit_notification(notification.number, act.clone())
            .await;
        assert_eq!(again, Ok(CreateResult::Taken), "once");
    }
    // After a notification was dispatched, no audit entry can be added for it.
    let processed = store.last_processed_notification().await.unwrap();
    let last = notifications[3].number;
    let moved = store
        .complete_notifications(at(2), processed, last, vec![], at(2))
        .await;
    assert_eq!(moved, Ok(true));
    let late = store.audit_notification(last, act(99, acme())).await;
    assert_eq!(late, Ok(CreateResult::Taken));
    let world = world.reopened().await;
    let store = &world.store;
    let read = async |of| {
        let filter = AuditFilter {
            of,
            ..AuditFilter::default()
        };
        let mut found = all(9, |page| store.audit(filter.clone(), page)).await;
        found.reverse();
        found
    };
    assert_eq!(read(AuditScope::All).await, acts);
    let named = [&acts[..2], &acts[3..]].concat();
    assert_eq!(read(AuditScope::AnyWithId(id("acme"))).await, named);
    assert_eq!(read(AuditScope::Tenant(id("acme"))).await, acts[3..]);
}

pub(super) async fn the_number_of_waiting_notifications_is_bounded(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let store = &world.store;
    world.add_endpoint(1).await;
    let most = MAX_PENDING_NOTIFICATIONS as usize;
    for (ms, count) in [(1, most), (2, 3)] {
        let sent = world.send(at(ms), "a.b").await;
        let mut settled = attempt(&world.delivery(sent).await, at(ms), answered(200));
        settled.endpoint_changes = vec![EndpointChange::Recovered; count];
        assert_eq!(world.record(at(ms), settled).await, Written::Applied);
    }
    let processed = store.last_processed_notification().await.unwrap();
    let waiting = store.notifications(processed, most + 9).await.unwrap();
    assert_eq!(waiting.len(), most);
    // The oldest were removed, which shows as a gap in the numbers.
    assert_eq!(waiting[0].number, processed + 4);
    assert_eq!(
        waiting[most - 1].number,
        processed + 3 + MAX_PENDING_NOTIFICATIONS
    );
    let up_to = waiting[most - 1].number;
    let moved = store
        .complete_notifications(at(9), processed, up_to, vec![], at(9))
        .await;
    assert_eq!(moved, Ok(true));
    assert_eq!(store.notifications(0, 9).await, Ok(Vec::new()));
}

pub(super) async fn the_age_of_the_oldest_waiting_notification_is_known(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let oldest_pending = || world.store.oldest_pending_notification();
    assert_eq!(oldest_pending().await, Ok(None));
    // The clock is put back in between.
    for (number, ms) in [(1, 50), (2, 30), (3, 70)] {
        let alert = Alert {
            id: AlertId(number),
            name: AlertName::ALL[number as usize],
            scope: SubjectScope::Everything,
            tenant: None,
            is_gone: false,
            raised_at: at(ms),
            resolved_at: None,
            detail: json!({}),
        };
        let raised = world.store.raise_alert(at(ms), alert).await;
        assert_eq!(raised, Ok(CreateResult::Created));
        assert_eq!(
            oldest_pending().await,
            Ok(Some(at(50))),
            "the time of the oldest notification is returned"
        );
    }
    let mut processed = world.store.last_processed_notification().await.unwrap();
    for left in [Some(at(30)), Some(at(70)), None] {
        let moved =
            world
                .store
                .complete_notifications(at(80), processed, processed + 1, vec![], at(80));
        assert_eq!(moved.await, Ok(true));
        processed += 1;
        assert_eq!(oldest_pending().await, Ok(left));
    }

    // An email counts as unsent after a failed try, for its recipient.
    let odd = "o'\"dd@example.com";
    let unsent = |of: &[&str]| {
        let of = of.iter().map(|it| (*it).to_owned());
        world.store.unsent_since(of.collect())
    };
    world.add_lines(at(100), lines(OPS, 0..1), at(100)).await;
    world.add_lines(at(110), lines(odd, 0..1), at(110)).await;
    assert_eq!(unsent(&[OPS, odd]).await, Ok(None));
    for email in world.claim(at(120)).await {
        let again = EmailResult::Later { at: at(200) };
        assert!(world.settle(&email, again).await);
    }
    assert_eq!(
        oldest_pending().await,
        Ok(None),
        "emails are not counted as notifications"
    );
    assert_eq!(unsent(&[]).await, Ok(None));
    assert_eq!(unsent(&[OWNER]).await, Ok(None));
    assert_eq!(unsent(&[odd]).await, Ok(Some(at(110))));
    assert_eq!(unsent(&[odd, OPS]).await, Ok(Some(at(100))));
    for email in world.claim(at(200)).await {
        let posted = match email.recipient.as_str() {
            OPS => EmailResult::Sent {
                quiet_until: at(900),
            },
            _ => EmailResult::Dropped,
        };
        assert!(world.settle(&email, posted).await);
    }
    assert_eq!(unsent(&[odd, OPS]).await, Ok(None));
}

pub(super) async fn the_stored_size_grows_with_the_data(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let empty = world
        .store
        .stored_bytes()
        .await
        .expect("the store can be read");
    const EVENTS: u64 = 60;
    const EACH: usize = 64 * 1024;
    for ms in 0..EVENTS {
        let mut large = event("acme", "a.b");
        let content = Arc::make_mut(&mut large.content);
        // Random bytes, because repetitive ones could be compressed.
        let mut rng = Rng::seeded(ms);
        let noise = (0..EACH).map(|_| rng.between(32, 126) as u8);
        content.payload = noise.collect::<Vec<u8>>().into();
        world.accept(at(ms), large).await;
    }
    let full = world
        .store
        .stored_bytes()
        .await
        .expect("the store can be read");
    match (empty, full) {
        // The size of an in-memory store is unknown.
        (None, None) => {}
        (Some(empty), Some(full)) => {
            let more = full.saturating_sub(empty);
            let stored = EVENTS * EACH as u64;
            let likely = stored / 4..4 * stored;
            assert!(
                likely.contains(&more),
                "the size did not grow: {empty} and then {full}"
            );
        }
        other => panic!("the size must be known both times or never: {other:?}"),
    }
}

pub(super) async fn lines_are_collected_in_an_email_until_it_is_due(harness: &dyn Harness) {
    let world = StoreFixture::open(harness);
    world.add_lines(at(0), lines(OPS, 0..2), at(30)).await;
    let both = [lines(OWNER, 0..1), lines(OPS, 2..3)].concat();
    world.add_lines(at(10), both, at(40)).await;
    assert_eq!(world.claim(at(29)).await, []);
    let world = world.reopened().await;
    let emails = world.claim(at(30)).await;
    let expected = PendingEmail {
        recipient: OPS.to_owned(),
        revision: 3,
        first_at: at(0),
        tries: 0,
        lines: vec![line(0), line(1), line(2)],
        omitted: 0,
    };
    assert_eq!(emails, [expected]);
    let emails = world.claim(at(41)).await;
    assert_eq!(emails[0].recipient, OWNER);
    assert_eq!(emails[0].lines, [line(0)]);
    assert_eq!(emails[0].first_at, at(10));
}

pub(super) async fn a_claimed_email_is_not_claimed_again_for_a_while(harness: &dyn Harness) {
    let world = StoreFixture::open(harness);
    world.add_lines(at(0), lines(OWNER, 0..1), at(20)).await;
    world.add_lines(at(0), lines(OPS, 0..1), at(10)).await;
    let claim = |now, most| {
        let longest = MaxEmailDelay::ANY;
        world.store.claim_emails(now, at(60), longest, most)
    };
    let first = claim(at(20), 1).await.unwrap();
    assert_eq!(
        first[0].recipient, OPS,
        "the email that has been due longest comes first"
    );
    let second = claim(at(20), 9).await.unwrap();
    assert_eq!(second.len(), 1);
    assert_eq!(second[0].recipient, OWNER);
    assert_eq!(claim(at(59), 9).await, Ok(vec![]));
    // The claims expired without a result.
    assert_eq!(world.claim(at(60)).await.len(), 2);
}

pub(super) async fn lines_added_while_an_email_is_sent_go_to_the_next(harness: &dyn Harness) {
    let world = StoreFixture::open(harness);
    world.add_lines(at(0), lines(OPS, 0..2), at(10)).await;
    let sending = world.claim(at(10)).await.remove(0);
    world.add_lines(at(11), lines(OPS, 2..5), at(20)).await;
    let sent = EmailResult::Sent {
        quiet_until: at(600),
    };
    assert!(world.settle(&sending, sent.clone()).await);
    assert_eq!(
        world.claim(at(599)).await,
        [],
        "no email is sent before the quiet time has ended"
    );
    let world = world.reopened().await;
    let next = world.claim(at(600)).await.remove(0);
    assert_eq!(next.lines, [line(2), line(3), line(4)]);
    let quiet = EmailResult::Sent {
        quiet_until: at(900),
    };
    assert!(world.settle(&next, quiet).await);
    assert!(
        !world.settle(&next, sent).await,
        "the email was already sent"
    );
    // No lines were left, and the recipient still gets no email before `quiet_until`.
    world.add_lines(at(700), lines(OPS, 5..6), at(730)).await;
    assert_eq!(world.claim(at(899)).await, []);
    assert_eq!(world.claim(at(900)).await[0].lines, [line(5)]);
}

pub(super) async fn an_email_is_retried_or_dropped(harness: &dyn Harness) {
    let world = StoreFixture::open(harness);
    world.add_lines(at(0), lines(OPS, 0..1), at(10)).await;
    for tries in 0..3 {
        let now = at(10 + 100 * u64::from(tries));
        let email = world.claim(now).await.remove(0);
        assert_eq!(email.tries, tries);
        let later = EmailResult::Later {
            at: at(110 + 100 * u64::from(tries)),
        };
        assert!(world.settle(&email, later).await);
    }
    let email = world.claim(at(400)).await.remove(0);
    assert!(world.settle(&email, EmailResult::Dropped).await);
    assert!(!world.settle(&email, EmailResult::Dropped).await);
    assert_eq!(world.claim(at(1_000_000)).await, []);
    // An email that was not delivered causes no quiet time.
    world.add_lines(at(500), lines(OPS, 7..8), at(530)).await;
    assert_eq!(world.claim(at(530)).await[0].lines, [line(7)]);
}

pub(super) async fn a_clock_set_back_does_not_delay_emails(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let sent = world.send(at(DAY), "a.b").await;
    world.fail(sent, at(DAY)).await;
    world.add_lines(at(DAY), lines(OPS, 0..1), at(DAY)).await;
    world.add_lines(at(DAY), lines(OWNER, 0..1), at(DAY)).await;
    let emails = world.claim(at(DAY)).await;
    let quiet_until = at(DAY + 600);
    assert!(
        world
            .settle(&emails[0], EmailResult::Sent { quiet_until })
            .await
    );
    let again = at(DAY + 3_000);
    assert!(
        world
            .settle(&emails[1], EmailResult::Later { at: again })
            .await
    );
    world.add_lines(at(DAY), lines(OPS, 1..2), at(DAY)).await;
    let longest = MaxEmailDelay {
        untried: Span::from_millis(600),
        tried: Span::from_millis(3_600),
    };
    let claim = async |now: Timestamp| {
        let claimed = world.store.claim_emails(now, now, longest, 9).await;
        let claimed = claimed.unwrap().into_iter();
        claimed.map(|it| it.recipient).collect::<Vec<_>>()
    };
    // Each is due at its time. An email whose due time is further ahead than its longest wait is due at once,
    // because the clock was put back; the longest wait of OPS is the shorter one.
    assert_eq!(claim(at(DAY + 599)).await, Vec::<String>::new());
    assert_eq!(claim(at(DAY)).await, Vec::<String>::new());
    assert_eq!(claim(at(DAY - 1)).await, [OPS]);
    let now = at(0);
    assert_eq!(claim(now).await, [OPS, OWNER]);
    let gather = |now| world.store.collect_failures(now, Timestamp(now.0 - 30), 9);
    assert_eq!(
        gather(at(DAY - 20)).await,
        Ok(0),
        "failures slightly in the future are recent"
    );
    assert_eq!(gather(at(60)).await, Ok(1));
}

pub(super) async fn a_long_email_counts_its_omitted_lines(harness: &dyn Harness) {
    let world = StoreFixture::open(harness);
    let most = MAX_EMAIL_LINES as u64;
    world
        .add_lines(at(0), lines(OPS, 0..most + 5), at(10))
        .await;
    let email = world.claim(at(10)).await.remove(0);
    assert_eq!(email.lines.len(), MAX_EMAIL_LINES);
    assert_eq!((email.omitted, email.revision), (5, most + 5));
    world.add_lines(at(11), lines(OPS, 0..3), at(20)).await;
    let sent = EmailResult::Sent {
        quiet_until: at(50),
    };
    assert!(world.settle(&email, sent).await);
    let next = world.claim(at(50)).await.remove(0);
    assert_eq!((next.lines.len(), next.omitted), (0, 3));
    world.add_lines(at(52), lines(OPS, 9..10), at(60)).await;
    let next = world.claim(at(1_050)).await.remove(0);
    assert_eq!((next.lines.len(), next.omitted), (1, 3));
}
