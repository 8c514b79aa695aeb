//! Tests of errors during dispatching and sending.

use std::sync::{Arc, Mutex};

use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{MAX_PENDING_NOTIFICATIONS, Outbox, PendingEmail, StoreError};
use posthaste_telemetry::metrics::Gauges;

use super::{FakePost, GATHER, NoObserver, OPS, World, tripped};
use crate::notifications::mail::{SendEmail, Sending};
use crate::notifications::unposted::UnsentEmails;

#[tokio::test]
async fn without_a_mail_server_letters_are_kept_for_a_while_and_then_let_go() {
    let world = World::start().await;
    world.fail("acme", vec![tripped()]).await;
    let herald = world.herald(Arc::new(NoObserver), true);
    assert_eq!(herald.round().await, Ok(true));
    let unposted = UnsentEmails {
        store: world.store.clone(),
        clock: world.clock.clone(),
        switchboard: world.switchboard.clone(),
    };
    for _ in 0..4 {
        world.pass(Span::from_days(1));
        assert_eq!(unposted.round().await, Ok(false));
    }
    // If a mail server were configured again now, the emails would be sent.
    world.pass(Span::from_mins(10));
    let kept = world.letters().await;
    assert_eq!(kept.len(), 2);
    assert_eq!(kept[0].tries, 0, "nobody has tried");
    world.pass(Span::from_days(1));
    assert_eq!(unposted.round().await, Ok(false));
    world.pass(Span::from_days(1));
    assert_eq!(world.letters().await, []);
}

/// Mailer that panics for emails to the operator.
struct Faulty;

impl SendEmail for Faulty {
    fn send<'a>(&'a self, letter: &'a PendingEmail, _now: Timestamp) -> Sending<'a> {
        Box::pin(async move {
            assert_ne!(letter.recipient, OPS, "on purpose");
            Ok(())
        })
    }
}

#[tokio::test]
async fn a_letter_that_cannot_be_written_keeps_no_other_back_and_is_tried_again() {
    let world = World::start().await;
    let herald = world.herald(Arc::new(NoObserver), true);
    world.fail("acme", vec![tripped()]).await;
    herald.round().await.expect("it tells");
    world.pass(GATHER);
    let postman = world.postman(Arc::new(Faulty));
    assert_eq!(postman.round().await, Ok(false));
    world.pass(Span::from_mins(2));
    let left = world.letters().await;
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!((left[0].recipient.as_str(), left[0].tries), (OPS, 1));
}

/// Returns the value of a counter.
fn counted(world: &World, sample: &str) -> u64 {
    let page = world.observe.render(&Gauges::default());
    let value = page
        .lines()
        .find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    value.expect("it is told").parse().expect("a number")
}

#[tokio::test]
async fn notices_that_found_no_room_are_counted_as_lost() {
    let world = World::start().await;
    world
        .fail(
            "acme",
            vec![tripped(); MAX_PENDING_NOTIFICATIONS as usize + 3],
        )
        .await;
    let herald = world.herald(Arc::new(NoObserver), false);
    assert_eq!(herald.round().await, Ok(true));
    assert_eq!(counted(&world, "posthaste_notices_lost_total"), 3);
    assert_eq!(herald.round().await, Ok(true));
    assert_eq!(
        counted(&world, "posthaste_notices_lost_total"),
        3,
        "of those that follow none is missing"
    );
}

/// Mailer that accepts every email, and then makes writes to the store fail for a while.
struct LastWords {
    world: Arc<World>,
}

impl SendEmail for LastWords {
    fn send<'a>(&'a self, _letter: &'a PendingEmail, _now: Timestamp) -> Sending<'a> {
        let gone = StoreError::Unavailable("on purpose".to_owned());
        self.world.model.fail_writes(Some(gone));
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test]
async fn a_letter_whose_fate_cannot_be_written_down_is_sent_again_and_not_lost() {
    let world = Arc::new(World::start().await);
    let herald = world.herald(Arc::new(NoObserver), true);
    world.fail("acme", vec![tripped()]).await;
    herald.round().await.expect("it tells");
    world.pass(GATHER);
    let post = LastWords {
        world: world.clone(),
    };
    let sent = world.postman(Arc::new(post)).round().await;
    sent.expect_err("nobody knows what was sent");
    world.model.fail_writes(None);
    let post = Arc::new(FakePost {
        answers: Mutex::default(),
        given: Mutex::default(),
    });
    let postman = world.postman(post.clone());
    assert_eq!(postman.round().await, Ok(false));
    assert_eq!(post.given.lock().expect("no panics").len(), 0, "claimed");
    world.pass(Span::from_mins(3));
    assert_eq!(postman.round().await, Ok(false));
    let given = post.given.lock().expect("no panics");
    let given: Vec<(&str, u32)> = given
        .iter()
        .map(|it| (it.recipient.as_str(), it.tries))
        .collect();
    assert_eq!(given, [(OPS, 0), (super::OWNER, 0)]);
}

#[tokio::test]
async fn what_cannot_be_marked_as_told_is_told_again_with_the_same_result() {
    let world = World::start().await;
    world.fail("acme", vec![tripped()]).await;
    let herald = world.herald(Arc::new(NoObserver), true);
    // No write succeeds: neither audit entry, nor event, nor the number of the last dispatched notification.
    let gone = StoreError::Unavailable("on purpose".to_owned());
    world.model.fail_writes(Some(gone.clone()));
    assert_eq!(herald.round().await, Err(gone));
    world.model.fail_writes(None);
    assert_eq!(world.model.told().await, Ok(0));
    assert_eq!(herald.round().await, Ok(true));
    let names = ["endpoint.breaker_tripped"];
    assert_eq!(world.operational().await, names);
    assert_eq!(world.acts().await, names);
    world.pass(GATHER);
    assert_eq!(world.letters().await[0].lines.len(), 1);
}
