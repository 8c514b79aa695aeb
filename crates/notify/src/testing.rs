//! Sample data for the tests of this crate.
//!
//! The functions make a tenant, an endpoint, an event, a record and an email with fixed contents, and write a record to
//! a store.

use bytes::Bytes;
use posthaste_core::classify::Outcome;
use posthaste_core::delivery::{Delivery, RetrySettings};
use posthaste_core::dispatcher::{AttemptRecord, EndpointChange, Record};
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::lane::RETRY_AFTER_CAP;
use posthaste_core::policy::RetryPolicy;
use posthaste_core::rng::Rng;
use posthaste_core::time::Timestamp;
use posthaste_store::{
    AttemptDetail, Content, EmailLine, Endpoint, NewEvent, PendingEmail, Store, Tenant, Written,
};

pub(crate) fn tenant_id(id: &str) -> TenantId {
    id.parse().expect("a valid tenant id")
}

pub(crate) fn tenant(id: &str, created_at: Timestamp) -> Tenant {
    Tenant::new(tenant_id(id), id.to_owned(), created_at)
}

/// Returns an endpoint that subscribes to all events.
pub(crate) fn endpoint(id: EndpointId, tenant: &str, created_at: Timestamp) -> Endpoint {
    Endpoint {
        owner_email_confirmed: true,
        ..Endpoint::new(
            id,
            tenant_id(tenant),
            format!("https://{tenant}.example.com/in"),
            created_at,
        )
    }
}

pub(crate) fn event(tenant: &str) -> NewEvent {
    NewEvent::new(
        tenant_id(tenant),
        Content::new(
            "a.b".parse().expect("a valid event type"),
            Bytes::from_static(b"{}"),
        ),
    )
}

/// Returns the record of an attempt of a waiting delivery that ended with this outcome and these endpoint changes.
pub(crate) fn attempt(
    mut delivery: Delivery,
    at: Timestamp,
    outcome: Outcome,
    endpoint_changes: Vec<EndpointChange>,
) -> Record {
    let policy = RetryPolicy::default();
    let settings = RetrySettings {
        policy: &policy,
        retry_after_cap: RETRY_AFTER_CAP,
    };
    delivery.begin(at, false).expect("the delivery is waiting");
    let settlement = delivery.settle(at, outcome, settings, &mut Rng::seeded(1));
    Record::Attempt(Box::new(AttemptRecord {
        delivery,
        settlement: settlement.expect("the attempt was started"),
        health: None,
        disable: None,
        endpoint_changes,
    }))
}

/// Writes a record and waits until it is stored.
pub(crate) async fn write(store: &dyn Store, at: Timestamp, record: Record) {
    let (report, result) = tokio::sync::oneshot::channel();
    let done = Box::new(move |written| report.send(written).expect("the test waits"));
    store.record(at, record, AttemptDetail::default(), done);
    let written = result.await.expect("the store answers");
    assert_eq!(written, Ok(Written::Applied));
}

/// Returns an email to `ops@example.com` that was never tried.
pub(crate) fn email(lines: Vec<EmailLine>) -> PendingEmail {
    PendingEmail {
        recipient: "ops@example.com".to_owned(),
        revision: 1,
        first_at: Timestamp(0),
        tries: 0,
        lines,
        omitted: 0,
    }
}
