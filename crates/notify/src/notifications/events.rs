//! Operational events: events that posthaste sends to the operator's endpoints.
//!
//! They are ordinary events of an ordinary tenant, so they are signed, retried, shown and replayed like any other. The
//! idempotency key is derived from the notification's number. So a repetition creates no second event, even if the
//! subject has changed since.

use std::sync::Arc;

use bytes::Bytes;
use posthaste_core::delivery::OrderingKey;
use posthaste_core::id::TenantId;
use posthaste_core::ingest::Fingerprint;
use posthaste_core::subscription::EventType;
use posthaste_store::{
    AcceptResult, Content, CreateResult, Idempotency, NewEvent, Notification, Store, StoreError,
    Tenant,
};
use posthaste_system::clock::Clock;
use serde_json::Value;

use super::outputs::Subject;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::notices::events";

/// Name of the operational tenant, if posthaste creates it.
const NAME: &str = "The operator";

/// Builds the operational event of a notification.
pub(super) fn event_of(
    tenant: &TenantId,
    notification: &Notification,
    subject: &Subject,
    payload: &Value,
) -> Option<NewEvent> {
    let event_type: EventType = notification.name.parse().ok()?;
    let key = format!("notice-{}", notification.number);
    Some(NewEvent {
        tenant: tenant.clone(),
        content: Arc::new(Content::new(event_type, Bytes::from(payload.to_string()))),
        idempotency: Some(Idempotency {
            fingerprint: Fingerprint::of(&[key.as_bytes()]),
            key,
        }),
        deliver_at: None,
        // Notifications about one endpoint are delivered in order, if the receiving endpoint is ordered.
        ordering: subject
            .endpoint
            .map(|endpoint| OrderingKey(endpoint.0 as u64)),
        only: None,
        request: None,
        received: None,
    })
}

/// Accepts operational events. Creates their tenant if it does not exist. If one idempotency key is already used by a
/// different event, only that one event is not sent.
pub(super) async fn accept(
    store: &dyn Store,
    clock: &Clock,
    tenant: &TenantId,
    events: Vec<NewEvent>,
) -> Result<(), StoreError> {
    match store.accept(clock.wall(), events.clone()).await? {
        AcceptResult::Done(_) => return Ok(()),
        AcceptResult::NoSuchTenant => create_tenant_if_missing(store, clock, tenant).await?,
        AcceptResult::Conflict(_)
        | AcceptResult::NoSuchEndpoint
        | AcceptResult::TooManyDeliveries { .. }
        | AcceptResult::OverLimit { .. } => {}
    }
    for event in events {
        let key = event.idempotency.as_ref().map(|it| it.key.clone());
        match store.accept(clock.wall(), vec![event]).await? {
            AcceptResult::Done(_) => {}
            AcceptResult::NoSuchTenant => {
                let message = format!("the tenant {tenant} was deleted");
                return Err(StoreError::Unavailable(message));
            }
            AcceptResult::Conflict(_) => {
                log_refused(tenant, key, "its idempotency key was used before")
            }
            AcceptResult::NoSuchEndpoint => log_refused(tenant, key, "its endpoint was deleted"),
            AcceptResult::TooManyDeliveries { .. } => {
                log_refused(tenant, key, "it would create too many deliveries")
            }
            AcceptResult::OverLimit { .. } => {
                log_refused(tenant, key, "its tenant has reached a limit")
            }
        }
    }
    Ok(())
}

/// Logs an event that was refused. The notification is still sent by the other means.
fn log_refused(tenant: &TenantId, key: Option<String>, why: &str) {
    tracing::error!(target: LOG_TARGET, %tenant, key, why, "operational event rejected and not sent");
}

/// Creates the operational tenant if it does not exist.
pub(super) async fn create_tenant_if_missing(
    store: &dyn Store,
    clock: &Clock,
    tenant: &TenantId,
) -> Result<(), StoreError> {
    if store.tenant(tenant.clone()).await?.is_some() {
        return Ok(());
    }
    let now = clock.wall();
    let created = Tenant::new(tenant.clone(), NAME.to_owned(), now);
    match store.create_tenant(now, created).await? {
        CreateResult::Created => {
            tracing::info!(target: LOG_TARGET, %tenant, "created the tenant for operational events; add an endpoint to receive them");
        }
        // Another node has created the tenant meanwhile.
        CreateResult::Taken | CreateResult::TooMany | CreateResult::NoSuchTenant => {}
    }
    Ok(())
}
