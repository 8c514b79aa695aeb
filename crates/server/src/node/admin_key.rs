//! Replaces the admin keys of a store, for an operator who has lost them.
//!
//! [`reset_admin_keys`] opens the store without starting a node. A SQLite store must not be in use; the nodes of a
//! PostgreSQL store may be running, and learn of the change like of any other.

use std::sync::Arc;

use posthaste_core::id::{IdGenerator, KeyId};
use posthaste_core::time::Timestamp;
use posthaste_engine::Engine;
use posthaste_store::postgres::PostgresStore;
use posthaste_store::sqlite::SqliteStore;
use posthaste_store::{
    ActionInterface, ApiKey, AuditEntry, AuditOutcome, CreateResult, PageRequest, Store,
    StoreError, StoreSettings,
};
use posthaste_system::clock::Clock;
use posthaste_system::random;
use tokio::task::spawn_blocking;

use super::cluster_events::ClusterEventHandler;
use super::error::StartError;
use super::settings::{NodeSettings, StoreBackend};
use crate::config::Role;

/// Number of keys that are read at once.
const PAGE: usize = 100;

/// The new admin key, and the keys that it replaces.
pub struct AdminKeyReset {
    /// The new key. Only its hash is stored.
    pub key: String,
    /// Number of earlier admin keys, which are revoked.
    pub revoked: usize,
}

/// Creates an admin key and revokes all others.
pub async fn reset_admin_keys(settings: NodeSettings) -> Result<AdminKeyReset, StartError> {
    let store = open(settings.store, settings.store_settings).await?;
    let result = replace(&*store, Clock::system().wall()).await;
    let closed = store.close().await;
    let result = result?;
    closed?;
    Ok(result)
}

async fn open(
    backend: StoreBackend,
    settings: StoreSettings,
) -> Result<Arc<dyn Store>, StartError> {
    let engine = Engine::new();
    let hand_over = engine.hand_over();
    Ok(match backend {
        StoreBackend::Sqlite(path) => {
            if !path.exists() {
                return Err(StartError::NoStore { path });
            }
            let opening = spawn_blocking(move || SqliteStore::open(&path, settings, hand_over));
            Arc::new(opening.await.expect("opening the store does not panic")?)
        }
        StoreBackend::Postgres(mut shared) => {
            // This process sends nothing.
            shared.role = Role::Api;
            let (clock, correction) = Clock::corrected();
            let shared = shared.settings(clock, correction);
            let events = Arc::new(ClusterEventHandler::new(engine));
            let opening =
                spawn_blocking(move || PostgresStore::open(shared, settings, hand_over, events));
            Arc::new(opening.await.expect("opening the store does not panic")?)
        }
    })
}

async fn replace(store: &dyn Store, now: Timestamp) -> Result<AdminKeyReset, StoreError> {
    let earlier = admin_keys(store).await?;
    let mut ids = IdGenerator::new(random::seed());
    let key = random::fresh_api_key();
    let id: KeyId = ids.next(now);
    let entry = AuditEntry {
        id: ids.next(now),
        at: now,
        actor: "posthaste admin-key reset".to_owned(),
        actor_key: None,
        via: ActionInterface::Cli,
        from: None,
        action: "reset_admin_key".to_owned(),
        tenant: None,
        resource: id.to_string(),
        outcome: None,
    };
    let audit_id = entry.id;
    store.begin_audit(now, entry).await?;
    let api_key = ApiKey {
        id,
        tenant: None,
        name: "reset".to_owned(),
        hash: posthaste_api::hash_key(&key),
        created_at: now,
    };
    match store.create_key(now, api_key).await? {
        CreateResult::Created => {}
        CreateResult::Taken | CreateResult::NoSuchTenant | CreateResult::TooMany => {
            let why = "cannot store the new admin key".to_owned();
            return Err(StoreError::Unavailable(why));
        }
    }
    for key in &earlier {
        store.revoke_key(now, None, *key).await?;
    }
    store
        .finish_audit(audit_id, AuditOutcome::Done, None)
        .await?;
    Ok(AdminKeyReset {
        key,
        revoked: earlier.len(),
    })
}

async fn admin_keys(store: &dyn Store) -> Result<Vec<KeyId>, StoreError> {
    let mut keys = Vec::new();
    let mut before = None;
    loop {
        let limit = PAGE;
        let page = store.keys(None, PageRequest { limit, before }).await?;
        keys.extend(page.items.iter().map(|key| key.id));
        before = page.next;
        if before.is_none() {
            return Ok(keys);
        }
    }
}
