//! Lists: no row twice, none missing, newest first.
//!
//! Pages of any length contain every row once, also while rows are added. Every filter and every pair of filters
//! returns exactly the matching rows. The status `held` follows from the endpoint. No tenant sees rows of another.

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::{DeadReason, Status};
use posthaste_core::id::DeliveryId;
use posthaste_core::lane::{EndpointStatus, Health, StoredTrip, TripReason};

use super::Harness;
use super::fixture::{KINDS, StoreFixture, all, at, endpoint, event, id, kind, set};
use posthaste_store::{
    DeliveryFilter, EventFilter, NewEvent, PageRequest, StoredDelivery, StoredStatus, Written,
};

const STATUSES: [StoredStatus; 6] = [
    StoredStatus::Pending,
    StoredStatus::Retrying,
    StoredStatus::Held,
    StoredStatus::Succeeded,
    StoredStatus::Failed,
    StoredStatus::Cancelled,
];

fn shown(status: StoredStatus) -> Status {
    match status {
        StoredStatus::Pending => Status::Pending,
        StoredStatus::Retrying => Status::Retrying,
        StoredStatus::Held => Status::Held,
        StoredStatus::Succeeded => Status::Succeeded,
        StoredStatus::Failed => Status::Failed,
        StoredStatus::Cancelled => Status::Cancelled,
    }
}

/// Creates deliveries of every kind, for two endpoints of acme and one of another tenant.
async fn a_bit_of_everything(world: &StoreFixture<'_>) {
    world.add_tenant("other").await;
    world.add(endpoint(1, "acme", &[])).await;
    let paused = world.add(endpoint(2, "acme", &["a.*"])).await;
    world.add(endpoint(3, "other", &[])).await;
    for ms in 0..24 {
        let name = ["a.b", "a.c", "d"][ms as usize % 3];
        world.accept(at(ms), event("other", name)).await;
        let accepted = world.accept(at(ms), event("acme", name)).await;
        for delivery in accepted.deliveries {
            let sent = delivery.id;
            match (ms / 3 + u64::from(delivery.endpoint == paused)) % 5 {
                0 => world.succeed(sent, at(100)).await,
                1 => world.fail(sent, at(100)).await,
                2 => world.fail_retryably(sent, at(100)).await,
                3 => assert_eq!(world.cancel(sent, at(100)).await, Written::Applied),
                4.. => {}
            }
        }
    }
    world.set_status(paused, EndpointStatus::Paused).await;
}

pub(super) async fn pages_hold_every_delivery_once_newest_first(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    a_bit_of_everything(&world).await;
    let mut expected: Vec<DeliveryId> = Vec::new();
    for handed_over in world.recorder.take() {
        if handed_over.delivery.facts().endpoint.0 != 3 {
            expected.push(handed_over.delivery.id());
        }
    }
    expected.reverse();
    for limit in [1, 2, 7, 39, 40, 41, 250] {
        let found = all(limit, |page| {
            world
                .store
                .deliveries(id("acme"), DeliveryFilter::default(), page)
        })
        .await;
        let ids: Vec<DeliveryId> = found.iter().map(|found| found.delivery.id()).collect();
        assert_eq!(ids, expected, "pages of {limit}");
    }
    let one = world.find(expected[0]).await.0;
    assert_eq!(one.tenant, id("acme"));
    assert_eq!(one.event_type, kind("d"));
    assert_eq!(one.created_at, at(23));
}

fn matches(filter: &DeliveryFilter, it: &StoredDelivery) -> bool {
    let facts = it.delivery.facts();
    filter
        .status
        .is_none_or(|status| it.shown_status() == shown(status))
        && filter
            .endpoint
            .is_none_or(|endpoint| facts.endpoint == endpoint)
        && filter.event.is_none_or(|event| facts.event == event)
        && filter
            .event_type
            .as_ref()
            .is_none_or(|name| it.event_type == *name)
        && filter
            .error_kind
            .is_none_or(|kind| it.error_kind() == Some(kind))
        && filter.since.is_none_or(|since| it.created_at >= since)
        && filter.until.is_none_or(|until| it.created_at < until)
}

/// Returns every filter that sets one field.
fn single_filters(some: &StoredDelivery) -> Vec<DeliveryFilter> {
    let none = DeliveryFilter::default;
    let mut filters = Vec::new();
    let statuses = STATUSES.map(|status| DeliveryFilter {
        status: Some(status),
        ..none()
    });
    filters.extend(statuses);
    for number in [1, 2, 3, 77] {
        filters.push(DeliveryFilter {
            endpoint: Some(posthaste_core::id::EndpointId(number)),
            ..none()
        });
    }
    for event in [some.delivery.facts().event, posthaste_core::id::EventId(7)] {
        filters.push(DeliveryFilter {
            event: Some(event),
            ..none()
        });
    }
    for name in ["a.b", "d", "nothing"] {
        filters.push(DeliveryFilter {
            event_type: Some(kind(name)),
            ..none()
        });
    }
    for kind in KINDS {
        filters.push(DeliveryFilter {
            error_kind: Some(kind),
            ..none()
        });
    }
    for ms in [0, 7, 30] {
        filters.push(DeliveryFilter {
            since: Some(at(ms)),
            ..none()
        });
        filters.push(DeliveryFilter {
            until: Some(at(ms + 1)),
            ..none()
        });
    }
    filters
}

fn both(a: &DeliveryFilter, b: &DeliveryFilter) -> DeliveryFilter {
    DeliveryFilter {
        status: a.status.or(b.status),
        endpoint: a.endpoint.or(b.endpoint),
        event: a.event.or(b.event),
        event_type: a.event_type.clone().or(b.event_type.clone()),
        error_kind: a.error_kind.or(b.error_kind),
        since: a.since.or(b.since),
        until: a.until.or(b.until),
    }
}

pub(super) async fn every_filter_and_pair_of_filters_returns_the_matching_rows(
    harness: &dyn Harness,
) {
    let world = StoreFixture::with_acme(harness).await;
    a_bit_of_everything(&world).await;
    let swept = posthaste_core::id::EndpointId(1);
    let except = world.listed(DeliveryFilter::default()).await[..6].into();
    let reason = DeadReason::EndpointDisabled;
    world
        .store
        .sweep(at(200), swept, reason, except, 100)
        .await
        .unwrap();
    let everything = world.deliveries("acme", DeliveryFilter::default()).await;
    let singles = single_filters(&everything[20]);
    let mut found_some = 0;
    for a in &singles {
        for b in &singles {
            let filter = both(a, b);
            let expected: Vec<&StoredDelivery> = everything
                .iter()
                .filter(|it| matches(&filter, it))
                .collect();
            let found = world.deliveries("acme", filter.clone()).await;
            let same = found.iter().eq(expected.iter().copied());
            assert!(
                same,
                "{filter:?} returned {} of {} rows",
                found.len(),
                expected.len()
            );
            found_some += usize::from(!found.is_empty());
        }
    }
    assert!(
        found_some > 100,
        "only {found_some} filters matched any row"
    );
}

pub(super) async fn pages_stay_complete_while_rows_are_added(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let mut expected = Vec::new();
    for ms in 0..9 {
        expected.push(world.send(at(ms), "a.b").await);
    }
    expected.reverse();
    let mut found = Vec::new();
    let mut before = None;
    loop {
        let request = PageRequest { limit: 2, before };
        let filter = DeliveryFilter::default();
        let page = world
            .store
            .deliveries(id("acme"), filter, request)
            .await
            .unwrap();
        found.extend(page.items.iter().map(|it| it.delivery.id()));
        // The clock is set back too: a new delivery is still the newest.
        world.send(at(4), "a.b").await;
        match page.next {
            Some(next) => before = Some(next),
            None => break,
        }
    }
    assert_eq!(found, expected);
}

pub(super) async fn events_are_found_by_type_and_time(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    let mut sent = Vec::new();
    // The clock is set back in the middle.
    for ms in [0, 10, 20, 5, 15, 25] {
        for name in ["a.b", "c"] {
            let accepted = world.accept(at(ms), event("acme", name)).await;
            sent.push((ms, name, accepted.id));
            world.accept(at(ms), event("other", name)).await;
        }
    }
    sent.reverse();
    for name in [None, Some("a.b"), Some("c"), Some("a")] {
        for since in [None, Some(0), Some(10), Some(16), Some(99)] {
            for until in [None, Some(0), Some(10), Some(21), Some(99)] {
                let filter = EventFilter {
                    event_type: name.map(kind),
                    since: since.map(at),
                    until: until.map(at),
                };
                let expected: Vec<_> = sent
                    .iter()
                    .filter(|(_, sent, _)| name.is_none_or(|name| name == *sent))
                    .filter(|(ms, _, _)| since.is_none_or(|since| since <= *ms))
                    .filter(|(ms, _, _)| until.is_none_or(|until| *ms < until))
                    .map(|(_, _, id)| *id)
                    .collect();
                let found = world.event_ids("acme", filter.clone()).await;
                assert_eq!(found, expected, "{filter:?}");
            }
        }
    }
}

pub(super) async fn held_follows_from_the_endpoint(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    let pending = world.send(at(1), "a.b").await;
    let retrying = world.send(at(1), "a.b").await;
    world.fail_retryably(retrying, at(2)).await;
    let ended = world.send(at(1), "a.b").await;
    world.succeed(ended, at(2)).await;
    let health = |revision, tripped: bool| Health {
        revision,
        trip: tripped.then_some(StoredTrip {
            until: at(99),
            reason: TripReason::FailureRatio,
            failed_probes: 0,
        }),
        ..Health::default()
    };
    for (status, health, held) in [
        (EndpointStatus::Enabled, None, false),
        (EndpointStatus::Paused, None, true),
        (EndpointStatus::Enabled, Some(health(1, true)), true),
        (EndpointStatus::Paused, Some(health(2, false)), true),
        (EndpointStatus::Enabled, None, false),
    ] {
        let changed = world
            .store
            .set_endpoint_status(at(3), made, status, None, health);
        assert_eq!(changed.await, Ok(true));
        let with = |status| DeliveryFilter {
            status: Some(status),
            ..DeliveryFilter::default()
        };
        let (waits, waits_again) = match held {
            true => (Status::Held, Status::Held),
            false => (Status::Pending, Status::Retrying),
        };
        assert_eq!(world.status(pending).await, waits);
        assert_eq!(world.status(retrying).await, waits_again);
        assert_eq!(world.status(ended).await, Status::Succeeded);
        let found = |status| world.listed(with(status));
        let waiting = if held { vec![] } else { vec![pending] };
        assert_eq!(found(StoredStatus::Pending).await, waiting);
        let waiting = if held { vec![] } else { vec![retrying] };
        assert_eq!(found(StoredStatus::Retrying).await, waiting);
        let waiting = if held {
            vec![retrying, pending]
        } else {
            vec![]
        };
        assert_eq!(found(StoredStatus::Held).await, waiting);
        assert_eq!(found(StoredStatus::Succeeded).await, [ended]);
    }
}

pub(super) async fn tenants_see_only_their_own_rows(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    world.add_endpoint(1).await;
    world.add(endpoint(2, "other", &[])).await;
    let mine = world.accept(at(1), event("acme", "a.b")).await;
    let theirs = world.accept(at(1), event("other", "a.b")).await;
    let store = &world.store;
    assert_eq!(store.event(id("other"), mine.id).await, Ok(None));
    assert_eq!(
        store.delivery(id("other"), mine.deliveries[0].id).await,
        Ok(None)
    );
    let all_events = EventFilter::default;
    assert_eq!(world.event_ids("acme", all_events()).await, [mine.id]);
    assert_eq!(world.event_ids("other", all_events()).await, [theirs.id]);
    assert_eq!(world.event_ids("nobody", all_events()).await, []);
    for (filter, expected) in [
        (
            DeliveryFilter {
                event: Some(theirs.id),
                ..DeliveryFilter::default()
            },
            0,
        ),
        (
            DeliveryFilter {
                endpoint: Some(theirs.deliveries[0].endpoint),
                ..DeliveryFilter::default()
            },
            0,
        ),
        (
            DeliveryFilter {
                event: Some(mine.id),
                ..DeliveryFilter::default()
            },
            1,
        ),
    ] {
        assert_eq!(world.listed(filter).await.len(), expected);
    }
    // A test event goes to one endpoint only, and appears in one list only.
    let only = NewEvent {
        only: Some(mine.deliveries[0].endpoint),
        ..event("acme", "t")
    };
    let test = world.accept(at(2), only).await;
    assert_eq!(test.deliveries.len(), 1);
    assert_eq!(
        set(world.event_ids("acme", all_events()).await),
        set([mine.id, test.id])
    );
    assert_eq!(KINDS[0], FailureKind::Http);
}
