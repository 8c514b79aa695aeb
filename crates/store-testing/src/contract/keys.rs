//! API keys.
//!
//! A key is found by its hash until it is revoked, or its tenant is deleted. Ids and hashes are unique, a key of a
//! tenant needs that tenant, and keys are listed by owner.

use posthaste_core::id::KeyId;

use super::Harness;
use super::fixture::{StoreFixture, all, at, id, key};
use posthaste_store::CreateResult;

pub(super) async fn a_key_is_found_by_its_hash_until_it_is_revoked(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    for made in [key(1, Some("acme")), key(2, None)] {
        let created = world.store.create_key(at(0), made.clone()).await;
        assert_eq!(created, Ok(CreateResult::Created));
        assert_eq!(world.store.key(made.hash).await, Ok(Some(made)));
    }
    let revoke =
        |tenant: Option<&str>, key| world.store.revoke_key(at(1), tenant.map(id), KeyId(key));
    assert_eq!(revoke(None, 1).await, Ok(false), "the key belongs to acme");
    assert_eq!(
        revoke(Some("acme"), 2).await,
        Ok(false),
        "the key belongs to no tenant"
    );
    assert_eq!(revoke(Some("acme"), 1).await, Ok(true));
    assert_eq!(revoke(Some("acme"), 1).await, Ok(false));
    assert_eq!(world.store.key(key(1, None).hash).await, Ok(None));
    assert_eq!(revoke(None, 2).await, Ok(true));
    assert_eq!(world.store.key(key(2, None).hash).await, Ok(None));
}

pub(super) async fn keys_need_their_tenant_and_are_unique(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let create = |key| world.store.create_key(at(0), key);
    assert_eq!(
        create(key(1, Some("nobody"))).await,
        Ok(CreateResult::NoSuchTenant)
    );
    assert_eq!(
        create(key(1, Some("acme"))).await,
        Ok(CreateResult::Created)
    );
    assert_eq!(create(key(1, None)).await, Ok(CreateResult::Taken));
    let mut copy = key(2, None);
    copy.hash = key(1, None).hash;
    assert_eq!(
        create(copy).await,
        Ok(CreateResult::Taken),
        "two keys cannot have the same hash"
    );
    let found = world.store.key(key(1, None).hash).await.unwrap();
    assert_eq!(found, Some(key(1, Some("acme"))));
}

pub(super) async fn keys_are_listed_by_owner(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    let owners = [
        Some("acme"),
        None,
        Some("other"),
        Some("acme"),
        None,
        Some("acme"),
    ];
    for (number, owner) in owners.iter().enumerate() {
        let made = key(number as u128 + 1, *owner);
        world.store.create_key(at(0), made).await.unwrap();
    }
    for (owner, expected) in [
        (Some("acme"), vec![6, 4, 1]),
        (Some("other"), vec![3]),
        (Some("nobody"), vec![]),
        (None, vec![5, 2]),
    ] {
        for limit in 1..=4 {
            let found = all(limit, |page| world.store.keys(owner.map(id), page)).await;
            let numbers: Vec<u128> = found.iter().map(|key| key.id.0).collect();
            assert_eq!(numbers, expected, "keys of {owner:?}, pages of {limit}");
        }
    }
}
