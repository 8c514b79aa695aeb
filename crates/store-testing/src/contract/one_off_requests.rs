//! One-off requests: origin endpoints, the request of a delivery, and the keys of a tenant.
//!
//! An origin endpoint is hidden: it is in no list, takes no place of an endpoint and gets no events. A delivery that
//! brings its own request has it in every read, in the fetch and in the hand-over.

use std::collections::BTreeSet;
use std::sync::Arc;

use posthaste_core::delivery::{OneOffRequest, RequestMethod, Status};
use posthaste_core::id::EndpointId;
use posthaste_core::lane::{EndpointStatus, Health, StoredTrip, TripReason};
use posthaste_core::time::Span;
use serde_json::json;

use super::Harness;
use super::fixture::{DAY, HOUR, StoreFixture, at, endpoint, event, id, policy, tenant};
use posthaste_store::{
    AcceptResult, CreateResult, DeliveryFilter, Endpoint, EventFilter, NewEvent, PageRequest,
    ReplaceResult, ReplayFilter, ReplayScope, RetryResult, Tenant, TenantObject,
};

const URL: &str = "https://api.example:8443";

fn origin(number: u128, tenant: &str) -> Endpoint {
    Endpoint {
        url: URL.to_owned(),
        is_origin: true,
        ordered: true,
        ..endpoint(number, tenant, &[])
    }
}

fn request(give_up_after: Option<&str>) -> Arc<OneOffRequest> {
    Arc::new(OneOffRequest {
        method: RequestMethod::Patch,
        url: format!("{URL}/orders/7?a=ü'"),
        timeout: Some(Span::from_millis(1_500)),
        retry_policy: give_up_after.map(policy),
        sealed_headers: vec![0, 255, 7],
    })
}

fn one_off(number: u128, give_up_after: Option<&str>) -> NewEvent {
    NewEvent {
        only: Some(EndpointId(number)),
        request: Some(request(give_up_after)),
        ..event("acme", "request")
    }
}

async fn found(world: &StoreFixture<'_>, tenant: &str, url: &str) -> Option<EndpointId> {
    let found = world.store.origin_endpoint(id(tenant), url.to_owned());
    found.await.expect("the store can be read")
}

pub(super) async fn an_origin_endpoint_is_found_by_its_url_only(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    world.add_endpoint(1).await;
    assert_eq!(found(&world, "acme", URL).await, None);
    let create = |endpoint| world.store.create_endpoint(at(0), endpoint, 1);
    // The tenant has one endpoint and no origin endpoint, and may have one of each.
    assert_eq!(create(origin(5, "acme")).await, Ok(CreateResult::Created));
    assert_eq!(create(origin(6, "acme")).await, Ok(CreateResult::Taken));
    let elsewhere = Endpoint {
        url: "https://elsewhere.example".to_owned(),
        ..origin(7, "acme")
    };
    assert_eq!(create(elsewhere).await, Ok(CreateResult::TooMany));
    assert_eq!(
        create(endpoint(8, "acme", &[])).await,
        Ok(CreateResult::TooMany)
    );
    assert_eq!(create(origin(9, "other")).await, Ok(CreateResult::Created));
    let world = world.reopened().await;
    assert_eq!(found(&world, "acme", URL).await, Some(EndpointId(5)));
    assert_eq!(found(&world, "other", URL).await, Some(EndpointId(9)));
    assert_eq!(found(&world, "nobody", URL).await, None);
    assert_eq!(found(&world, "acme", "https://api.example").await, None);
    let registered = world.store.endpoint(EndpointId(1)).await.unwrap().unwrap();
    assert_eq!(found(&world, "acme", &registered.endpoint.url).await, None);
    // It exists for the engine, and is in no list.
    let row = world.store.endpoint(EndpointId(5)).await.unwrap();
    assert_eq!(row.expect("it exists").endpoint, origin(5, "acme"));
    let page = PageRequest {
        limit: 9,
        before: None,
    };
    let listed = world.store.endpoints(id("acme"), page).await.unwrap();
    let listed: Vec<_> = listed.items.iter().map(|row| row.endpoint.id).collect();
    assert_eq!(listed, [EndpointId(1)]);
    let usage = world.store.usage(at(1), id("acme")).await.unwrap();
    assert_eq!(usage.expect("the tenant exists").endpoints, 1);
    let named = TenantObject::Endpoint(EndpointId(5));
    assert_eq!(world.store.tenant_of(named).await, Ok(None));
    let deleted = world.store.delete_tenant(at(2), id("acme")).await;
    assert_eq!(deleted, Ok(Some(vec![EndpointId(1), EndpointId(5)])));
    assert_eq!(found(&world, "acme", URL).await, None);
}

pub(super) async fn an_origin_endpoint_gets_no_events(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add(origin(5, "acme")).await;
    // So many that a store may look up subscriptions in an index.
    for number in 10..40 {
        world.add_endpoint(number).await;
    }
    let accepted = world.accept(at(1), event("acme", "a.b")).await;
    assert_eq!(accepted.deliveries.len(), 30);
    assert!(accepted.deliveries.iter().all(|it| it.endpoint.0 >= 10));
    let tripped = Health {
        revision: 1,
        trip: Some(StoredTrip {
            until: at(9),
            reason: TripReason::ConsecutiveFailures,
            failed_probes: 0,
        }),
        ..Health::default()
    };
    let status = EndpointStatus::Enabled;
    let set = world
        .store
        .set_endpoint_status(at(2), EndpointId(5), status, None, Some(tripped));
    assert_eq!(set.await, Ok(true));
    assert_eq!(world.store.attention_list(None, 9).await, Ok(Vec::new()));
}

pub(super) async fn a_request_is_read_back_with_its_delivery(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let target = world.add(origin(5, "acme")).await;
    let other = world.add_endpoint(6).await;
    world.recorder.take();
    let accepted = world.accept(at(1), one_off(5, None)).await;
    let delivery = accepted.deliveries[0].id;
    assert_eq!(accepted.deliveries[0].endpoint, target);
    let handed_over = world.recorder.take();
    let wanted = Some(request(None));
    assert_eq!(handed_over[0].delivery.facts().request, wanted);
    let world = world.reopened().await;
    assert_eq!(world.delivery(delivery).await.facts().request, wanted);
    for ordered in [false, true] {
        let fetched = world.fetch(target, at(9), 9, ordered).await;
        assert_eq!(fetched.deliveries[0].facts().request, wanted);
    }
    world.fail_retryably(delivery, at(2)).await;
    assert_eq!(world.delivery(delivery).await.facts().request, wanted);
    let waits = DeliveryFilter {
        endpoint: Some(target),
        ..DeliveryFilter::default()
    };
    assert_eq!(world.listed(waits).await, [delivery]);
    world.fail(delivery, at(3)).await;
    let ended = world.deliveries("acme", DeliveryFilter::default()).await;
    assert_eq!(ended[0].delivery.facts().request, wanted);
    // A delivery to a registered endpoint has no request, and the request is not one of its missed events.
    let plain = world.accept(at(4), event("acme", "a.b")).await;
    let plain = plain.deliveries.iter().find(|it| it.endpoint == other);
    let plain = plain.expect("it is subscribed").id;
    assert_eq!(world.delivery(plain).await.facts().request, None);
    let missed = ReplayFilter {
        scope: ReplayScope::Missed,
        endpoint: Some(other),
        event_type: None,
        error_kind: None,
        since: Some(at(0)),
        until: None,
    };
    let replay = world.store.create_replay(at(5), id("acme"), missed).await;
    assert_eq!(replay.expect("the replay starts").total, 0);
    assert_eq!(
        world.event_ids("acme", EventFilter::default()).await.len(),
        2
    );
}

pub(super) async fn the_policy_of_a_request_decides_its_deadline(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add(origin(5, "acme")).await;
    let mut deadlines = Vec::new();
    for give_up_after in [None, Some("2h")] {
        let accepted = world.accept(at(1), one_off(5, give_up_after)).await;
        let delivery = accepted.deliveries[0].id;
        deadlines.push(world.delivery(delivery).await.facts().give_up_at);
        world.fail(delivery, at(2)).await;
        if give_up_after.is_none() {
            continue;
        }
        let retried = world.store.retry(at(10), id("acme"), delivery).await;
        let endpoint = EndpointId(5);
        assert_eq!(retried, Ok(RetryResult::Replayed { endpoint }));
        let again = world.delivery(delivery).await;
        assert_eq!(again.facts().give_up_at, at(10 + 2 * HOUR));
        assert_eq!(world.status(delivery).await, Status::Pending);
        world.fail(delivery, at(11)).await;
        // The same in a replay of many.
        let failed = ReplayFilter {
            scope: ReplayScope::Ended(posthaste_store::StoredStatus::Failed),
            endpoint: Some(endpoint),
            event_type: None,
            error_kind: None,
            since: None,
            until: None,
        };
        let replay = world.store.create_replay(at(20), id("acme"), failed).await;
        let replay = replay.expect("the replay starts");
        assert_eq!(replay.total, 2);
        world
            .store
            .step_replay(at(20), replay.id, 9)
            .await
            .expect("the step is written");
        let again = world.delivery(delivery).await;
        assert_eq!(again.facts().give_up_at, at(20 + 2 * HOUR));
    }
    assert_eq!(deadlines[1], at(1 + 2 * HOUR));
    assert_ne!(deadlines[0], deadlines[1]);
}

pub(super) async fn the_keys_of_a_tenant_are_read_back(harness: &dyn Harness) {
    let world = StoreFixture::open(harness);
    let acme = Tenant {
        sealed_keys: vec![0, 1, 255],
        default_retry_policy: Some(json!({"preset": "swift"})),
        ..tenant("acme")
    };
    let made = world.store.create_tenant(at(0), acme.clone()).await;
    assert_eq!(made, Ok(CreateResult::Created));
    assert_eq!(world.store.tenant(id("acme")).await, Ok(Some(acme.clone())));
    let changed = Tenant {
        sealed_keys: vec![9; 300],
        ..acme
    };
    let replaced = world.store.replace_tenant(at(1), changed.clone()).await;
    assert_eq!(replaced, Ok(ReplaceResult::Done));
    let world = world.reopened().await;
    let stored = world.store.tenant(id("acme")).await.unwrap();
    assert_eq!(stored.map(|it| it.sealed_keys), Some(changed.sealed_keys));
}

pub(super) async fn idle_origins_are_deleted(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    world.add(origin(5, "acme")).await;
    let accepted = world.accept(at(1), one_off(5, None)).await;
    let delete = |before, limit| world.store.delete_idle_origins(at(9), at(before), limit);
    // A waiting and an ended delivery keep it.
    assert_eq!(delete(9, 9).await, Ok(Vec::new()));
    world.succeed(accepted.deliveries[0].id, at(2)).await;
    assert_eq!(delete(9, 9).await, Ok(Vec::new()));
    world.step_retention(at(3 * DAY), DAY).await;
    assert_eq!(delete(5, 9).await, Ok(Vec::new()), "it is too young");
    assert_eq!(delete(9, 0).await, Ok(Vec::new()));
    assert_eq!(delete(9, 9).await, Ok(vec![EndpointId(5)]));
    assert_eq!(delete(9, 9).await, Ok(Vec::new()));
    assert_eq!(found(&world, "acme", URL).await, None);
    let refused = world.store.accept(at(10), vec![one_off(5, None)]).await;
    assert_eq!(refused, Ok(AcceptResult::NoSuchEndpoint));
    world.add(origin(12, "acme")).await;
    assert_eq!(found(&world, "acme", URL).await, Some(EndpointId(12)));
    world.accept(at(11), one_off(12, None)).await;
    // A call examines a bounded number, and the next one continues after them.
    for number in 20..50 {
        let idle = Endpoint {
            url: format!("https://origin-{number}.example"),
            ..origin(number, "acme")
        };
        world.add(idle).await;
        if number < 40 {
            world.accept(at(12), one_off(number, None)).await;
        }
    }
    let mut deleted = BTreeSet::new();
    for _ in 0..20 {
        deleted.extend(delete(9, 1).await.unwrap());
    }
    assert_eq!(deleted, (40..50).map(EndpointId).collect());
}
