//! Age of the oldest delivery that could be sent.
//!
//! Read from the store, so that it covers all nodes, and work that no node owns at the moment. The query reads all
//! unfinished work. So [`CachedQueueAge`] caches the result for a few seconds, and only one query runs at a time.

use std::sync::Arc;

use posthaste_core::id::EndpointId;
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::{Span, Tick, Timestamp};
use posthaste_store::{EndpointRow, Store, StoreError};
use posthaste_system::clock::Clock;
use tokio::sync::Mutex;

/// Time for which a result is cached.
const CACHED_FOR: Span = Span::from_secs(5);

/// Maximum number of endpoints that are checked, those with the oldest work first. If all of them are paused or
/// tripped, work behind them is not seen.
const MAX_ENDPOINTS_CHECKED: usize = 2_000;
/// Maximum number of concurrent reads, because sending uses the same readers.
const MAX_CONCURRENT_READS: usize = 8;

/// Cached age of the oldest delivery.
pub struct CachedQueueAge {
    store: Arc<dyn Store>,
    clock: Clock,
    /// The last result, and when it was read.
    last: Arc<Mutex<Option<(Tick, Span)>>>,
}

impl CachedQueueAge {
    /// Creates an instance without a cached result.
    pub fn new(store: Arc<dyn Store>, clock: Clock) -> CachedQueueAge {
        CachedQueueAge {
            store,
            clock,
            last: Arc::default(),
        }
    }

    /// Returns the time for which the oldest delivery that could be sent has been due; `None` if it cannot be read.
    pub async fn read(&self) -> Option<Span> {
        let mut last = self.last.clone().lock_owned().await;
        let now = self.clock.now();
        if let Some((at, age)) = *last
            && now.tick.since(at) < CACHED_FOR
        {
            return Some(age);
        }
        let (store, clock) = (self.store.clone(), self.clock.clone());
        // The caller may stop waiting. The query still completes in its own task, so that the next caller does not
        // start over.
        let reading = tokio::spawn(async move {
            let age = queue_age(&*store, now.wall).await.ok()?;
            *last = Some((clock.now().tick, age));
            Some(age)
        });
        reading.await.ok().flatten()
    }
}

/// Returns the time for which the oldest delivery has been due whose endpoint is enabled and not tripped; zero if
/// nothing waits. Deliveries that wait for an earlier one of their ordering key are not counted; those in flight are.
async fn queue_age(store: &dyn Store, now: Timestamp) -> Result<Span, StoreError> {
    let mut work = store.unfinished_work().await?;
    work.retain(|(_, due)| *due <= now);
    work.sort_unstable_by_key(|(_, due)| *due);
    work.truncate(MAX_ENDPOINTS_CHECKED);
    let mut oldest = now;
    for chunk in work.chunks(MAX_CONCURRENT_READS) {
        let rows: Vec<_> = chunk
            .iter()
            .map(|(endpoint, _)| store.endpoint(*endpoint))
            .collect();
        for ((endpoint, due), row) in chunk.iter().zip(rows) {
            let row = row.await?.filter(could_send);
            let Some(row) = row.filter(|_| *due < oldest) else {
                continue;
            };
            let due = match row.endpoint.ordered {
                true => first_in_order(store, *endpoint, now).await?,
                false => Some(*due),
            };
            oldest = due.map_or(oldest, |due| due.min(oldest));
        }
        if chunk.last().is_some_and(|(_, due)| *due >= oldest) {
            break;
        }
    }
    Ok(now.since(oldest))
}

fn could_send(row: &EndpointRow) -> bool {
    row.status == EndpointStatus::Enabled && row.health.trip.is_none()
}

/// Returns the due time of the oldest delivery that does not wait for another.
async fn first_in_order(
    store: &dyn Store,
    endpoint: EndpointId,
    now: Timestamp,
) -> Result<Option<Timestamp>, StoreError> {
    let fetched = store.fetch(endpoint, now, 1, true).await?;
    let first = fetched.deliveries.first();
    Ok(first.and_then(|delivery| delivery.next_attempt_at()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use bytes::Bytes;
    use posthaste_core::delivery::OrderingKey;
    use posthaste_core::lane::{Health, StoredTrip, TripReason};
    use posthaste_core::rng::Rng;
    use posthaste_core::time::Now;
    use posthaste_store::{Content, Endpoint, NewEvent, StoreSettings, Tenant};
    use posthaste_store_testing::NoHandOver;
    use posthaste_store_testing::model::ModelStore;

    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp(1_794_744_000_000 + secs * 1_000)
    }

    async fn store_with_tenant() -> ModelStore {
        let store = ModelStore::new(StoreSettings::new(Rng::seeded(1)), Arc::new(NoHandOver));
        let acme = Tenant::new("acme".parse().unwrap(), String::new(), at(0));
        store.create_tenant(at(0), acme).await.unwrap();
        store
    }

    async fn add(store: &ModelStore, number: u128, ordered: bool) -> EndpointId {
        let endpoint = Endpoint {
            event_types: vec![format!("a{number}").parse().unwrap()],
            ordered,
            owner_email_confirmed: true,
            ..Endpoint::new(
                EndpointId(number),
                "acme".parse().unwrap(),
                "https://example.com/".to_owned(),
                at(0),
            )
        };
        store.create_endpoint(at(0), endpoint, 9).await.unwrap();
        EndpointId(number)
    }

    async fn send(store: &ModelStore, now: Timestamp, number: u128, due: Option<Timestamp>) {
        let event = NewEvent {
            deliver_at: due,
            ordering: Some(OrderingKey(1)),
            ..NewEvent::new(
                "acme".parse().unwrap(),
                Content::new(
                    format!("a{number}").parse().unwrap(),
                    Bytes::from_static(b"1"),
                ),
            )
        };
        store.accept(now, vec![event]).await.unwrap();
    }

    async fn age(store: &ModelStore, now: Timestamp) -> u64 {
        let age = queue_age(store, now).await.unwrap();
        age.as_millis() / 1_000
    }

    #[tokio::test]
    async fn the_oldest_sendable_delivery_counts() {
        let store = store_with_tenant().await;
        assert_eq!(age(&store, at(9)).await, 0);
        let paused = add(&store, 1, false).await;
        let tripped = add(&store, 2, false).await;
        let busy = add(&store, 3, false).await;
        for (number, due) in [(1, 10), (2, 20), (3, 30)] {
            send(&store, at(0), number, Some(at(due))).await;
        }
        assert_eq!(age(&store, at(9)).await, 0, "nothing is due");
        assert_eq!(age(&store, at(35)).await, 25);
        let set_status = async |endpoint, status, health| {
            let changed = store.set_endpoint_status(at(1), endpoint, status, None, health);
            assert_eq!(changed.await, Ok(true));
        };
        set_status(paused, EndpointStatus::Paused, None).await;
        assert_eq!(age(&store, at(35)).await, 15);
        let health = Health {
            revision: 1,
            trip: Some(StoredTrip {
                until: at(60),
                reason: TripReason::FailureRatio,
                failed_probes: 0,
            }),
            ..Health::default()
        };
        set_status(tripped, EndpointStatus::Enabled, Some(health)).await;
        assert_eq!(age(&store, at(35)).await, 5);
        set_status(busy, EndpointStatus::Paused, None).await;
        assert_eq!(age(&store, at(35)).await, 0);
    }

    #[tokio::test]
    async fn a_result_is_cached_for_a_while() {
        let store = Arc::new(store_with_tenant().await);
        add(&store, 1, false).await;
        send(&store, at(0), 1, Some(at(10))).await;
        let secs = Arc::new(AtomicU64::new(15));
        let shared_secs = secs.clone();
        let clock = Clock::from_fn(move || {
            let secs = shared_secs.load(Ordering::SeqCst);
            Now {
                wall: at(secs),
                tick: Tick(secs * 1_000),
            }
        });
        let kept = CachedQueueAge::new(store, clock);
        for (now, age) in [(15, 5), (19, 5), (20, 10), (24, 10), (60, 50)] {
            secs.store(now, Ordering::SeqCst);
            assert_eq!(kept.read().await, Some(Span::from_secs(age)), "at {now}");
        }
    }

    #[tokio::test]
    async fn a_delivery_that_waits_for_another_does_not_count() {
        let store = store_with_tenant().await;
        add(&store, 1, true).await;
        // The first one of its ordering key is due later, and the second must not be sent before it.
        send(&store, at(0), 1, Some(at(50))).await;
        send(&store, at(1), 1, Some(at(10))).await;
        assert_eq!(age(&store, at(40)).await, 0);
        assert_eq!(age(&store, at(55)).await, 5);
    }
}
