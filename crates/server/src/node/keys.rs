//! Keys of a starting node: the vault of a shared store, and the first admin key.
//!
//! Nodes of a cluster share one master key. A node whose configured key cannot decrypt what is stored does not start.
//! The first admin key is shown once and stored only as a hash.

use posthaste_core::id::KeyId;
use posthaste_engine::vault::{KeySource, MasterKeyId, Vault, VaultError};
use posthaste_store::postgres::PostgresStore;
use posthaste_store::{ApiKey, CreateResult, Endpoint, PageRequest, Store, StoreError};
use posthaste_system::clock::Clock;
use posthaste_system::random;

use super::error::StartError;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::node::keys";

/// Id of the first admin key in a shared store.
const FIRST_SHARED_KEY: KeyId = KeyId(1);
/// Origin of a master key that is stored in the database.
const IN_STORE: &str = "the database";

/// Returns the vault of nodes that share a store. Without a configured master key they share one that is kept in the
/// store. With one, secrets that were encrypted before it was configured can still be decrypted. A node that cannot
/// decrypt the others' secrets must not start: it would own endpoints that it cannot send to, and encrypt secrets that
/// the others cannot decrypt.
pub(super) async fn shared_vault(
    store: &PostgresStore,
    configured: Option<Vault>,
) -> Result<Vault, StartError> {
    // The order matters: a node stores a key before it encrypts with it or marks it as in use.
    let sealed = any_endpoint(store).await?;
    let in_use = store.master_key_in_use().await?.map(MasterKeyId::numbered);
    let stored = store.shared_master_keys().await?;
    let vault = match (configured, stored) {
        (Some(vault), None) => vault,
        (Some(vault), Some(older)) => vault.with_older_keys(&older, IN_STORE)?,
        (None, Some(text)) => vault_from_store(text)?,
        (None, None) => {
            if in_use.is_some() || sealed.is_some() {
                return Err(StartError::NoMasterKey { in_use });
            }
            vault_from_store(store.offer_master_keys(Vault::generate_key_text()).await?)?
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

fn vault_from_store(text: String) -> Result<Vault, VaultError> {
    tracing::warn!(target: LOG_TARGET,
        "the master key is stored in the database and does not protect secrets from readers of the database: set the same POSTHASTE_MASTER_KEY on every node"
    );
    Vault::open_or_create(KeySource::Text {
        text,
        origin: IN_STORE.to_owned(),
    })
}

/// Returns any endpoint, if there is one: its secrets are encrypted with the key in use.
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

/// Creates an admin key if there is none. Only its hash is stored.
pub(super) async fn create_first_admin_key(
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
    let key = random::fresh_api_key();
    let now = clock.wall();
    let is_shared = store.cluster().is_some();
    let api_key = ApiKey {
        id: match is_shared {
            // The fixed id makes sure that only one of several starting nodes creates the key.
            true => FIRST_SHARED_KEY,
            false => posthaste_core::id::IdGenerator::new(random::seed()).next(now),
        },
        tenant: None,
        name: "first".to_owned(),
        hash: posthaste_api::hash_key(&key),
        created_at: now,
    };
    match store.create_key(now, api_key).await? {
        CreateResult::Created => Ok(Some(key)),
        CreateResult::Taken if is_shared => Ok(None),
        CreateResult::Taken | CreateResult::NoSuchTenant | CreateResult::TooMany => Err(
            StoreError::Unavailable("cannot store the first admin key".to_owned()),
        ),
    }
}
