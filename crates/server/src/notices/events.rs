//! Operational events: what is told to the operator's own endpoints.
//!
//! They are ordinary events of an ordinary tenant, so they are signed, retried, shown and replayed like any other.
//! Each is accepted under a key that follows from its notice's number, so that whoever tells it again tells nothing
//! new, even if what it is about has changed since.

use std::sync::Arc;

use bytes::Bytes;
use posthaste_core::delivery::OrderingKey;
use posthaste_core::id::TenantId;
use posthaste_core::ingest::Fingerprint;
use posthaste_core::subscription::EventType;
use posthaste_store::{
    Content, Idempotency, Ingest, Insertion, Limits, NewEvent, NoticeEntry, Store, StoreError,
    Tenant,
};
use serde_json::Value;

use super::decide::About;
use crate::clock::Clock;

/// What the tenant is called that gets them, if nobody has made it.
const NAME: &str = "The operator";

/// The event that tells of a notice.
pub(super) fn event_of(
    tenant: &TenantId,
    notice: &NoticeEntry,
    about: &About,
    payload: &Value,
) -> Option<NewEvent> {
    let event_type: EventType = notice.name.parse().ok()?;
    let key = format!("notice-{}", notice.number);
    Some(NewEvent {
        tenant: tenant.clone(),
        content: Arc::new(Content {
            event_type,
            content_type: None,
            payload: Bytes::from(payload.to_string()),
            trace: None,
        }),
        idempotency: Some(Idempotency {
            fingerprint: Fingerprint::of(&[key.as_bytes()]),
            key,
        }),
        deliver_at: None,
        // What happens to one endpoint is told in order, where order is asked for.
        ordering: about
            .endpoint
            .map(|endpoint| OrderingKey(endpoint.0 as u64)),
        only: None,
        received: None,
    })
}

/// Hands events over. Their tenant is made if it is not there. A key that somebody else has used for something else
/// keeps only its own event from being told.
pub(super) async fn accept(
    store: &dyn Store,
    clock: &Clock,
    tenant: &TenantId,
    events: Vec<NewEvent>,
) -> Result<(), StoreError> {
    match store.accept(clock.wall(), events.clone()).await? {
        Ingest::Done(_) => return Ok(()),
        Ingest::NoSuchTenant => make_tenant(store, clock, tenant).await?,
        Ingest::Conflict(_) | Ingest::NoSuchEndpoint | Ingest::OverLimit { .. } => {}
    }
    for event in events {
        let key = event.idempotency.as_ref().map(|it| it.key.clone());
        match store.accept(clock.wall(), vec![event]).await? {
            Ingest::Done(_) => {}
            Ingest::NoSuchTenant => {
                let gone = format!("the tenant {tenant} is gone again");
                return Err(StoreError::Unavailable(gone));
            }
            Ingest::Conflict(_) => refused(tenant, key, "its idempotency key is taken"),
            Ingest::NoSuchEndpoint => refused(tenant, key, "its endpoint is gone"),
            Ingest::OverLimit { .. } => refused(tenant, key, "its tenant is over its limit"),
        }
    }
    Ok(())
}

/// It is told by every other means all the same.
fn refused(tenant: &TenantId, key: Option<String>, why: &str) {
    tracing::error!(%tenant, key, why, "an operational event was refused, and is not sent");
}

/// There is a tenant that gets operational events.
pub(super) async fn make_tenant(
    store: &dyn Store,
    clock: &Clock,
    tenant: &TenantId,
) -> Result<(), StoreError> {
    if store.tenant(tenant.clone()).await?.is_some() {
        return Ok(());
    }
    let now = clock.wall();
    let made = Tenant {
        id: tenant.clone(),
        name: NAME.to_owned(),
        default_retry_policy: None,
        limits: Limits::default(),
        plan: None,
        created_at: now,
        revision: 0,
    };
    match store.create_tenant(now, made).await? {
        Insertion::Created => {
            tracing::info!(%tenant, "the tenant that gets operational events was made; add an endpoint to it");
        }
        // Another node was faster.
        Insertion::Taken | Insertion::TooMany | Insertion::NoSuchTenant => {}
    }
    Ok(())
}
