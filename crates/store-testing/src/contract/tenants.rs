//! Tenants: created, changed and deleted.
//!
//! A tenant is created once, and an outdated change is refused. Deleting a tenant deletes its keys and endpoints. A
//! later tenant with the same id sees nothing of the earlier one.

use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::Span;
use serde_json::json;

use super::Harness;
use super::fixture::{
    StoreFixture, all, at, endpoint, event, id, key, keyed, limits, protection, set, tenant,
};
use posthaste_store::{
    AcceptResult, CreateResult, DeliveryFilter, EventFilter, Limits, Page, PageRequest,
    ReplaceResult, RetryResult, Tenant,
};

pub(super) async fn a_tenant_is_created_once_and_read_back(harness: &dyn Harness) {
    let world = StoreFixture::open(harness);
    let acme = Tenant {
        default_retry_policy: Some(json!({"preset": "swift"})),
        limits: Limits {
            endpoints: Some(3),
            events_per_month: Some(u64::from(u32::MAX) + 1),
            retention: Some(Span::from_days(7)),
            payload_retention: Some(Span::from_days(2)),
            attempt_retention: Some(Span::from_days(3)),
            in_flight: Some(5),
            schedules: Some(6),
            shortest_schedule_interval: Some(Span::from_secs(60)),
            ..Limits::default()
        },
        plan: Some("gold".to_owned()),
        endpoint_defaults: limits(),
        protection: protection(),
        revision: 9,
        ..tenant("acme")
    };
    assert_eq!(world.store.tenant(id("acme")).await, Ok(None));
    let create = || world.store.create_tenant(at(0), acme.clone());
    assert_eq!(create().await, Ok(CreateResult::Created));
    assert_eq!(create().await, Ok(CreateResult::Taken));
    let stored = Tenant {
        revision: 0,
        ..acme.clone()
    };
    assert_eq!(world.store.tenant(id("acme")).await, Ok(Some(stored)));
    assert_eq!(world.store.tenant(id("Acme")).await, Ok(None));
}

pub(super) async fn an_outdated_change_of_a_tenant_is_refused(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let change = |name: &str, revision| {
        let changed = Tenant {
            name: name.to_owned(),
            plan: Some(name.to_owned()),
            endpoint_defaults: limits(),
            protection: protection(),
            created_at: at(77),
            revision,
            ..tenant("acme")
        };
        world.store.replace_tenant(at(5), changed)
    };
    assert_eq!(change("first", 0).await, Ok(ReplaceResult::Done));
    assert_eq!(change("second", 0).await, Ok(ReplaceResult::Outdated));
    let stored = world.store.tenant(id("acme")).await.unwrap().unwrap();
    assert_eq!((stored.name.as_str(), stored.revision), ("first", 1));
    assert_eq!(stored.endpoint_defaults, limits());
    assert_eq!(stored.protection, protection());
    assert_eq!(
        stored.created_at,
        at(0),
        "the creation time does not change"
    );
    assert_eq!(change("second", 1).await, Ok(ReplaceResult::Done));
    let nobody = world.store.replace_tenant(at(5), tenant("nobody")).await;
    assert_eq!(nobody, Ok(ReplaceResult::NotFound));
}

pub(super) async fn tenants_are_listed_newest_first(harness: &dyn Harness) {
    let world = StoreFixture::open(harness);
    for (name, ms) in [("b", 1), ("old", 0), ("a", 1), ("new", 2), ("c", 1)] {
        let made = Tenant {
            created_at: at(ms),
            ..tenant(name)
        };
        world.store.create_tenant(at(ms), made).await.unwrap();
    }
    for limit in 1..=6 {
        let found = all(limit, |page| world.store.tenants(page)).await;
        let names: Vec<String> = found.iter().map(|found| found.id.to_string()).collect();
        assert_eq!(names, ["new", "c", "b", "a", "old"], "pages of {limit}");
    }
}

pub(super) async fn a_deleted_tenant_takes_its_keys_and_endpoints_with_it(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    let gone_before = world.add_endpoint(1).await;
    world.set_status(gone_before, EndpointStatus::Deleted).await;
    let paused = world.add_endpoint(2).await;
    world.set_status(paused, EndpointStatus::Paused).await;
    let enabled = world.add_endpoint(3).await;
    let others = world.add(endpoint(4, "other", &[])).await;
    world
        .store
        .create_key(at(0), key(1, Some("acme")))
        .await
        .unwrap();
    world
        .store
        .create_key(at(0), key(2, Some("other")))
        .await
        .unwrap();
    let delivery = world.accept(at(1), event("acme", "a.b")).await.deliveries[0].id;

    let deleted = world.store.delete_tenant(at(5), id("acme")).await.unwrap();
    assert_eq!(deleted.map(set), Some(set([paused, enabled])));
    assert_eq!(world.store.delete_tenant(at(5), id("acme")).await, Ok(None));
    assert_eq!(world.store.tenant(id("acme")).await, Ok(None));
    assert_eq!(world.store.key(key(1, None).hash).await, Ok(None));
    assert!(world.store.key(key(2, None).hash).await.unwrap().is_some());
    for endpoint in [gone_before, paused, enabled] {
        let row = world.store.endpoint(endpoint).await.unwrap().unwrap();
        assert_eq!(row.status, EndpointStatus::Deleted);
    }
    let row = world.store.endpoint(others).await.unwrap().unwrap();
    assert_eq!(row.status, EndpointStatus::Enabled);
    let refused = world.store.accept(at(6), vec![event("acme", "a.b")]).await;
    assert_eq!(refused, Ok(AcceptResult::NoSuchTenant));
    let nothing = world.store.delivery(id("acme"), delivery).await.unwrap();
    assert_eq!(nothing, None);
    // Waiting deliveries still exist, because they must be failed.
    assert_eq!(
        world
            .store
            .counts()
            .await
            .expect("the counts can be read")
            .pending,
        2
    );
    let fetched = world.fetch(enabled, at(6), 10, false).await;
    assert_eq!(fetched.deliveries.len(), 1);
}

pub(super) async fn a_new_tenant_with_a_reused_id_sees_nothing(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_endpoint(1).await;
    let before = world.accept(at(1), keyed("acme", "k", "content")).await;
    let replay = super::replays::failed(&world, at(1)).await;
    world.store.delete_tenant(at(2), id("acme")).await.unwrap();
    world.add_tenant("acme").await;

    let delivery = before.deliveries[0].id;
    let store = &world.store;
    let request = PageRequest {
        limit: 10,
        before: None,
    };
    assert_eq!(store.event(id("acme"), before.id).await, Ok(None));
    assert_eq!(store.delivery(id("acme"), delivery).await, Ok(None));
    assert_eq!(world.events("acme", EventFilter::default()).await, []);
    assert_eq!(world.listed(DeliveryFilter::default()).await, []);
    let of_event = DeliveryFilter {
        event: Some(before.id),
        ..DeliveryFilter::default()
    };
    assert_eq!(world.listed(of_event).await, []);
    let none = Page {
        items: Vec::new(),
        next: None,
    };
    assert_eq!(store.endpoints(id("acme"), request).await, Ok(none));
    assert_eq!(store.replay(id("acme"), replay.id).await, Ok(None));
    let retried = store.retry(at(3), id("acme"), delivery).await;
    assert_eq!(retried, Ok(RetryResult::NoSuchDelivery));
    // The keys and endpoints of the deleted tenant do not affect the later one.
    let after = world
        .accept_all(at(3), vec![keyed("acme", "k", "other")])
        .await;
    assert!(after[0].is_new);
    assert_eq!(after[0].event.deliveries, []);
}
