//! Endpoints and their status.
//!
//! An endpoint is read back unchanged, a tenant has at most the allowed number, and an outdated change is refused.
//! A status change stores health only if it is newer than the stored one. A deleted endpoint stays deleted and is
//! not listed, but its deliveries still refer to it.

use posthaste_core::id::EndpointId;
use posthaste_core::lane::{
    EndpointStatus, Health, LimitOverrides, ProtectionOverrides, StoredTrip, TripReason,
};
use posthaste_core::time::Span;

use super::Harness;
use super::fixture::{StoreFixture, all, at, endpoint, event, id, limits, policy, protection};
use posthaste_store::{CreateResult, DisabledReason, Endpoint, EndpointRow, ReplaceResult};

async fn row(world: &StoreFixture<'_>, endpoint: EndpointId) -> EndpointRow {
    let row = world.store.endpoint(endpoint).await;
    row.expect("the store can be read").expect("the row exists")
}

fn unusual() -> Endpoint {
    Endpoint {
        url: "https://example.com/ü?a=1&b='\"".to_owned(),
        description: "line\nbreak".to_owned(),
        retry_policy: Some(policy("1h")),
        limits: LimitOverrides {
            timeout: Some(Span::from_millis(1_001)),
            ..limits()
        },
        protection: protection(),
        ordered: true,
        sealed_headers: Vec::new(),
        owner_email: Some("owner@example.com".to_owned()),
        owner_email_confirmed: false,
        revision: 5,
        ..endpoint(1, "acme", &["a.*", "b", "*"])
    }
}

pub(super) async fn an_endpoint_is_read_back_unchanged(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    assert_eq!(world.store.endpoint(EndpointId(1)).await, Ok(None));
    let made = world.add(unusual()).await;
    let expected = EndpointRow {
        endpoint: Endpoint {
            revision: 0,
            ..unusual()
        },
        status: EndpointStatus::Enabled,
        disabled_reason: None,
        health: Health::default(),
    };
    assert_eq!(row(&world, made).await, expected);
    let again = world.store.create_endpoint(at(0), unusual(), 9).await;
    assert_eq!(again, Ok(CreateResult::Taken));
    let orphan = endpoint(2, "nobody", &[]);
    let orphan = world.store.create_endpoint(at(0), orphan, 9).await;
    assert_eq!(orphan, Ok(CreateResult::NoSuchTenant));
}

pub(super) async fn the_number_of_endpoints_per_tenant_is_limited(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    let create = |number, tenant, at_most| {
        let made = endpoint(number, tenant, &[]);
        world.store.create_endpoint(at(0), made, at_most)
    };
    assert_eq!(create(1, "acme", 0).await, Ok(CreateResult::TooMany));
    assert_eq!(create(1, "acme", 2).await, Ok(CreateResult::Created));
    assert_eq!(create(2, "acme", 2).await, Ok(CreateResult::Created));
    assert_eq!(create(3, "acme", 2).await, Ok(CreateResult::TooMany));
    assert_eq!(create(3, "other", 2).await, Ok(CreateResult::Created));
    // A disabled endpoint counts, a deleted one does not.
    world
        .set_status(EndpointId(1), EndpointStatus::Disabled)
        .await;
    assert_eq!(create(4, "acme", 2).await, Ok(CreateResult::TooMany));
    world
        .set_status(EndpointId(1), EndpointStatus::Deleted)
        .await;
    assert_eq!(create(4, "acme", 2).await, Ok(CreateResult::Created));
}

pub(super) async fn a_change_keeps_tenant_creation_time_and_counts(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    let made = world.add(endpoint(1, "acme", &[])).await;
    world.set_status(made, EndpointStatus::Paused).await;
    let changed = Endpoint {
        tenant: id("other"),
        created_at: at(99),
        revision: 0,
        ..unusual()
    };
    let replace = |endpoint: &Endpoint| world.store.replace_endpoint(at(1), endpoint.clone());
    assert_eq!(replace(&changed).await, Ok(ReplaceResult::Done));
    assert_eq!(replace(&changed).await, Ok(ReplaceResult::Outdated));
    let stored = row(&world, made).await;
    let expected = Endpoint {
        revision: 1,
        ..unusual()
    };
    assert_eq!(stored.endpoint, expected);
    let inherits = Endpoint {
        limits: LimitOverrides::default(),
        protection: ProtectionOverrides::default(),
        ..expected
    };
    assert_eq!(replace(&inherits).await, Ok(ReplaceResult::Done));
    let stored = row(&world, made).await;
    let expected = Endpoint {
        revision: 2,
        ..inherits
    };
    assert_eq!(stored.endpoint, expected, "its limits are inherited again");
    assert_eq!(
        stored.status,
        EndpointStatus::Paused,
        "the status is unchanged"
    );
    assert_eq!(
        replace(&endpoint(2, "acme", &[])).await,
        Ok(ReplaceResult::NotFound)
    );
    world.set_status(made, EndpointStatus::Deleted).await;
    let late = Endpoint {
        revision: 2,
        ..unusual()
    };
    assert_eq!(replace(&late).await, Ok(ReplaceResult::NotFound));
}

fn health(revision: u64, failures: u32) -> Health {
    Health {
        revision,
        consecutive_failures: failures,
        refusals: 2,
        failing_since: Some(at(1)),
        warned_of_days_at: Some(at(2)),
        warned_of_refusals: true,
        exhausted_at: vec![at(3), at(4)],
        trip: Some(StoredTrip {
            until: at(5),
            reason: TripReason::FailureRatio,
            failed_probes: 6,
        }),
        quiet_until: Some(at(7)),
        is_trip_unannounced: true,
    }
}

pub(super) async fn a_status_change_stores_health_only_if_newer(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    let set_status = |status, reason, health| {
        world
            .store
            .set_endpoint_status(at(0), made, status, reason, health)
    };
    let manual = Some(DisabledReason::Manual);
    let disabled = set_status(EndpointStatus::Disabled, manual, Some(health(3, 30)));
    assert_eq!(disabled.await, Ok(true));
    let stored = row(&world, made).await;
    assert_eq!(
        (stored.status, stored.disabled_reason),
        (EndpointStatus::Disabled, manual)
    );
    assert_eq!(stored.health, health(3, 30));
    for (revision, failures, expected) in [(3, 31, 30), (2, 32, 30), (4, 33, 33)] {
        let changed = set_status(
            EndpointStatus::Enabled,
            None,
            Some(health(revision, failures)),
        )
        .await;
        assert_eq!(changed, Ok(true));
        let stored = row(&world, made).await;
        assert_eq!(stored.health.consecutive_failures, expected, "{revision}");
        assert_eq!(
            (stored.status, stored.disabled_reason),
            (EndpointStatus::Enabled, None)
        );
    }
    set_status(EndpointStatus::Paused, None, None)
        .await
        .unwrap();
    assert_eq!(row(&world, made).await.health, health(4, 33));
    let nowhere = EndpointId(77);
    let changed =
        world
            .store
            .set_endpoint_status(at(0), nowhere, EndpointStatus::Enabled, None, None);
    assert_eq!(changed.await, Ok(false));
}

pub(super) async fn a_deleted_endpoint_stays_deleted(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let made = world.add_endpoint(1).await;
    world.set_status(made, EndpointStatus::Deleted).await;
    for status in [
        EndpointStatus::Enabled,
        EndpointStatus::Paused,
        EndpointStatus::Disabled,
    ] {
        world.set_status(made, status).await;
        let stored = row(&world, made).await;
        assert_eq!(
            (stored.status, stored.disabled_reason),
            (EndpointStatus::Deleted, None)
        );
    }
    let accepted = world.accept(at(1), event("acme", "a.b")).await;
    assert_eq!(accepted.deliveries, []);
    let again = endpoint(1, "acme", &[]);
    let again = world.store.create_endpoint(at(1), again, 9).await;
    assert_eq!(
        again,
        Ok(CreateResult::Taken),
        "its deliveries still refer to it"
    );
}

pub(super) async fn endpoints_are_listed_without_deleted_ones(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    for number in 1..=6 {
        let owner = if number == 4 { "other" } else { "acme" };
        world.add(endpoint(number, owner, &[])).await;
    }
    world
        .set_status(EndpointId(2), EndpointStatus::Deleted)
        .await;
    world
        .set_status(EndpointId(5), EndpointStatus::Disabled)
        .await;
    for (owner, expected) in [
        ("acme", vec![6, 5, 3, 1]),
        ("other", vec![4]),
        ("nobody", vec![]),
    ] {
        for limit in 1..=5 {
            let found = all(limit, |page| world.store.endpoints(id(owner), page)).await;
            let ids: Vec<u128> = found.iter().map(|row| row.endpoint.id.0).collect();
            assert_eq!(ids, expected, "endpoints of {owner}, pages of {limit}");
        }
    }
}
