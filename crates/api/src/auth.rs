//! Authentication and authorization of callers.
//!
//! Keys are random and shown once; the server stores and compares only their SHA-256. An admin key has access
//! to everything. A tenant's key has access to its tenant only: for it, nothing else exists. A portal link
//! has the same access, except for routes that need a key: API keys, more links, changes of the tenant itself, new
//! events and the audit log. Changes made with a link, for example of an endpoint, stay when the link has expired.
//! Keys and tenants are cached, so that a typical request needs no store read.
//!
//! Failed authentications are limited per client address before the key is looked at (`failed_authentications`). Stored
//! keys that are in the cache pass without that limit: they have 256 random bits, so an attacker gains nothing from a
//! faster answer. The configured admin key does not pass, because a person may have chosen it: while a peer's limit is
//! used up, the answer to this peer is the same for a right guess and a wrong one.

use std::hash::Hash;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use posthaste_core::id::{SessionId, TenantId};
use posthaste_store::{ApiKey, Change, KeyHash, StoreError, Tenant};

use super::App;
use super::body_budget::{BodyReservation, TenantBudget};
use super::cache::{Cache, Generation};
use super::code::Code;
use super::failed_authentications::Denied;
use super::problem::{Problem, ResourceKind};
use super::quota_rejection::LastRejection;
use super::rate_limit::RateLimiter;
use super::request_source::RequestSource;
use super::settings::RequestRate;
use super::tenant_rates::TenantRates;
use crate::hash_key;

/// Log target of this module.
const LOG_TARGET: &str = "posthaste::api::auth";

/// Maximum length of a key.
const MAX_KEY_CHARS: usize = 256;
/// Capacity of the cache of keys.
pub(super) const MAX_KNOWN_KEYS: usize = 10_000;
/// Capacity of the cache of tenants.
pub(super) const MAX_KNOWN_TENANTS: usize = 10_000;
/// Rate limit of log lines about failed authentications, so that callers cannot fill the log.
const FAILURE_LOG_RATE: RequestRate = RequestRate {
    per_second: 1,
    burst: 10,
};

/// The caller of a request.
#[derive(Clone)]
pub enum Caller {
    /// An unauthenticated caller.
    Anonymous,
    /// A caller with an admin key.
    Admin(Credential),
    /// A caller with a tenant's key, or with a link to its portal.
    Tenant(Credential, TenantId),
}

/// The credential of a caller.
#[derive(Clone)]
pub enum Credential {
    /// The admin key of the configuration.
    Configured,
    /// A stored key.
    Key(Arc<CachedKey>),
    /// A link to a tenant's portal.
    Link(SessionId),
}

impl Caller {
    /// Refuses all callers without an admin key.
    pub fn must_be_admin(&self) -> Result<(), Problem> {
        match self {
            Caller::Admin(_) => Ok(()),
            Caller::Tenant(..) => Err(Problem::forbidden()),
            Caller::Anonymous => Err(Problem::unauthorized()),
        }
    }

    /// Refuses portal links, for routes that need a key. A link must not create keys or more links, so that access by
    /// it ends when it expires.
    pub fn must_have_key(&self) -> Result<(), Problem> {
        match self {
            Caller::Admin(_) | Caller::Tenant(Credential::Configured | Credential::Key(_), _) => {
                Ok(())
            }
            Caller::Tenant(Credential::Link(_), _) => Err(Problem::new(
                Code::Forbidden,
                "A portal link does not allow this request. Use an API key.",
            )),
            Caller::Anonymous => Err(Problem::unauthorized()),
        }
    }
}

/// A cached key.
pub struct CachedKey {
    pub(super) key: ApiKey,
    pub(super) limiter: RateLimiter,
}

/// A cached tenant.
pub struct CachedTenant {
    /// The tenant.
    pub tenant: Tenant,
    pub(super) last_rejection: LastRejection,
    /// The rates that this node enforces. They outlive changes of the tenant.
    pub(super) rates: Arc<TenantRates>,
    pub(super) body_budget: TenantBudget,
}

impl App {
    /// Authenticates a request by its key.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        source: &RequestSource,
    ) -> Result<Caller, Problem> {
        let key = bearer(headers).ok_or_else(Problem::unauthorized)?;
        self.authenticate_key(hash_key(key), source).await
    }

    /// Authenticates a caller by the key with this hash. Refuses a peer that has sent too many wrong keys before the
    /// key is looked at.
    pub async fn authenticate_key(
        &self,
        hash: KeyHash,
        source: &RequestSource,
    ) -> Result<Caller, Problem> {
        // Without failures no peer is refused, so a valid configured key needs no entry in the table.
        let failures = &self.failed_authentications;
        let is_configured = failures.is_empty() && self.admin_keys.contains_key(&hash);
        if is_configured || self.keys.find(&hash).is_ok() {
            return self.caller_with_key(hash).await;
        }
        let now = self.clock.now().tick;
        let check = match failures.begin(now, source.from, hash).await {
            Ok(check) => check,
            Err(Denied::KnownWrong) => {
                self.metrics.authentications.failed();
                return Err(Problem::unknown_key());
            }
            Err(Denied::TooMany(wait)) => {
                self.metrics.authentications.refused();
                if self.may_log_failure() {
                    let from = source.from.map(|address| address.to_string());
                    tracing::warn!(target: LOG_TARGET, from, via = ?source.via, "rejecting keys from an address that sent too many wrong keys");
                }
                let detail = "Too many wrong keys from your address. Check the key, and retry after the time in Retry-After.";
                return Err(Problem::new(Code::RateLimited, detail).after(wait));
            }
        };
        let result = self.caller_with_key(hash).await;
        match &result {
            Err(problem) if problem.code == Code::Unauthorized => {
                drop(check);
                self.metrics.authentications.failed();
                if self.may_log_failure() {
                    let from = source.from.map(|address| address.to_string());
                    tracing::warn!(target: LOG_TARGET, from, via = ?source.via, "unknown or revoked key");
                }
            }
            // Other errors say nothing about the key.
            Ok(_) | Err(_) => check.succeeded(),
        }
        result
    }

    fn may_log_failure(&self) -> bool {
        let now = self.clock.now().tick;
        self.failure_log_limiter
            .spend(now, FAILURE_LOG_RATE, 1)
            .is_ok()
    }

    /// Returns the caller that has the key with this hash. Does not count failures: for callers that have
    /// authenticated before.
    pub async fn caller_with_key(&self, hash: KeyHash) -> Result<Caller, Problem> {
        if let Some(limiter) = self.admin_keys.get(&hash) {
            self.check_rate(limiter)?;
            return Ok(Caller::Admin(Credential::Configured));
        }
        let known = match self.cached(&self.keys, &hash) {
            Ok(known) => known,
            Err(generation) => {
                let stored = self.store.key(hash).await?;
                let key = stored.ok_or_else(Problem::unknown_key)?;
                let known = Arc::new(CachedKey {
                    key,
                    limiter: RateLimiter::default(),
                });
                self.keys.put(generation, hash, known.clone());
                known
            }
        };
        self.check_rate(&known.limiter)?;
        match &known.key.tenant {
            None => Ok(Caller::Admin(Credential::Key(known))),
            Some(tenant) => {
                let tenant = tenant.clone();
                Ok(Caller::Tenant(Credential::Key(known), tenant))
            }
        }
    }

    /// Returns the cached value, unless this node may have missed changes by other nodes.
    fn cached<K: Hash + Eq + Clone, V: Clone>(
        &self,
        cache: &Cache<K, V>,
        key: &K,
    ) -> Result<V, Generation> {
        match self.owner_router.is_up_to_date() {
            true => cache.find(key),
            false => Err(cache.generation()),
        }
    }

    fn check_rate(&self, limiter: &RateLimiter) -> Result<(), Problem> {
        let limit = self.settings.key_rate;
        let now = self.clock.now().tick;
        limiter.spend(now, limit, 1).map_err(|wait| {
            let detail = format!(
                "This key may make {} requests per second, with bursts of up to {}. Retry after the time in Retry-After.",
                limit.per_second, limit.burst
            );
            Problem::new(Code::RateLimited, detail).after(wait)
        })
    }

    /// Returns the tenant with this id, if the caller has access to it.
    pub(super) async fn tenant_for(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<Arc<CachedTenant>, Problem> {
        let id = match caller {
            Caller::Anonymous => return Err(Problem::unauthorized()),
            Caller::Admin(_) => name
                .parse()
                .map_err(|_| Problem::missing(ResourceKind::Tenant))?,
            Caller::Tenant(_, own) if own.as_str() == name => own.clone(),
            Caller::Tenant(..) => return Err(Problem::missing(ResourceKind::Tenant)),
        };
        let found = self.find_tenant(&id).await?;
        found.ok_or_else(|| Problem::missing(ResourceKind::Tenant))
    }

    /// Returns the tenant with this id, if there is one. For callers with access to every tenant.
    pub async fn find_tenant(
        &self,
        id: &TenantId,
    ) -> Result<Option<Arc<CachedTenant>>, StoreError> {
        let generation = match self.cached(&self.tenants, id) {
            Ok(known) => return Ok(Some(known)),
            Err(generation) => generation,
        };
        let stored = self.store.tenant(id.clone()).await?;
        let Some(tenant) = stored else {
            return Ok(None);
        };
        let known = Arc::new(CachedTenant {
            body_budget: self.body_budget.of_tenant(&tenant.id),
            tenant,
            last_rejection: LastRejection::default(),
            rates: self.rates_of(id),
        });
        self.tenants.put(generation, id.clone(), known.clone());
        Ok(Some(known))
    }

    /// Returns an empty reservation for a body of this caller.
    pub fn body_reservation(&self, caller: &Caller) -> BodyReservation {
        match caller {
            Caller::Anonymous | Caller::Admin(_) => self.body_budget.reservation(None),
            Caller::Tenant(_, tenant) => {
                let budget = self.body_budget.of_tenant(tenant);
                self.body_budget.reservation(Some(&budget))
            }
        }
    }

    /// Removes a changed tenant from the cache.
    pub fn forget_tenant(&self, tenant: &TenantId) {
        self.tenants.forget(|id, _| id == tenant);
    }

    /// Removes changed tenants and keys from the caches. Called for changes by this node and by others.
    pub fn invalidate(&self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Tenant(tenant) => {
                    self.forget_tenant(tenant);
                    // Deleting a tenant revokes its keys.
                    self.forget_keys(|key| key.tenant.as_ref() == Some(tenant));
                }
                Change::Key(hash) => self.keys.forget(|known, _| known == hash),
                Change::Replay(_) => self.replay_wakeup.notify_one(),
                // Endpoints are not cached here.
                Change::Endpoint(_) => {}
            }
        }
    }

    /// Clears the caches, because changes may have been missed.
    pub fn forget_all(&self) {
        self.tenants.forget(|_, _| true);
        self.keys.forget(|_, _| true);
        self.replay_wakeup.notify_one();
    }

    /// Removes the keys that `revoked` matches from the cache.
    pub fn forget_keys(&self, revoked: impl Fn(&ApiKey) -> bool) {
        self.keys.forget(|_, known| revoked(&known.key));
    }
}

/// Returns the rate-limit state of a tenant. It is not part of the cached tenant, because every change of the
/// tenant would reset it.
pub(super) fn limiter_of(
    limiters: &Cache<TenantId, Arc<RateLimiter>>,
    tenant: &TenantId,
) -> Arc<RateLimiter> {
    match limiters.find(tenant) {
        Ok(limiter) => limiter,
        Err(generation) => {
            let limiter = Arc::new(RateLimiter::default());
            limiters.put(generation, tenant.clone(), limiter.clone());
            limiter
        }
    }
}

/// Returns the bearer key of a request.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
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
    fn only_bearer_keys_are_accepted() {
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
