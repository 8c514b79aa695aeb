//! Tenant lookup: the tenant of an id.
//!
//! API requests name an event, a delivery or an endpoint without its tenant. The store returns the tenant for each
//! of them, and none for an id that does not exist or that belongs to a deleted tenant.

use posthaste_core::id::{DeliveryId, EndpointId, EventId};
use posthaste_core::lane::EndpointStatus;

use super::Harness;
use super::fixture::{StoreFixture, at, endpoint, event, id};
use posthaste_store::TenantObject;

pub(super) async fn an_id_alone_determines_its_tenant(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    let ours = world.add_endpoint(1).await;
    let theirs = world.add(endpoint(2, "other", &[])).await;
    let event_of_acme = world.accept(at(1), event("acme", "a.b")).await;
    let event_of_other = world.accept(at(1), event("other", "a.b")).await;
    let waiting = event_of_acme.deliveries[0].id;
    let ended = world.accept(at(2), event("acme", "a.b")).await;
    let ended = ended.deliveries[0].id;
    world.fail(ended, at(3)).await;
    let tenant_of = async |named| {
        let found = world
            .store
            .tenant_of(named)
            .await
            .expect("the store can be read");
        found.map(|tenant| tenant.to_string())
    };
    let acme = Some("acme".to_owned());
    let other = Some("other".to_owned());
    for (named, expected) in [
        (TenantObject::Endpoint(ours), acme.clone()),
        (TenantObject::Endpoint(theirs), other.clone()),
        (TenantObject::Endpoint(EndpointId(99)), None),
        (TenantObject::Event(event_of_acme.id), acme.clone()),
        (TenantObject::Event(event_of_other.id), other.clone()),
        (TenantObject::Event(EventId(event_of_acme.id.0 ^ 1)), None),
        (TenantObject::Event(EventId(7)), None),
        (TenantObject::Delivery(waiting), acme.clone()),
        (TenantObject::Delivery(ended), acme.clone()),
        (TenantObject::Delivery(DeliveryId(ended.0 ^ 1)), None),
        (TenantObject::Delivery(DeliveryId(event_of_acme.id.0)), None),
        (TenantObject::Delivery(DeliveryId(u128::MAX)), None),
    ] {
        assert_eq!(tenant_of(named).await, expected, "{named:?}");
    }
    // A deleted endpoint belongs to no tenant; its deliveries still belong to theirs.
    world.set_status(ours, EndpointStatus::Deleted).await;
    assert_eq!(tenant_of(TenantObject::Endpoint(ours)).await, None);
    assert_eq!(tenant_of(TenantObject::Delivery(ended)).await, acme);
    // The objects of a deleted tenant belong to no tenant, and not to a later one with the same id either.
    world.store.delete_tenant(at(4), id("acme")).await.unwrap();
    world.add_tenant("acme").await;
    for named in [
        TenantObject::Event(event_of_acme.id),
        TenantObject::Delivery(waiting),
        TenantObject::Delivery(ended),
    ] {
        assert_eq!(tenant_of(named).await, None, "{named:?}");
    }
    assert_eq!(tenant_of(TenantObject::Endpoint(theirs)).await, other);
}
