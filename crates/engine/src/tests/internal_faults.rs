//! Internal faults: attempts that panic, and deliveries that are held after ten faults in a row.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use posthaste_core::delivery::Status;
use posthaste_core::dispatcher::FAULTS_TO_QUARANTINE;
use posthaste_core::id::{DeliveryId, EndpointId};
use posthaste_core::time::{Now, Span};
use posthaste_store::{RetryResult, Store};
use posthaste_system::clock::Clock;
use tokio::time::{sleep, timeout};

use super::{Fixture, Receiver, TEST_TIMEOUT};
use crate::{CancelResult, Engine};

/// Returns the system clock, which a test can advance by the returned number of milliseconds.
pub(super) fn adjustable_clock() -> (Clock, Arc<AtomicU64>) {
    let ahead_ms = Arc::new(AtomicU64::new(0));
    let (system, ahead) = (Clock::system(), ahead_ms.clone());
    let clock = Clock::from_fn(move || {
        let Now { wall, tick } = system.now();
        let ahead = Span::from_millis(ahead.load(Ordering::SeqCst));
        Now {
            wall: wall.after(ahead),
            tick: tick.after(ahead),
        }
    });
    (clock, ahead_ms)
}

/// Moves the clock ahead until the engine has quarantined the delivery.
async fn until_held(
    fixture: &Fixture,
    engine: &Engine,
    endpoint: EndpointId,
    delivery: DeliveryId,
) {
    let held = async {
        while !engine.is_quarantined(delivery) {
            fixture.ahead_ms.fetch_add(31_000, Ordering::SeqCst);
            // Any message makes the engine read the clock again.
            engine.work(endpoint, fixture.clock.wall());
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(TEST_TIMEOUT, held).await.expect("it is held");
}

#[tokio::test]
async fn a_panic_frees_the_slot_and_counts_no_attempt() {
    let fixture = Fixture::start().await;
    let receiver = Receiver::start().await;
    fixture.resolver_panics.store(true, Ordering::SeqCst);
    let url = format!("http://hooks.example.com:{}/", receiver.address.port());
    fixture.endpoint(url).await;
    // As many as may be in flight, and one more.
    let deliveries = fixture.events(11).await;
    // Each of them has panicked, the last one in a slot that another had freed.
    let mut panics = fixture.panics.subscribe();
    let fallen = panics.wait_for(|count| *count >= 11);
    timeout(TEST_TIMEOUT, fallen)
        .await
        .expect("they fall")
        .unwrap();
    fixture.resolver_panics.store(false, Ordering::SeqCst);
    for delivery in &deliveries {
        let stored = fixture.until(*delivery, Status::Succeeded).await;
        assert_eq!(stored.delivery.facts().attempts, 1);
    }
    assert_eq!(receiver.count(), 11);
}

#[tokio::test]
async fn a_delivery_whose_attempts_panic_is_held_after_ten() {
    let fixture = Fixture::start().await;
    let receiver = Receiver::start().await;
    fixture.resolver_panics.store(true, Ordering::SeqCst);
    let url = format!("http://hooks.example.com:{}/", receiver.address.port());
    let endpoint = fixture.endpoint(url).await;
    let delivery = fixture.events(1).await[0];
    until_held(&fixture, &fixture.engine, endpoint, delivery).await;
    let panics = || *fixture.panics.borrow();
    assert_eq!(panics(), FAULTS_TO_QUARANTINE as usize);
    assert_eq!(fixture.engine.quarantined(), [delivery]);
    assert_eq!(fixture.engine.quarantined_count(), 1);
    assert_eq!(fixture.stored(delivery).await.delivery.facts().attempts, 0);

    // A healthy delivery passes it.
    fixture.resolver_panics.store(false, Ordering::SeqCst);
    let other = fixture.events(1).await[0];
    fixture.until(other, Status::Succeeded).await;
    assert!(fixture.engine.is_quarantined(delivery));
    assert_eq!(receiver.count(), 1);

    // A retry by hand releases it.
    let now = fixture.clock.wall();
    let retried = fixture.store.retry(now, fixture.tenant.clone(), delivery);
    assert_eq!(retried.await, Ok(RetryResult::DueNow { endpoint }));
    fixture.engine.work(endpoint, now);
    let stored = fixture.until(delivery, Status::Succeeded).await;
    assert_eq!(stored.delivery.facts().attempts, 1);
    assert_eq!(fixture.engine.quarantined_count(), 0);
}

#[tokio::test]
async fn a_held_delivery_can_be_cancelled_and_is_tried_by_the_next_process() {
    let fixture = Fixture::start().await;
    let receiver = Receiver::start().await;
    fixture.resolver_panics.store(true, Ordering::SeqCst);
    let url = format!("http://hooks.example.com:{}/", receiver.address.port());
    let endpoint = fixture.endpoint(url).await;
    let delivery = fixture.events(1).await[0];
    until_held(&fixture, &fixture.engine, endpoint, delivery).await;
    fixture.engine.shut_down().await;
    let next = Engine::new();
    let mut panics = fixture.panics.subscribe();
    let before = *panics.borrow_and_update();
    fixture.run(&next, &fixture.metrics, None);
    let tried = panics.wait_for(|count| *count > before);
    // The result is a lock that would block the next panic.
    let is_tried = timeout(TEST_TIMEOUT, tried).await.is_ok();
    assert!(is_tried, "a restart does not try it again");
    until_held(&fixture, &next, endpoint, delivery).await;
    assert_eq!(
        next.cancel(endpoint, delivery).await,
        Ok(CancelResult::Done)
    );
    assert_eq!(next.quarantined_count(), 0);
    assert_eq!(
        fixture.stored(delivery).await.shown_status(),
        Status::Cancelled
    );
}
