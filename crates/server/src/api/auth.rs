//! Who calls, and what they may.
//!
//! A key is random and shown once; what is kept and compared is its SHA-256. An admin key
//! reaches everything, a tenant's key its tenant only: whatever else is asked for with it does not
//! exist. A portal's link reaches its tenant too, but nothing that would outlive it. Keys and tenants are
//! remembered for a while, so that the common request reads nothing.

use std::hash::Hash;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use posthaste_core::id::{PassId, TenantId};
use posthaste_store::{ApiKey, Change, KeyHash, Tenant};

use super::App;
use super::cache::{Cache, Moment};
use super::code::Code;
use super::pace::Meter;
use super::problem::{Noun, Problem};
use super::quota::Refusal;
use crate::chance::hash_key;

/// The longest key that is looked at.
const MAX_KEY_CHARS: usize = 256;
/// How many keys are remembered.
pub(super) const MAX_KNOWN_KEYS: usize = 10_000;
/// How many tenants are remembered.
pub(super) const MAX_KNOWN_TENANTS: usize = 10_000;

/// Who calls.
#[derive(Clone)]
pub enum Caller {
    /// Nobody said.
    Nobody,
    /// Somebody with an admin key.
    Admin(Credential),
    /// Somebody with a tenant's key, or with a link to its portal.
    Tenant(Credential, TenantId),
}

/// What somebody calls with.
#[derive(Clone)]
pub enum Credential {
    /// The admin key that the configuration names.
    Configured,
    /// A key that is stored.
    Key(Arc<KnownKey>),
    /// A link to a tenant's portal.
    Link(PassId),
}

impl Caller {
    /// Refuses everybody but an admin.
    pub fn must_be_admin(&self) -> Result<(), Problem> {
        match self {
            Caller::Admin(_) => Ok(()),
            Caller::Tenant(..) => Err(Problem::forbidden()),
            Caller::Nobody => Err(Problem::unauthorized()),
        }
    }

    /// Refuses whoever came by a link: it is to end when it ends, so nothing lasting is made with it.
    pub fn must_hold_a_key(&self) -> Result<(), Problem> {
        match self {
            Caller::Admin(_) | Caller::Tenant(Credential::Configured | Credential::Key(_), _) => {
                Ok(())
            }
            Caller::Tenant(Credential::Link(_), _) => Err(Problem::new(
                Code::Forbidden,
                "A link to the portal cannot do this. It needs a key.",
            )),
            Caller::Nobody => Err(Problem::unauthorized()),
        }
    }
}

/// A key that was used lately.
pub struct KnownKey {
    pub(super) key: ApiKey,
    pub(super) meter: Meter,
}

/// A tenant that was used lately.
pub struct KnownTenant {
    /// The tenant.
    pub tenant: Tenant,
    pub(super) refusal: Refusal,
}

impl App {
    /// Finds out who calls.
    pub(crate) async fn authenticate(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        let key = bearer(headers).ok_or_else(Problem::unauthorized)?;
        self.holder_of(hash_key(key)).await
    }

    /// Finds out whose key has this hash.
    pub(crate) async fn holder_of(&self, hash: KeyHash) -> Result<Caller, Problem> {
        if let Some(meter) = self.admin_keys.get(&hash) {
            self.pace(meter)?;
            return Ok(Caller::Admin(Credential::Configured));
        }
        let known = match self.recall(&self.keys, &hash) {
            Ok(known) => known,
            Err(asked) => {
                let stored = self.store.key(hash).await?;
                let key = stored.ok_or_else(Problem::unauthorized)?;
                let known = Arc::new(KnownKey {
                    key,
                    meter: Meter::default(),
                });
                self.keys.put(asked, hash, known.clone());
                known
            }
        };
        self.pace(&known.meter)?;
        match &known.key.tenant {
            None => Ok(Caller::Admin(Credential::Key(known))),
            Some(tenant) => {
                let tenant = tenant.clone();
                Ok(Caller::Tenant(Credential::Key(known), tenant))
            }
        }
    }

    /// What is remembered, unless other nodes may have changed it unheard.
    fn recall<K: Hash + Eq + Clone, V: Clone>(
        &self,
        cache: &Cache<K, V>,
        key: &K,
    ) -> Result<V, Moment> {
        match self.switchboard.is_informed() {
            true => cache.find(key),
            false => Err(cache.moment()),
        }
    }

    fn pace(&self, meter: &Meter) -> Result<(), Problem> {
        let pace = self.settings.key_rate;
        let now = self.clock.now().tick;
        meter.spend(now, pace, 1).map_err(|wait| {
            let detail = format!(
                "This key may make {} requests a second, and {} at once. Wait as long as Retry-After says.",
                pace.per_second, pace.burst
            );
            Problem::new(Code::RateLimited, detail).after(wait)
        })
    }

    /// The tenant of this name, if this caller may see it.
    pub(super) async fn tenant_for(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<Arc<KnownTenant>, Problem> {
        let id = match caller {
            Caller::Nobody => return Err(Problem::unauthorized()),
            Caller::Admin(_) => name.parse().map_err(|_| Problem::missing(Noun::Tenant))?,
            Caller::Tenant(_, own) if own.as_str() == name => own.clone(),
            Caller::Tenant(..) => return Err(Problem::missing(Noun::Tenant)),
        };
        let asked = match self.recall(&self.tenants, &id) {
            Ok(known) => return Ok(known),
            Err(asked) => asked,
        };
        let stored = self.store.tenant(id.clone()).await?;
        let tenant = stored.ok_or_else(|| Problem::missing(Noun::Tenant))?;
        let known = Arc::new(KnownTenant {
            tenant,
            refusal: Refusal::default(),
        });
        self.tenants.put(asked, id, known.clone());
        Ok(known)
    }

    /// Forgets a tenant that was changed.
    pub fn forget_tenant(&self, tenant: &TenantId) {
        self.tenants.forget(|id, _| id == tenant);
    }

    /// Forgets what another node changed, or this one.
    pub fn heard(&self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Tenant(tenant) => {
                    self.forget_tenant(tenant);
                    // With a tenant that is deleted its keys are revoked.
                    self.forget_keys(|key| key.tenant.as_ref() == Some(tenant));
                }
                Change::Key(hash) => self.keys.forget(|known, _| known == hash),
                Change::Replay(_) => self.replay_bell.notify_one(),
                // Nothing is remembered of endpoints here.
                Change::Endpoint(_) => {}
            }
        }
    }

    /// Forgets what a tenant that is gone has done here and is not written down yet: a later one of the same id has
    /// nothing to do with it. One that was never changed may be that later one.
    pub async fn forget_figures_of(&self, tenant: TenantId) {
        let there = self.store.tenant(tenant.clone()).await;
        let is_another = |stored: Option<Tenant>| stored.is_none_or(|it| it.revision == 0);
        if there.is_ok_and(is_another) {
            self.observe.forget(&tenant);
        }
    }

    /// Forgets everything: changes may have been missed.
    pub fn forget_all(&self) {
        self.tenants.forget(|_, _| true);
        self.keys.forget(|_, _| true);
        self.replay_bell.notify_one();
    }

    /// Forgets the keys that `revoked` says yes to.
    pub fn forget_keys(&self, revoked: impl Fn(&ApiKey) -> bool) {
        self.keys.forget(|_, known| revoked(&known.key));
    }
}

/// What a tenant has done lately. It outlives changes of the tenant, or a change would give it all back.
pub(super) fn meter_of(meters: &Cache<TenantId, Arc<Meter>>, tenant: &TenantId) -> Arc<Meter> {
    match meters.find(tenant) {
        Ok(meter) => meter,
        Err(asked) => {
            let meter = Arc::new(Meter::default());
            meters.put(asked, tenant.clone(), meter.clone());
            meter
        }
    }
}

/// The key that a request names in its head.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    let key = key.trim();
    let fits = scheme.eq_ignore_ascii_case("bearer") && (1..=MAX_KEY_CHARS).contains(&key.len());
    fits.then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bearer_key_is_a_key() {
        let key = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().expect("a header"));
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(key("Bearer ph_x"), Some("ph_x".to_owned()));
        assert_eq!(key("bearer  ph_x "), Some("ph_x".to_owned()));
        let long = format!("Bearer {}", "x".repeat(MAX_KEY_CHARS + 1));
        for none in ["ph_x", "Basic ph_x", "Bearer ", "Bearer", &long] {
            assert_eq!(key(none), None, "{none}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
