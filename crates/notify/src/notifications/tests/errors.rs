//! Tests of errors during dispatching and sending.

use std::sync::Arc;

use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{MAX_PENDING_NOTIFICATIONS, Notifications, PendingEmail, StoreError};
use posthaste_telemetry::metrics::Gauges;

use super::{FakeSmtp, Fixture, GATHER, NoObserver, OPS, tripped};
use crate::notifications::mail::{SendEmail, SendFuture};
use crate::notifications::unsent_emails::UnsentEmails;
use crate::shard_owner_task::ShardOwnerTask;

#[tokio::test]
async fn without_a_mail_server_emails_are_kept_for_a_while_and_then_dropped() {
    let fixture = Fixture::start().await;
    fixture.fail("acme", vec![tripped()]).await;
    let mut dispatcher = fixture.dispatcher(Arc::new(NoObserver), true);
    assert_eq!(dispatcher.round().await, Ok(true));
    let mut unsent = UnsentEmails {
        store: fixture.store.clone(),
        clock: fixture.clock.clone(),
    };
    for _ in 0..4 {
        fixture.advance(Span::from_days(1));
        assert_eq!(unsent.round().await, Ok(false));
    }
    // If a mail server were configured again now, the emails would be sent.
    fixture.advance(Span::from_mins(10));
    let kept = fixture.pending_emails().await;
    assert_eq!(kept.len(), 2);
    assert_eq!(kept[0].tries, 0, "no attempt was made");
    fixture.advance(Span::from_days(1));
    assert_eq!(unsent.round().await, Ok(false));
    fixture.advance(Span::from_days(1));
    assert_eq!(fixture.pending_emails().await, []);
}

/// Mailer that panics for emails to the operator.
struct Faulty;

impl SendEmail for Faulty {
    fn send<'a>(&'a self, email: &'a PendingEmail, _now: Timestamp) -> SendFuture<'a> {
        Box::pin(async move {
            assert_ne!(email.recipient, OPS, "on purpose");
            Ok(())
        })
    }

    fn send_confirmation<'a>(
        &'a self,
        _email: &'a super::ConfirmationEmail,
        _now: Timestamp,
    ) -> SendFuture<'a> {
        unreachable!("the test requests no confirmation")
    }
}

#[tokio::test]
async fn an_email_whose_sending_panics_blocks_no_other_and_is_retried() {
    let fixture = Fixture::start().await;
    let mut dispatcher = fixture.dispatcher(Arc::new(NoObserver), true);
    fixture.fail("acme", vec![tripped()]).await;
    dispatcher.round().await.expect("the round succeeds");
    fixture.advance(GATHER);
    let mut mailer = fixture.mailer(Arc::new(Faulty));
    assert_eq!(mailer.round().await, Ok(false));
    fixture.advance(Span::from_mins(2));
    let left = fixture.pending_emails().await;
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!((left[0].recipient.as_str(), left[0].tries), (OPS, 1));
}

/// Returns the value of a counter.
fn counted(fixture: &Fixture, sample: &str) -> u64 {
    let page = fixture.metrics.render(&Gauges::default());
    let value = page
        .lines()
        .find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    value.expect("the metric exists").parse().expect("a number")
}

#[tokio::test]
async fn notifications_beyond_the_limit_are_counted_as_lost() {
    let fixture = Fixture::start().await;
    fixture
        .fail(
            "acme",
            vec![tripped(); MAX_PENDING_NOTIFICATIONS as usize + 3],
        )
        .await;
    let mut dispatcher = fixture.dispatcher(Arc::new(NoObserver), false);
    assert_eq!(dispatcher.round().await, Ok(true));
    assert_eq!(counted(&fixture, "posthaste_notices_lost_total"), 3);
    assert_eq!(dispatcher.round().await, Ok(true));
    assert_eq!(
        counted(&fixture, "posthaste_notices_lost_total"),
        3,
        "no later one is lost"
    );
}

/// Mailer that accepts every email, and then makes writes to the store fail for a while.
struct BreaksStore {
    fixture: Arc<Fixture>,
}

impl SendEmail for BreaksStore {
    fn send<'a>(&'a self, _email: &'a PendingEmail, _now: Timestamp) -> SendFuture<'a> {
        let unavailable = StoreError::Unavailable("on purpose".to_owned());
        self.fixture.model.fail_writes(Some(unavailable));
        Box::pin(async { Ok(()) })
    }

    fn send_confirmation<'a>(
        &'a self,
        _email: &'a super::ConfirmationEmail,
        _now: Timestamp,
    ) -> SendFuture<'a> {
        unreachable!("the test requests no confirmation")
    }
}

#[tokio::test]
async fn an_email_whose_result_cannot_be_recorded_is_sent_again() {
    let fixture = Arc::new(Fixture::start().await);
    let mut dispatcher = fixture.dispatcher(Arc::new(NoObserver), true);
    fixture.fail("acme", vec![tripped()]).await;
    dispatcher.round().await.expect("the round succeeds");
    fixture.advance(GATHER);
    let post = BreaksStore {
        fixture: fixture.clone(),
    };
    let sent = fixture.mailer(Arc::new(post)).round().await;
    sent.expect_err("the result is not recorded");
    fixture.model.fail_writes(None);
    let post = Arc::new(FakeSmtp::default());
    let mut mailer = fixture.mailer(post.clone());
    assert_eq!(mailer.round().await, Ok(false));
    assert_eq!(
        post.received
            .lock()
            .expect("the lock is not poisoned")
            .len(),
        0,
        "claimed"
    );
    fixture.advance(Span::from_mins(3));
    assert_eq!(mailer.round().await, Ok(false));
    let received = post.received.lock().expect("the lock is not poisoned");
    let received: Vec<(&str, u32)> = received
        .iter()
        .map(|it| (it.recipient.as_str(), it.tries))
        .collect();
    assert_eq!(received, [(OPS, 0), (super::OWNER, 0)]);
}

#[tokio::test]
async fn a_round_that_cannot_be_recorded_is_repeated_with_the_same_result() {
    let fixture = Fixture::start().await;
    fixture.fail("acme", vec![tripped()]).await;
    let mut dispatcher = fixture.dispatcher(Arc::new(NoObserver), true);
    // No write succeeds: neither audit entry, nor event, nor the number of the last dispatched notification.
    let unavailable = StoreError::Unavailable("on purpose".to_owned());
    fixture.model.fail_writes(Some(unavailable.clone()));
    assert_eq!(dispatcher.round().await, Err(unavailable));
    fixture.model.fail_writes(None);
    assert_eq!(fixture.model.last_processed_notification().await, Ok(0));
    assert_eq!(dispatcher.round().await, Ok(true));
    let names = ["endpoint.breaker_tripped"];
    assert_eq!(fixture.operational().await, names);
    assert_eq!(fixture.audited_actions().await, names);
    fixture.advance(GATHER);
    assert_eq!(fixture.pending_emails().await[0].lines.len(), 1);
}
