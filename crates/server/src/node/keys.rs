//! The keys a node begins with: what it opens secrets with, and the first admin key.

use posthaste_core::id::KeyId;
use posthaste_store::postgres::PostgresStore;
use posthaste_store::{ApiKey, Endpoint, Insertion, PageRequest, Store, StoreError};

use super::StartError;
use crate::chance;
use crate::clock::Clock;
use crate::vault::{KeySource, MasterKeyId, Vault, VaultError};

/// The id of the first admin key on a store that nodes share.
const FIRST_SHARED_KEY: KeyId = KeyId(1);
/// Where a master key stands that no configuration names.
const IN_STORE: &str = "the database";

/// The vault of nodes that share a store. Without a configured key they share one that is kept in it; with
/// one, what was sealed before it was configured still opens. A node that cannot open what the others
/// seal must not begin: it would own endpoints to which it can send nothing, and seal what they cannot open.
pub(super) async fn shared_vault(
    store: &PostgresStore,
    configured: Option<Vault>,
) -> Result<Vault, StartError> {
    // In this order: who seals, or says that a key is in use, has offered it before.
    let sealed = any_endpoint(store).await?;
    let in_use = store.master_key_in_use().await?.map(MasterKeyId::numbered);
    let kept = store.shared_master_keys().await?;
    let vault = match (configured, kept) {
        (Some(vault), None) => vault,
        (Some(vault), Some(older)) => vault.and_opens_with(&older, IN_STORE)?,
        (None, Some(text)) => kept_vault(text)?,
        (None, None) => {
            if in_use.is_some() || sealed.is_some() {
                return Err(StartError::NoMasterKey { in_use });
            }
            kept_vault(store.offer_master_keys(Vault::fresh_text()).await?)?
        }
    };
    if let Some(endpoint) = sealed {
        vault
            .reseal_endpoint(&endpoint)
            .map_err(StartError::OtherMasterKey)?;
    }
    let known: Vec<u32> = vault.key_ids().map(MasterKeyId::number).collect();
    let used = store.use_master_key(known.clone()).await?;
    if !known.contains(&used) {
        let in_use = Some(MasterKeyId::numbered(used));
        return Err(StartError::NoMasterKey { in_use });
    }
    Ok(vault)
}

fn kept_vault(text: String) -> Result<Vault, VaultError> {
    tracing::warn!(
        "the master key is kept in the database itself, where it protects nothing from those who can read all of it: give every node the same POSTHASTE_MASTER_KEY"
    );
    Vault::open_or_create(KeySource::Text {
        text,
        origin: IN_STORE.to_owned(),
    })
}

/// Some endpoint, if there is one: what it holds was sealed with the key that is in use.
async fn any_endpoint(store: &PostgresStore) -> Result<Option<Endpoint>, StoreError> {
    let mut before = None;
    loop {
        let tenants = store.tenants(PageRequest { limit: 100, before }).await?;
        for tenant in tenants.items {
            let one = PageRequest {
                limit: 1,
                before: None,
            };
            if let Some(row) = store.endpoints(tenant.id, one).await?.items.pop() {
                return Ok(Some(row.endpoint));
            }
        }
        before = tenants.next;
        if before.is_none() {
            return Ok(None);
        }
    }
}

/// Makes an admin key if there is none. Only its hash is stored.
pub(super) async fn make_first_admin_key(
    store: &dyn Store,
    clock: &Clock,
) -> Result<Option<String>, StoreError> {
    let one = PageRequest {
        limit: 1,
        before: None,
    };
    if !store.keys(None, one).await?.items.is_empty() {
        return Ok(None);
    }
    let key = chance::fresh_api_key();
    let now = clock.wall();
    let is_shared = store.cluster().is_some();
    let made = ApiKey {
        id: match is_shared {
            // Of several nodes that start at once, one makes it.
            true => FIRST_SHARED_KEY,
            false => posthaste_core::id::Mint::new(chance::seed()).next(now),
        },
        tenant: None,
        name: "first".to_owned(),
        hash: chance::hash_key(&key),
        created_at: now,
    };
    match store.create_key(now, made).await? {
        Insertion::Created => Ok(Some(key)),
        Insertion::Taken if is_shared => Ok(None),
        Insertion::Taken | Insertion::NoSuchTenant | Insertion::TooMany => Err(
            StoreError::Unavailable("the first admin key could not be stored".to_owned()),
        ),
    }
}
