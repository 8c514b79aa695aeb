//! Cases about sessions of the dashboard and of portal links.
//!
//! A session is found by its hash until it expires or is ended. It ends with its key and with its tenant. Sessions
//! are unique, are listed by holder, and are removed in small steps after they have expired.

use posthaste_core::id::{KeyId, SessionId};

use super::Harness;
use super::fixture::{DAY, HOUR, StoreFixture, all, at, id, key};
use posthaste_store::{CreateResult, KeyHash, LoginSession, SessionIdentity};

/// Returns a session that is valid for one hour.
fn session(number: u8, holder: SessionIdentity) -> LoginSession {
    LoginSession {
        id: SessionId(u128::from(number) << 64),
        hash: hash(number),
        holder,
        created_at: at(u64::from(number)),
        expires_at: at(HOUR),
    }
}

fn hash(number: u8) -> KeyHash {
    KeyHash([number ^ 0x5a; 32])
}

fn tenants(name: &str) -> SessionIdentity {
    SessionIdentity::Tenant(id(name))
}

pub(super) async fn a_session_is_found_by_its_hash_until_it_ends(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let store = &world.store;
    for made in [
        session(1, tenants("acme")),
        session(2, SessionIdentity::Key(hash(77))),
        session(3, tenants("acme")),
    ] {
        let created = store.create_session(at(0), made.clone()).await;
        assert_eq!(created, Ok(CreateResult::Created));
        assert_eq!(store.session(at(0), made.hash).await, Ok(Some(made)));
    }
    assert_eq!(store.session(at(0), hash(4)).await, Ok(None));
    let last = store.session(at(HOUR - 1), hash(1)).await;
    assert!(
        last.is_ok_and(|session| session.is_some()),
        "the session is still valid"
    );
    assert_eq!(store.session(at(HOUR), hash(1)).await, Ok(None));
    let end = |tenant: Option<&str>, number: u8, now| {
        store.end_session(at(now), tenant.map(id), session(number, tenants("acme")).id)
    };
    assert_eq!(
        end(Some("acme"), 1, HOUR).await,
        Ok(false),
        "the session has expired"
    );
    assert_eq!(
        end(Some("acme"), 2, 1).await,
        Ok(false),
        "the session belongs to a key"
    );
    assert_eq!(
        end(Some("other"), 1, 1).await,
        Ok(false),
        "the session belongs to acme"
    );
    assert_eq!(end(Some("acme"), 1, 1).await, Ok(true));
    assert_eq!(end(Some("acme"), 1, 1).await, Ok(false));
    assert_eq!(end(None, 2, 1).await, Ok(true));
    assert_eq!(
        end(None, 3, 1).await,
        Ok(true),
        "the holder need not be given"
    );
    for number in 1..=3 {
        assert_eq!(store.session(at(1), hash(number)).await, Ok(None));
    }
    let again = store
        .create_session(at(2), session(3, tenants("acme")))
        .await;
    assert_eq!(again, Ok(CreateResult::Created));
    let world = world.reopened().await;
    let found = world.store.session(at(2), hash(3)).await;
    assert_eq!(found, Ok(Some(session(3, tenants("acme")))));
}

pub(super) async fn sessions_need_their_tenant_and_are_unique(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    let create = |session| world.store.create_session(at(0), session);
    assert_eq!(
        create(session(1, tenants("nobody"))).await,
        Ok(CreateResult::NoSuchTenant)
    );
    assert_eq!(
        create(session(1, tenants("acme"))).await,
        Ok(CreateResult::Created)
    );
    let same_id = LoginSession {
        hash: hash(2),
        ..session(1, tenants("acme"))
    };
    assert_eq!(create(same_id).await, Ok(CreateResult::Taken));
    let same_hash = LoginSession {
        hash: hash(1),
        ..session(2, SessionIdentity::Key(hash(9)))
    };
    assert_eq!(create(same_hash).await, Ok(CreateResult::Taken));
}

pub(super) async fn sessions_are_listed_by_holder(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    for number in 1..=6 {
        let holder = match number {
            2 => SessionIdentity::Key(hash(9)),
            3 => tenants("other"),
            _ => tenants("acme"),
        };
        let mut made = session(number, holder);
        if number == 5 {
            made.expires_at = at(10);
        }
        let created = world.store.create_session(at(0), made).await;
        assert_eq!(created, Ok(CreateResult::Created));
    }
    for (now, tenant, expected) in [
        (9, "acme", vec![6, 5, 4, 1]),
        (10, "acme", vec![6, 4, 1]),
        (10, "other", vec![3]),
        (10, "nobody", vec![]),
        (HOUR, "acme", vec![]),
    ] {
        for limit in 1..=5 {
            let found = all(limit, |page| {
                world.store.sessions(at(now), id(tenant), page)
            });
            let numbers: Vec<u128> = found
                .await
                .iter()
                .map(|session| session.id.0 >> 64)
                .collect();
            assert_eq!(numbers, expected, "sessions of {tenant}, pages of {limit}");
        }
    }
}

pub(super) async fn sessions_end_with_their_key_and_their_tenant(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    world.add_tenant("other").await;
    let store = &world.store;
    for (number, tenant) in [(1, Some("acme")), (2, Some("acme")), (3, None)] {
        store.create_key(at(0), key(number, tenant)).await.unwrap();
    }
    let with = |number: u128| SessionIdentity::Key(key(number, None).hash);
    for (number, holder) in [
        (1, with(1)),
        (2, with(2)),
        (3, with(3)),
        (4, tenants("acme")),
        (5, tenants("other")),
        (6, with(1)),
    ] {
        let created = store.create_session(at(0), session(number, holder)).await;
        assert_eq!(created, Ok(CreateResult::Created));
    }
    let left = async || {
        let mut left = Vec::new();
        for number in 1..=6 {
            if store.session(at(1), hash(number)).await.unwrap().is_some() {
                left.push(number);
            }
        }
        left
    };
    let revoked = store.revoke_key(at(1), None, KeyId(1)).await;
    assert_eq!(revoked, Ok(false), "the session belongs to acme");
    assert_eq!(left().await, [1, 2, 3, 4, 5, 6]);
    let revoked = store.revoke_key(at(1), Some(id("acme")), KeyId(1)).await;
    assert_eq!(revoked, Ok(true));
    assert_eq!(left().await, [2, 3, 4, 5]);
    store.delete_tenant(at(1), id("acme")).await.unwrap();
    assert_eq!(left().await, [3, 5]);
    let revoked = store.revoke_key(at(1), None, KeyId(3)).await;
    assert_eq!(revoked, Ok(true));
    assert_eq!(left().await, [5]);
    // A later tenant with the same id has none.
    world.add_tenant("acme").await;
    let found = all(9, |page| world.store.sessions(at(1), id("acme"), page)).await;
    assert_eq!(found, []);
}

pub(super) async fn expired_sessions_are_removed_in_small_steps(harness: &dyn Harness) {
    let world = StoreFixture::with_acme(harness).await;
    for number in 1..=7 {
        let mut made = session(number, tenants("acme"));
        if number > 5 {
            made.expires_at = at(DAY);
        }
        world.store.create_session(at(0), made).await.unwrap();
    }
    let before = world.retention_step(at(HOUR - 1), DAY, 2).await;
    assert!(!before.more, "no session has expired yet");
    // Five are expired: two full steps and one partial.
    let mut more = Vec::new();
    for _ in 0..3 {
        more.push(world.retention_step(at(HOUR), DAY, 2).await.more);
    }
    assert_eq!(more, [true, true, false]);
    // Read at an earlier time, the sessions that were not removed still exist.
    let found = all(9, |page| world.store.sessions(at(0), id("acme"), page)).await;
    let left: Vec<u128> = found.iter().map(|session| session.id.0 >> 64).collect();
    assert_eq!(left, [7, 6]);
}
