//! The admin key that is made at the first start.

use posthaste_core::id::KeyId;
use posthaste_store::{ApiKey, Insertion, PageRequest, Store, StoreError};

use crate::chance;
use crate::clock::Clock;

/// Its id on a store that nodes share.
const FIRST_SHARED_KEY: KeyId = KeyId(1);

/// Makes an admin key if there is none. Only its hash is stored.
pub async fn make(store: &dyn Store, clock: &Clock) -> Result<Option<String>, StoreError> {
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
