//! Limits and thresholds of the endpoint, its tenant and the server, in force for real deliveries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use posthaste_core::classify::HttpStatus;
use posthaste_core::delivery::Status;
use posthaste_core::id::EndpointId;
use posthaste_core::lane::{DisableOverrides, EndpointStatus, TripReason};
use posthaste_store::{DisabledReason, EndpointRow, ReplaceResult, Store};
use serde_json::json;
use tokio::time::timeout;

use super::http_server::serve;
use super::{Fixture, TEST_TIMEOUT};

/// Starts a receiver that always answers `status`. Returns its URL and the number of requests.
async fn receiver(status: u16) -> (String, Arc<AtomicUsize>) {
    assert!(HttpStatus::new(status).is_some());
    let count = Arc::new(AtomicUsize::new(0));
    let seen = count.clone();
    let address = serve(move |_| {
        seen.fetch_add(1, Ordering::SeqCst);
        async move { (status, Bytes::new()) }
    })
    .await;
    (format!("http://{address}/"), count)
}

async fn row(fixture: &Fixture, endpoint: EndpointId) -> EndpointRow {
    let row = fixture.store.endpoint(endpoint).await;
    row.expect("the store can be read").expect("the row exists")
}

/// Changes the tenant, and informs the engine as the API does.
async fn change_tenant(fixture: &Fixture, change: impl FnOnce(&mut posthaste_store::Tenant)) {
    let tenant = fixture.store.tenant(fixture.tenant.clone()).await;
    let mut tenant = tenant
        .expect("the store can be read")
        .expect("the tenant exists");
    change(&mut tenant);
    let now = fixture.clock.wall();
    let replaced = fixture.store.replace_tenant(now, tenant).await;
    assert_eq!(replaced, Ok(ReplaceResult::Done));
    fixture.engine.tenant_changed(fixture.tenant.clone());
}

async fn until_row(
    fixture: &Fixture,
    endpoint: EndpointId,
    is_reached: impl Fn(&EndpointRow) -> bool,
) -> EndpointRow {
    let asking = async {
        loop {
            let row = row(fixture, endpoint).await;
            if is_reached(&row) {
                return row;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(TEST_TIMEOUT, asking)
        .await
        .expect("the endpoint gets there")
}

#[tokio::test]
async fn the_threshold_of_the_endpoint_wins_over_those_of_tenant_and_server() {
    let fixture = Fixture::start().await;
    change_tenant(&fixture, |tenant| {
        tenant.protection.breaker.refusals = Some(5);
    })
    .await;
    let (own_url, own_count) = receiver(403).await;
    let own = fixture
        .endpoint_with(own_url, |endpoint| {
            endpoint.limits.max_in_flight = Some(1);
            endpoint.protection.breaker.refusals = Some(3);
        })
        .await;
    fixture.events(20).await;
    let trip = |row: &EndpointRow| row.health.trip.map(|trip| trip.reason);
    let tripped = until_row(&fixture, own, |row| row.health.trip.is_some()).await;
    assert_eq!(trip(&tripped), Some(TripReason::Refusals));
    assert_eq!(tripped.health.refusals, 3);
    assert_eq!(own_count.load(Ordering::SeqCst), 3);
    assert_eq!(tripped.status, EndpointStatus::Enabled);
    // Deletes the first one, so that the next events go to the other endpoint only.
    let deleted = fixture
        .engine
        .set_status(own, EndpointStatus::Deleted, None);
    deleted.await.expect("it is deleted");
    let (url, count) = receiver(403).await;
    let of_tenant = fixture
        .endpoint_with(url, |endpoint| endpoint.limits.max_in_flight = Some(1))
        .await;
    fixture.events(20).await;
    let tripped = until_row(&fixture, of_tenant, |row| row.health.trip.is_some()).await;
    assert_eq!(tripped.health.refusals, 5);
    assert_eq!(count.load(Ordering::SeqCst), 5);
}

#[tokio::test]
async fn the_threshold_of_the_server_applies_where_nothing_else_is_set() {
    let fixture = Fixture::start().await;
    let (url, count) = receiver(403).await;
    let endpoint = fixture.endpoint(url).await;
    let deliveries = fixture.events(50).await;
    for delivery in &deliveries {
        fixture.until(*delivery, Status::Failed).await;
    }
    assert_eq!(count.load(Ordering::SeqCst), 50);
    let row = row(&fixture, endpoint).await;
    assert_eq!(
        (row.health.trip, row.status),
        (None, EndpointStatus::Enabled)
    );
}

#[tokio::test]
async fn a_410_disables_the_endpoint_unless_it_says_otherwise() {
    let fixture = Fixture::start().await;
    let (url, _) = receiver(410).await;
    let kept = fixture
        .endpoint_with(url.clone(), |endpoint| {
            endpoint.protection.disable.on_gone = Some(false);
        })
        .await;
    let delivery = fixture.events(1).await[0];
    fixture.until(delivery, Status::Failed).await;
    assert_eq!(row(&fixture, kept).await.status, EndpointStatus::Enabled);
    let disabled = fixture.endpoint(url).await;
    fixture.events(1).await;
    let row_of = |row: &EndpointRow| row.status == EndpointStatus::Disabled;
    let disabled = until_row(&fixture, disabled, row_of).await;
    assert!(matches!(
        disabled.disabled_reason,
        Some(DisabledReason::Automatic(_))
    ));
    assert_eq!(row(&fixture, kept).await.status, EndpointStatus::Enabled);
}

#[tokio::test]
async fn a_change_of_the_tenant_reaches_endpoints_that_are_in_memory() {
    let fixture = Fixture::start().await;
    let (url, _) = receiver(410).await;
    let once = Some(json!({
        "backoff": {"kind": "fixed", "interval": "20ms"}, "max_attempts": 1,
    }));
    change_tenant(&fixture, |tenant| {
        tenant.protection.disable = DisableOverrides {
            on_gone: Some(false),
            ..DisableOverrides::default()
        };
    })
    .await;
    let endpoint = fixture
        .endpoint_with(url, |endpoint| endpoint.retry_policy = once)
        .await;
    let delivery = fixture.events(1).await[0];
    fixture.until(delivery, Status::Failed).await;
    assert_eq!(
        row(&fixture, endpoint).await.status,
        EndpointStatus::Enabled
    );
    change_tenant(&fixture, |tenant| tenant.protection = Default::default()).await;
    fixture.events(1).await;
    let is_disabled = |row: &EndpointRow| row.status == EndpointStatus::Disabled;
    until_row(&fixture, endpoint, is_disabled).await;
}
