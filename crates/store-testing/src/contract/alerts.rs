//! Alerts: raised, resolved, listed and removed.
//!
//! An alert is raised once per name and scope and resolved once, each with a notification. Alerts need an existing
//! scope, are found by every filter, and never become visible to a later tenant with the same id. Resolved ones are
//! removed after their time, in small steps; open ones are kept.

use posthaste_core::alert::AlertName;
use posthaste_core::id::{AlertId, EndpointId, first_sequence, id_of};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::Timestamp;
use serde_json::json;

use super::Harness;
use super::fixture::{DAY, StoreFixture, all, at, endpoint, id};
use posthaste_store::{
    ALERT_RETENTION, Alert, AlertFilter, CreateResult, Notification, SubjectScope,
};

/// Returns the id of an alert that was raised at a time.
fn named(at: Timestamp, number: u64) -> AlertId {
    AlertId(id_of(first_sequence(at), number))
}

fn alert(now: Timestamp, number: u64, name: AlertName, scope: SubjectScope) -> Alert {
    Alert {
        id: named(now, number),
        name,
        tenant: match &scope {
            SubjectScope::Everything => None,
            SubjectScope::Tenant(tenant) => Some(tenant.clone()),
            SubjectScope::Endpoint(EndpointId(8)) => Some(id("Acme")),
            SubjectScope::Endpoint(_) => Some(id("acme")),
        },
        scope,
        is_gone: false,
        raised_at: now,
        resolved_at: None,
        detail: json!({ "value": 0.25, "threshold": 0.2, "window": "1h" }),
    }
}

fn tenant(name: &str) -> SubjectScope {
    SubjectScope::Tenant(id(name))
}

fn endpoint_no(number: u128) -> SubjectScope {
    SubjectScope::Endpoint(EndpointId(number))
}

async fn raise(world: &StoreFixture<'_>, alert: &Alert) -> CreateResult {
    let raised = world.store.raise_alert(alert.raised_at, alert.clone());
    raised.await.expect("the alert is written")
}

async fn listed(world: &StoreFixture<'_>, filter: &AlertFilter, limit: usize) -> Vec<Alert> {
    all(limit, |page| world.store.alerts(filter.clone(), page)).await
}

async fn alert_notifications(
    world: &StoreFixture<'_>,
) -> Vec<(String, SubjectScope, Timestamp, serde_json::Value)> {
    let notifications = world
        .store
        .notifications(0, 99)
        .await
        .expect("the store can be read");
    let parts = |it: Notification| (it.name, it.scope, it.at, it.detail);
    notifications.into_iter().map(parts).collect()
}

pub(super) async fn an_alert_is_raised_once_and_resolved_once(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let name = AlertName::DeadLetterRatio;
    let first = alert(at(5), 1, name, tenant("acme"));
    assert_eq!(raise(&world, &first).await, CreateResult::Created);
    // The same name and scope is the same alert. Another name or scope is another alert.
    let again = alert(at(6), 2, name, tenant("acme"));
    assert_eq!(raise(&world, &again).await, CreateResult::Taken);
    let other = alert(at(7), 3, AlertName::RetryRatio, tenant("acme"));
    assert_eq!(raise(&world, &other).await, CreateResult::Created);
    let wide = alert(at(7), 4, name, SubjectScope::Everything);
    assert_eq!(raise(&world, &wide).await, CreateResult::Created);
    let taken = alert(at(7), 4, AlertName::QueueAge, SubjectScope::Everything);
    assert_eq!(
        raise(&world, &taken).await,
        CreateResult::Taken,
        "the id is taken"
    );

    let world = world.reopened().await;
    assert_eq!(raise(&world, &again).await, CreateResult::Taken);
    let resolved = Alert {
        resolved_at: Some(at(9)),
        ..first.clone()
    };
    let end = |now, alert: &Alert| world.store.resolve_alert(now, alert.id);
    assert_eq!(end(at(9), &first).await, Ok(Some(resolved.clone())));
    assert_eq!(end(at(10), &first).await, Ok(None));
    assert_eq!(end(at(10), &again).await, Ok(None));
    // It can be raised again, as a new alert.
    assert_eq!(raise(&world, &again).await, CreateResult::Created);
    let found = listed(&world, &AlertFilter::default(), 9).await;
    let expected = [wide.clone(), other.clone(), again.clone(), resolved];
    assert_eq!(found, expected);
    let open = world
        .store
        .open_alerts()
        .await
        .expect("the store can be read");
    let expected = [(AlertName::RetryRatio, 1), (name, 2)];
    assert_eq!(open, expected.into());

    let detail = |alert: &Alert| {
        json!({
            "alert": alert.id.to_string(),
            "name": alert.name.name(),
            "raised_at": alert.raised_at.to_string(),
            "value": 0.25,
            "threshold": 0.2,
            "window": "1h",
        })
    };
    let notification = |name: &str, at: Timestamp, alert: &Alert| {
        (name.to_owned(), alert.scope.clone(), at, detail(alert))
    };
    assert_eq!(
        alert_notifications(&world).await,
        [
            notification("alert.raised", at(5), &first),
            notification("alert.raised", at(7), &other),
            notification("alert.raised", at(7), &wide),
            notification("alert.resolved", at(9), &first),
            notification("alert.raised", at(6), &again),
        ]
    );
}

pub(super) async fn alerts_need_an_existing_scope(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let name = AlertName::BreakerTripped;
    for scope in [tenant("nobody"), endpoint_no(77)] {
        let stray = alert(at(1), 1, name, scope);
        assert_eq!(raise(&world, &stray).await, CreateResult::NoSuchTenant);
    }
    world.add(endpoint(7, "acme", &["*"])).await;
    let made = alert(at(2), 2, name, endpoint_no(7));
    assert_eq!(raise(&world, &made).await, CreateResult::Created);
    let deleted =
        world
            .store
            .set_endpoint_status(at(3), EndpointId(7), EndpointStatus::Deleted, None, None);
    assert_eq!(deleted.await, Ok(true));
    let late = alert(at(4), 3, AlertName::DisableWarning, endpoint_no(7));
    assert_eq!(raise(&world, &late).await, CreateResult::NoSuchTenant);
    // An alert of a deleted object still exists and can be resolved.
    let made = Alert {
        is_gone: true,
        ..made
    };
    let filter = AlertFilter {
        scope: Some(endpoint_no(7)),
        ..AlertFilter::default()
    };
    assert_eq!(
        listed(&world, &filter, 9).await,
        std::slice::from_ref(&made)
    );
    let ended = world.store.resolve_alert(at(5), made.id).await;
    assert_eq!(ended.unwrap().unwrap().scope, endpoint_no(7));
    assert_eq!(alert_notifications(&world).await.len(), 2);
}

pub(super) async fn alerts_are_found_by_every_filter(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("Acme").await;
    world.add(endpoint(7, "acme", &["*"])).await;
    world.add(endpoint(8, "Acme", &["*"])).await;
    let scopes = [
        SubjectScope::Everything,
        tenant("acme"),
        tenant("Acme"),
        endpoint_no(7),
        endpoint_no(8),
    ];
    let names = [AlertName::RetryRatio, AlertName::BreakerTripped];
    let mut made = Vec::new();
    // Not in the order of their times.
    for (number, ms) in [4, 1, 9, 3, 7, 5, 2, 8, 6, 10].into_iter().enumerate() {
        let name = names[number / scopes.len()];
        let scope = scopes[number % scopes.len()].clone();
        let mut alert = alert(at(ms), number as u64, name, scope);
        assert_eq!(raise(&world, &alert).await, CreateResult::Created);
        if ms % 3 == 0 {
            alert.resolved_at = Some(at(ms + 1));
            let ended = world.store.resolve_alert(at(ms + 1), alert.id).await;
            assert_eq!(ended, Ok(Some(alert.clone())));
        }
        made.push(alert);
    }
    made.sort_by_key(|alert| std::cmp::Reverse(alert.id));
    let tenants = [None, Some("acme"), Some("Acme"), Some("nobody")];
    let some = |scope: &SubjectScope| Some(scope.clone());
    let abouts = [
        None,
        some(&scopes[0]),
        some(&scopes[2]),
        some(&scopes[3]),
        Some(tenant("no")),
    ];
    for open in [None, Some(true), Some(false)] {
        for name in [
            None,
            Some(names[0]),
            Some(names[1]),
            Some(AlertName::StoreSlow),
        ] {
            for tenant in tenants {
                for scope in &abouts {
                    for (since, until) in [(None, None), (Some(3), None), (Some(3), Some(8))] {
                        let filter = AlertFilter {
                            open,
                            name,
                            tenant: tenant.map(id),
                            scope: scope.clone(),
                            since: since.map(at),
                            until: until.map(at),
                        };
                        let wanted = made.iter().filter(|alert| {
                            open.is_none_or(|open| open == alert.resolved_at.is_none())
                                && name.is_none_or(|name| name == alert.name)
                                && tenant.is_none_or(|tenant| alert.tenant == Some(id(tenant)))
                                && scope.as_ref().is_none_or(|scope| *scope == alert.scope)
                                && since.is_none_or(|since| alert.raised_at >= at(since))
                                && until.is_none_or(|until| alert.raised_at < at(until))
                        });
                        let wanted: Vec<Alert> = wanted.cloned().collect();
                        let found = listed(&world, &filter, 2).await;
                        assert_eq!(found, wanted, "{filter:?}");
                    }
                }
            }
        }
    }
}

pub(super) async fn a_new_tenant_with_a_reused_id_sees_no_earlier_alert(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add(endpoint(7, "acme", &["*"])).await;
    let name = AlertName::RetryRatio;
    let first = alert(at(1), 1, name, tenant("acme"));
    let below = alert(at(2), 2, name, endpoint_no(7));
    for alert in [&first, &below] {
        assert_eq!(raise(&world, alert).await, CreateResult::Created);
    }
    world.store.delete_tenant(at(3), id("acme")).await.unwrap();
    let late = alert(at(3), 3, name, tenant("acme"));
    assert_eq!(raise(&world, &late).await, CreateResult::NoSuchTenant);
    world.add_tenant("acme").await;
    let theirs = AlertFilter {
        tenant: Some(id("acme")),
        ..AlertFilter::default()
    };
    let about = AlertFilter {
        scope: Some(tenant("acme")),
        ..AlertFilter::default()
    };
    assert_eq!(listed(&world, &theirs, 9).await, []);
    assert_eq!(listed(&world, &about, 9).await, []);
    // The alert of the earlier tenant does not count as raised for the later one.
    let own = alert(at(4), 4, name, tenant("acme"));
    assert_eq!(raise(&world, &own).await, CreateResult::Created);
    assert_eq!(listed(&world, &theirs, 9).await, std::slice::from_ref(&own));
    assert_eq!(listed(&world, &about, 9).await, std::slice::from_ref(&own));
    let everybodys = AlertFilter::default();
    let gone = |alert: &Alert| Alert {
        is_gone: true,
        ..alert.clone()
    };
    assert_eq!(
        listed(&world, &everybodys, 9).await,
        [own, gone(&below), gone(&first)]
    );
    let ended = world.store.resolve_alert(at(5), first.id).await;
    let expected = Alert {
        resolved_at: Some(at(5)),
        ..gone(&first)
    };
    assert_eq!(ended, Ok(Some(expected)));
    let open = AlertFilter {
        open: Some(true),
        ..theirs
    };
    assert_eq!(listed(&world, &open, 9).await.len(), 1);
}

pub(super) async fn old_resolved_alerts_are_removed_in_small_steps(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    for number in 1..=8 {
        let made = alert(
            at(number),
            number,
            AlertName::QueueAge,
            SubjectScope::Everything,
        );
        assert_eq!(raise(&world, &made).await, CreateResult::Created);
        if number < 8 {
            let end = at(if number > 5 { DAY } else { 10 });
            let ended = world.store.resolve_alert(end, made.id).await;
            assert!(ended.unwrap().is_some());
        }
    }
    let over = at(10).after(ALERT_RETENTION);
    let before = Timestamp(over.0 - 1);
    assert!(!world.retention_step(before, DAY, 2).await.more);
    let everything = AlertFilter::default();
    assert_eq!(listed(&world, &everything, 9).await.len(), 8);
    let mut more = Vec::new();
    for _ in 0..3 {
        more.push(world.retention_step(over, DAY, 2).await.more);
    }
    assert_eq!(more, [true, true, false]);
    let left = listed(&world, &everything, 9).await;
    let left: Vec<u64> = left.iter().map(|alert| alert.id.0 as u64).collect();
    assert_eq!(left, [8, 7, 6], "an open alert is kept at any age");
}
