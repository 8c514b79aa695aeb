//! Quotas: a tenant sends exactly as much as allowed.
//!
//! The limits per second and per month are checked in the same transaction as the events, so concurrent callers and
//! several nodes together never exceed them. A refused batch stores nothing, a repeated event costs nothing, and
//! usage survives restarts and the removal of events.

use posthaste_core::id::EndpointId;
use posthaste_core::time::{Month, Span, Timestamp};

use super::fixture::{DAY, StoreFixture, at, endpoint, event, id, keyed};
use super::{Harness, block_on};
use posthaste_store::{
    AcceptResult, DeliveryFilter, EventFilter, LimitName, NewEvent, Quotas, Usage,
};

const FIVE_A_SECOND: Quotas = Quotas {
    per_second: Some(5),
    per_month: None,
};

fn a_month(events: u64) -> Quotas {
    Quotas {
        per_second: None,
        per_month: Some(events),
    }
}

fn events(count: usize) -> Vec<NewEvent> {
    vec![event("acme", "a.b"); count]
}

async fn offer(
    world: &StoreFixture<'_>,
    now: Timestamp,
    events: Vec<NewEvent>,
    quotas: Quotas,
) -> AcceptResult {
    let answer = world.store.accept_within(now, events, quotas).await;
    answer.expect("the store answers")
}

/// Returns the number of accepted events, and how many of them are new.
fn done(ingest: &AcceptResult) -> Option<(usize, usize)> {
    match ingest {
        AcceptResult::Done(ingested) => {
            let fresh = ingested.iter().filter(|it| it.is_new).count();
            Some((ingested.len(), fresh))
        }
        AcceptResult::Conflict(_)
        | AcceptResult::NoSuchTenant
        | AcceptResult::NoSuchEndpoint
        | AcceptResult::TooManyDeliveries { .. }
        | AcceptResult::OverLimit { .. } => None,
    }
}

fn over(limit: LimitName, wait: Option<Span>) -> AcceptResult {
    AcceptResult::OverLimit { limit, wait }
}

async fn used(world: &StoreFixture<'_>, now: Timestamp) -> u64 {
    let usage = world
        .store
        .usage(now, id("acme"))
        .await
        .expect("the store can be read");
    usage.expect("the tenant exists").events_this_month
}

pub(super) async fn the_quota_per_second_is_enforced(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    world.add_endpoint(1).await;
    let too_fast = |ms| over(LimitName::EventsPerSecond, Some(Span::from_millis(ms)));
    let first = offer(&world, at(1_000), events(3), FIVE_A_SECOND).await;
    assert_eq!(done(&first), Some((3, 3)));
    let refused = offer(&world, at(1_000), events(3), FIVE_A_SECOND).await;
    assert_eq!(
        refused,
        too_fast(200),
        "a batch is accepted as a whole or not at all"
    );
    let rest = offer(&world, at(1_000), events(2), FIVE_A_SECOND).await;
    assert_eq!(done(&rest), Some((2, 2)));
    let refused = offer(&world, at(1_199), events(1), FIVE_A_SECOND).await;
    assert_eq!(refused, too_fast(1));
    let others = vec![event("other", "a.b"); 5];
    let others = offer(&world, at(1_199), others, FIVE_A_SECOND).await;
    assert_eq!(done(&others), Some((5, 5)), "tenants have separate quotas");
    let next = offer(&world, at(1_200), events(1), FIVE_A_SECOND).await;
    assert_eq!(done(&next), Some((1, 1)));
    assert_eq!(
        used(&world, at(1_200)).await,
        6,
        "a refused event is not stored"
    );
    assert_eq!(
        world
            .store
            .counts()
            .await
            .expect("the counts can be read")
            .pending,
        6
    );
}

pub(super) async fn the_quota_per_month_is_enforced(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let now = at(0);
    let month = Month::of(now);
    let rest = month.ends_at().since(now);
    assert_eq!(
        done(&offer(&world, now, events(4), a_month(5)).await),
        Some((4, 4))
    );
    let refused = offer(&world, now, events(2), a_month(5)).await;
    assert_eq!(refused, over(LimitName::EventsPerMonth, Some(rest)));
    assert_eq!(
        done(&offer(&world, now, events(1), a_month(5)).await),
        Some((1, 1))
    );
    let last = Timestamp(month.ends_at().0 - 1);
    let refused = offer(&world, last, events(1), a_month(5)).await;
    assert_eq!(
        refused,
        over(LimitName::EventsPerMonth, Some(Span::from_millis(1)))
    );
    // A larger quota applies at once, and a new month starts at 0.
    assert_eq!(
        done(&offer(&world, last, events(1), a_month(6)).await),
        Some((1, 1))
    );
    let next = month.ends_at();
    assert_eq!(
        done(&offer(&world, next, events(5), a_month(5)).await),
        Some((5, 5))
    );
    assert_eq!(used(&world, last).await, 6);
    assert_eq!(used(&world, next).await, 5);
}

pub(super) async fn a_batch_that_never_fits_has_no_wait(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let refused = offer(&world, at(1), events(6), FIVE_A_SECOND).await;
    assert_eq!(refused, over(LimitName::EventsPerSecond, None));
    let refused = offer(&world, at(1), events(6), a_month(5)).await;
    assert_eq!(refused, over(LimitName::EventsPerMonth, None));
    let nothing = Quotas {
        per_second: Some(0),
        per_month: None,
    };
    let refused = offer(&world, at(1), events(1), nothing).await;
    assert_eq!(refused, over(LimitName::EventsPerSecond, None));
    assert_eq!(used(&world, at(1)).await, 0);
    let none = world.events("acme", EventFilter::default()).await;
    assert!(none.is_empty(), "the refused events were not stored");
}

pub(super) async fn repeated_events_use_no_quota(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let both = Quotas {
        per_second: Some(2),
        per_month: Some(2),
    };
    let pair = || vec![keyed("acme", "a", "1"), keyed("acme", "b", "2")];
    let first = offer(&world, at(1), pair(), both).await;
    assert_eq!(done(&first), Some((2, 2)));
    let again = offer(&world, at(1), pair(), both).await;
    assert_eq!(
        done(&again),
        Some((2, 0)),
        "a repeated event needs no quota"
    );
    // In a list that is longer than the quota, only new events count.
    let mut longer = pair();
    longer.push(keyed("acme", "a", "1"));
    let again = offer(&world, at(1), longer.clone(), both).await;
    assert_eq!(done(&again), Some((3, 0)));
    longer.push(keyed("acme", "c", "3"));
    let refused = offer(&world, at(1), longer, both).await;
    assert!(
        matches!(
            refused,
            AcceptResult::OverLimit {
                limit: LimitName::EventsPerMonth,
                ..
            }
        ),
        "{refused:?}"
    );
    let twice = vec![keyed("acme", "d", "4"), keyed("acme", "d", "4")];
    let three = Quotas {
        per_second: None,
        per_month: Some(3),
    };
    assert_eq!(
        done(&offer(&world, at(2), twice, three).await),
        Some((2, 1))
    );
    // A conflict is reported even if the quota is used up.
    let other = vec![keyed("acme", "a", "other")];
    let conflict = offer(&world, at(2), other, both).await;
    assert_eq!(conflict, AcceptResult::Conflict(vec![0]));
    assert_eq!(used(&world, at(2)).await, 3);
}

pub(super) async fn concurrent_callers_do_not_exceed_the_quota(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    const MOST: usize = 37;
    for now in [at(1), at(10_000)] {
        let before = used(&world, now).await;
        let quotas = match before {
            0 => Quotas {
                per_second: Some(MOST as u32),
                per_month: None,
            },
            before => a_month(before + MOST as u64),
        };
        let send = |batch: usize| {
            let store = world.store.clone();
            move || {
                block_on(async {
                    let calls: Vec<_> = (0..16)
                        .map(|_| store.accept_within(now, events(batch), quotas))
                        .collect();
                    let mut taken = 0;
                    for call in calls {
                        let (count, _) =
                            done(&call.await.expect("the store answers")).unwrap_or((0, 0));
                        taken += count;
                    }
                    taken
                })
            }
        };
        let taken: usize = std::thread::scope(|scope| {
            let callers: Vec<_> = [1, 2, 1, 2].map(|batch| scope.spawn(send(batch))).into();
            let joined = callers.into_iter().map(|caller| caller.join());
            joined
                .map(|taken| taken.expect("the task does not panic"))
                .sum()
        });
        // A batch of two may have found a quota of one at the end.
        assert!(
            (MOST - 1..=MOST).contains(&taken),
            "{taken} events were accepted at {now}"
        );
        assert_eq!(used(&world, now).await, before + taken as u64);
    }
}

pub(super) async fn usage_is_shared_and_survives_a_restart(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    world.add(endpoint(2, "acme", &["never"])).await;
    world.accept_all(at(1), events(3)).await;
    world
        .accept(
            at(1),
            NewEvent {
                only: Some(EndpointId(2)),
                ..event("acme", "a.b")
            },
        )
        .await;
    let expected = Usage {
        endpoints: 2,
        events_this_month: 4,
        schedules: 0,
    };
    let usage = world.store.usage(at(1), id("acme")).await;
    assert_eq!(usage, Ok(Some(expected)), "a test event counts");
    assert_eq!(world.store.usage(at(1), id("nobody")).await, Ok(None));
    // Removed events still count as used.
    for delivery in world.listed(DeliveryFilter::default()).await {
        world.succeed(delivery, at(2)).await;
    }
    assert_eq!(world.step_retention(at(3 * DAY), DAY).await, 4);
    assert!(
        world
            .events("acme", EventFilter::default())
            .await
            .is_empty()
    );
    let world = world.reopened().await;
    let usage = world.store.usage(at(1), id("acme")).await;
    assert_eq!(usage, Ok(Some(expected)));
    let refused = offer(&world, at(3), events(1), a_month(4)).await;
    assert_eq!(done(&refused), None, "usage survives a restart");
}

pub(super) async fn a_new_tenant_with_a_reused_id_has_no_usage(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.accept_all(at(1), events(5)).await;
    let deleted = world.store.delete_tenant(at(2), id("acme")).await;
    assert!(deleted.expect("the tenant is deleted").is_some());
    world.add_tenant("acme").await;
    assert_eq!(used(&world, at(2)).await, 0);
    let taken = offer(&world, at(2), events(5), a_month(5)).await;
    assert_eq!(done(&taken), Some((5, 5)));
}
