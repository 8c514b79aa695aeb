//! Tests of alerts about the server itself.

use posthaste_core::alert::{AlertName, Bound};
use posthaste_core::schedule::ScheduleStatus;
use posthaste_core::time::Span;
use posthaste_store::{
    EmailLine, EmailResult, FAILING_RUNS, MaxEmailDelay, StatCounters, StatEntry, StoredSchedule,
    SubjectScope,
};
use serde_json::json;

use super::Fixture;

const EVERYTHING: SubjectScope = SubjectScope::Everything;

#[tokio::test]
async fn an_old_queue_notifies_once() {
    let mut fixture = Fixture::new().await;
    let name = AlertName::QueueAge;
    let age = |fixture: &Fixture, age| {
        fixture.environment().queue_age = age;
    };
    age(&fixture, Some(Span::from_mins(10)));
    fixture.run_for(Span::from_mins(5)).await;
    assert_eq!(fixture.open().await, []);
    age(&fixture, Some(Span::from_millis(600_001)));
    fixture.run_for(Span::from_mins(5)).await;
    assert_eq!(fixture.open().await, [(name, EVERYTHING)]);
    // An unknown value does not count as normal.
    age(&fixture, None);
    fixture.run_for(Span::from_mins(30)).await;
    assert_eq!(fixture.notified(name, &EVERYTHING).await, (1, 0));
    // The value goes up and down, without further notifications.
    for _ in 0..20 {
        age(&fixture, Some(Span::ZERO));
        fixture.run_for(Span::from_mins(2)).await;
        age(&fixture, Some(Span::from_mins(20)));
        fixture.run_for(Span::from_mins(1)).await;
    }
    assert_eq!(fixture.notified(name, &EVERYTHING).await, (1, 0));
    age(&fixture, Some(Span::ZERO));
    fixture.run_for(Span::from_mins(6)).await;
    assert_eq!(fixture.notified(name, &EVERYTHING).await, (1, 1));
}

#[tokio::test]
async fn a_held_delivery_notifies_once() {
    let mut fixture = Fixture::new().await;
    let name = AlertName::HeldAfterFaults;
    fixture.run_for(Span::from_mins(5)).await;
    assert_eq!(fixture.open().await, []);
    fixture.environment().held_after_faults = 1;
    fixture.run_for(Span::from_mins(1)).await;
    assert_eq!(fixture.open().await, [(name, EVERYTHING)]);
    fixture.environment().held_after_faults = 3;
    fixture.run_for(Span::from_mins(20)).await;
    fixture.environment().held_after_faults = 0;
    fixture.run_for(Span::from_mins(6)).await;
    assert_eq!(fixture.notified(name, &EVERYTHING).await, (1, 1));
}

#[tokio::test]
async fn a_schedule_that_keeps_failing_notifies_once() {
    let mut fixture = Fixture::new().await;
    let name = AlertName::SchedulesFailing;
    let mut schedule = StoredSchedule {
        tenant: "acme".parse().expect("a tenant id"),
        id: "nightly".parse().expect("a schedule id"),
        definition: "{}".to_owned(),
        progress: None,
        status: ScheduleStatus::Active,
        next_run_at: Some(fixture.now()),
        last_run_at: None,
        last_event: None,
        run_count: 2,
        failed_runs: FAILING_RUNS - 1,
        created_at: fixture.now(),
        revision: 0,
    };
    let created = fixture
        .store
        .create_schedule(fixture.now(), schedule.clone(), 9);
    created.await.expect("it is created");
    fixture.run_for(Span::from_mins(5)).await;
    assert_eq!(fixture.open().await, []);
    for (revision, failed_runs) in [(0, FAILING_RUNS), (1, FAILING_RUNS + 1)] {
        schedule = StoredSchedule {
            revision,
            failed_runs,
            ..schedule
        };
        let replaced = fixture
            .store
            .replace_schedule(fixture.now(), schedule.clone());
        replaced.await.expect("it is replaced");
        fixture.run_for(Span::from_mins(5)).await;
        assert_eq!(fixture.open().await, [(name, EVERYTHING)]);
    }
    schedule = StoredSchedule {
        revision: 2,
        status: ScheduleStatus::Paused,
        ..schedule
    };
    let paused = fixture.store.replace_schedule(fixture.now(), schedule);
    paused.await.expect("it is replaced");
    fixture.run_for(Span::from_mins(6)).await;
    assert_eq!(fixture.notified(name, &EVERYTHING).await, (1, 1));
}

#[tokio::test]
async fn an_outbox_that_cannot_be_read_for_a_minute_notifies_once() {
    let mut fixture = Fixture::new().await;
    let name = AlertName::OutboxUnreachable;
    let away = |fixture: &Fixture, time| fixture.environment().unreachable_outbox = time;
    away(&fixture, Some(Span::from_secs(59)));
    fixture.run_for(Span::from_mins(5)).await;
    assert_eq!(fixture.open().await, []);
    away(&fixture, Some(Span::from_secs(61)));
    fixture.run_for(Span::from_mins(1)).await;
    assert_eq!(fixture.open().await, [(name, EVERYTHING)]);
    away(&fixture, None);
    fixture.run_for(Span::from_mins(6)).await;
    assert_eq!(fixture.notified(name, &EVERYTHING).await, (1, 1));
}

#[tokio::test]
async fn a_slow_store_notifies_once_and_a_single_slow_write_does_not() {
    let mut fixture = Fixture::new().await;
    let name = AlertName::StoreSlow;
    let lag = |fixture: &Fixture, ms| {
        fixture.environment().lag_ms = ms;
    };
    fixture.run_for(Span::from_mins(1)).await;
    for _ in 0..10 {
        lag(&fixture, 5_000);
        fixture.run_for(Span::from_secs(15)).await;
        lag(&fixture, 0);
        fixture.run_for(Span::from_secs(30)).await;
    }
    assert_eq!(fixture.open().await, []);
    lag(&fixture, 1_001);
    fixture.run_for(Span::from_mins(5)).await;
    assert_eq!(fixture.open().await, [(name, EVERYTHING)]);
    fixture.restart();
    fixture.run_for(Span::from_mins(5)).await;
    lag(&fixture, 0);
    fixture.run_for(Span::from_mins(7)).await;
    assert_eq!(fixture.notified(name, &EVERYTHING).await, (1, 1));
}

#[tokio::test]
async fn a_store_that_fills_up_notifies_once() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mut fixture = Fixture::in_file(folder.path()).await;
    let name = AlertName::StoreNearlyFull;
    // The disk of the machine that runs the test may be full itself.
    fixture.only(name, Bound::Below(0.0));
    fixture.run_for(Span::from_mins(1)).await;
    assert_eq!(fixture.open().await, []);
    let stored = fixture.store.stored_bytes().await.expect("the store reads");
    let stored = stored.expect("a file has a size");
    fixture.only(name, Bound::Below(0.000_1));
    fixture.settings.database_bytes = Some(stored);
    fixture.restart();
    fixture.run_for(Span::from_mins(5)).await;
    assert_eq!(fixture.open().await, [(name, EVERYTHING)]);
    assert_eq!(fixture.notified(name, &EVERYTHING).await, (1, 0));
    fixture.settings.database_bytes = Some(stored * 1_000);
    fixture.restart();
    fixture.run_for(Span::from_mins(6)).await;
    assert_eq!(fixture.notified(name, &EVERYTHING).await, (1, 1));
}

#[tokio::test]
async fn undispatched_notifications_raise_an_alert() {
    let mut fixture = Fixture::new().await;
    let name = AlertName::NotificationsStuck;
    fixture.settings.bounds.insert(name, name.bound());
    fixture.restart();
    let entry = StatEntry {
        scope: EVERYTHING,
        at: fixture.now(),
        counters: StatCounters {
            attempts: 100,
            retries: 50,
            retried_deliveries: 10,
            succeeded: 100,
            ..StatCounters::default()
        },
    };
    fixture
        .store
        .add_stats(1, vec![entry])
        .await
        .expect("the store writes");
    fixture.run_for(Span::from_mins(15)).await;
    assert_eq!(fixture.open().await, [(AlertName::RetryRatio, EVERYTHING)]);
    fixture.run_for(Span::from_mins(30)).await;
    assert!(fixture.open().await.contains(&(name, EVERYTHING)));
    assert_eq!(fixture.notified(name, &EVERYTHING).await, (1, 0));
    let last = fixture
        .store
        .notifications(0, 100)
        .await
        .expect("the store reads");
    let last = last.last().expect("notifications are waiting").number;
    let dispatched =
        fixture
            .store
            .complete_notifications(fixture.now(), 0, last, Vec::new(), fixture.now());
    assert_eq!(dispatched.await, Ok(true));
    fixture.run_for(Span::from_mins(6)).await;
    assert!(!fixture.open().await.contains(&(name, EVERYTHING)));
    fixture.run_for(Span::from_mins(6)).await;
    // The notification of the raised alert was dispatched and removed; the one of its end waits.
    assert_eq!(fixture.notified(name, &EVERYTHING).await, (0, 1));
}

/// Adds an email that the mail server did not accept.
async fn add_refused_email(fixture: &Fixture, recipient: &str) {
    let line = EmailLine {
        at: fixture.now(),
        name: "endpoint.recovered".to_owned(),
        tenant: None,
        endpoint: None,
        endpoint_url: None,
        detail: json!({}),
    };
    let (store, now) = (&fixture.store, fixture.now());
    let lines = vec![(recipient.to_owned(), line)];
    let dispatched = store.complete_notifications(now, 0, 0, lines, now).await;
    assert_eq!(dispatched, Ok(true));
    let claimed = store.claim_emails(now, now, MaxEmailDelay::ANY, 9).await;
    let claimed = claimed.expect("the store claims emails");
    let email = claimed.iter().find(|it| it.recipient == recipient);
    let revision = email.expect("the email is due").revision;
    let later = EmailResult::Later {
        at: now.after(Span::from_days(1)),
    };
    let settled = store.record_email_result(recipient.to_owned(), revision, later);
    assert_eq!(settled.await, Ok(true));
}

#[tokio::test]
async fn only_an_email_to_the_operator_that_can_be_sent_counts_as_stuck() {
    let (ops, owner) = ("ops@example.com", "owner@example.com");
    for (recipient, mail, is_stuck) in
        [(ops, true, true), (owner, true, false), (ops, false, false)]
    {
        let mut fixture = Fixture::new().await;
        let name = AlertName::NotificationsStuck;
        fixture.audience.operator_emails = Some(vec![ops.to_owned()]);
        fixture.only(name, name.bound());
        add_refused_email(&fixture, recipient).await;
        fixture.run_for(Span::from_mins(14)).await;
        assert_eq!(fixture.open().await, []);
        if !mail {
            fixture.audience.operator_emails = None;
            fixture.restart();
        }
        fixture.run_for(Span::from_mins(3)).await;
        let expected: &[_] = match is_stuck {
            true => &[(name, EVERYTHING)],
            false => &[],
        };
        assert_eq!(fixture.open().await, expected, "{recipient} {mail}");
        // Without a mail server in the configuration no alert stays open.
        fixture.audience.operator_emails = None;
        fixture.restart();
        // The notification of the alert itself has been dispatched meanwhile.
        let last = fixture
            .store
            .notifications(0, 9)
            .await
            .expect("the store reads");
        let last = last.last().map_or(0, |it| it.number);
        let dispatched =
            fixture
                .store
                .complete_notifications(fixture.now(), 0, last, vec![], fixture.now());
        assert_eq!(dispatched.await, Ok(true));
        fixture.run_for(Span::from_mins(6)).await;
        assert_eq!(fixture.open().await, [], "{recipient} {mail}");
    }
}
