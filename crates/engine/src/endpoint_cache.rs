//! Endpoint cache: the configuration that attempts need of each endpoint, in memory.
//!
//! [`EndpointLoader`] loads an [`EndpointConfig`] from the endpoint's row when the dispatcher asks for it, and again
//! when the endpoint changes. [`EndpointCache`] holds at most [`MAX_CACHED_ENDPOINTS`] of them. At most one read per
//! endpoint is in progress; a change during a read causes another read, so that the cached value is always the one
//! that was read last.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use posthaste_core::address::{Destination, EgressRules};
use posthaste_core::delivery::OneOffRequest;
use posthaste_core::dispatcher::EndpointSnapshot;
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::lane::{EndpointLimits, LaneSettings, Protection};
use posthaste_core::sign::SignatureStyle;
use posthaste_core::time::{Span, Tick};
use posthaste_egress::{ClientIdentity, PoolKey};
use posthaste_store::{EndpointRow, Store, StoreError, StoreSettings};
use rustc_hash::FxHashMap;

use super::tokens::Grant;
use crate::credentials::{Auth, Credentials, CredentialsFingerprint, basic, bearer};
use crate::signing_keys::SigningKeyring;
use crate::tenant_keys::TenantKeys;
use crate::vault::{Purpose, Vault};

/// Maximum number of cached endpoints. The dispatcher asks again for an evicted one.
pub(super) const MAX_CACHED_ENDPOINTS: usize = 16_384;

/// Reason of [`EndpointConfigError::Forbidden`] for the URL of an endpoint or a one-off request.
const NOT_ALLOWED: &str = "destination not allowed";

/// Configuration of one endpoint, as attempts need it.
pub(super) struct EndpointConfig {
    pub(super) tenant: TenantId,
    pub(super) url: String,
    pub(super) pool_key: PoolKey,
    pub(super) time_limit: Duration,
    /// Everything the request needs, or the reason why nothing can be sent.
    pub(super) request: Result<RequestConfig, EndpointConfigError>,
}

/// The parts of a request that are the same for every attempt.
pub(super) struct RequestConfig {
    pub(super) destination: Destination,
    /// The endpoint's custom headers, and `Authorization` if it is constant.
    pub(super) headers: HeaderMap,
    pub(super) keyring: SigningKeyring,
    pub(super) style: SignatureStyle,
    /// Client certificate for mutual TLS, if the endpoint has one.
    pub(super) identity: Option<ClientIdentity>,
    /// OAuth client-credentials grant for the `Authorization` header, if the endpoint uses one.
    pub(super) grant: Option<Arc<Grant>>,
    /// Decrypts the custom headers of one-off requests; `None` for an endpoint that gets events.
    pub(super) header_vault: Option<Vault>,
    /// Fingerprint of the credentials, if there are any.
    fingerprint: Option<CredentialsFingerprint>,
}

impl EndpointConfig {
    /// Returns true if requests of both configurations look the same to the receiver, so that they may share
    /// connections and tokens.
    pub(super) fn looks_same_to_receiver(&self, other: &EndpointConfig) -> bool {
        let fingerprint = |config: &EndpointConfig| config.request.as_ref().ok()?.fingerprint;
        self.url == other.url && fingerprint(self) == fingerprint(other)
    }
}

/// Reason why nothing can be sent to an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EndpointConfigError {
    /// The operator's rules no longer allow the endpoint's URL or its token URL. Counts as a failure of the endpoint;
    /// the text describes it.
    Forbidden(&'static str),
    /// The endpoint's secrets cannot be decrypted. An internal error of posthaste.
    Sealed(String),
}

/// The result of reading an endpoint from the store.
pub(super) struct LoadedEndpoint {
    pub(super) endpoint: EndpointId,
    /// `None` if there is no such endpoint.
    pub(super) found: Option<(EndpointSnapshot, Arc<EndpointConfig>)>,
}

/// Loads endpoint configurations. Holds what is the same for every endpoint.
pub(super) struct EndpointLoader {
    pub(super) store_settings: StoreSettings,
    pub(super) endpoint_defaults: EndpointLimits,
    pub(super) protection: Protection,
    pub(super) retry_after_cap: Span,
    pub(super) rules: EgressRules,
    pub(super) vault: Arc<Vault>,
}

impl EndpointLoader {
    /// Reads an endpoint and the settings that it inherits from its tenant.
    pub(super) async fn load(
        &self,
        store: &dyn Store,
        endpoint: EndpointId,
    ) -> Result<LoadedEndpoint, StoreError> {
        let Some(row) = store.endpoint(endpoint).await? else {
            return Ok(LoadedEndpoint {
                endpoint,
                found: None,
            });
        };
        let tenant = store.tenant(row.endpoint.tenant.clone()).await?;
        let plans = &self.store_settings.plans;
        let limits = tenant.as_ref().map(|tenant| plans.limits_of(tenant));
        let limits = limits.unwrap_or_default();
        let (inherited, defaults, protection, tenant_keys) = match tenant {
            Some(tenant) => (
                tenant.default_retry_policy,
                tenant.endpoint_defaults,
                tenant.protection,
                tenant.sealed_keys,
            ),
            None => Default::default(),
        };
        let in_force =
            EndpointLimits::resolve(&row.endpoint.limits, &defaults, &self.endpoint_defaults);
        let protection =
            Protection::resolve(&row.endpoint.protection, &protection, &self.protection);
        let policy = self
            .store_settings
            .policy_for(row.endpoint.retry_policy.as_ref(), inherited.as_ref());
        let policy = limits.bound(policy);
        let snapshot = EndpointSnapshot {
            endpoint,
            tenant: row.endpoint.tenant.clone(),
            settings: Arc::new(LaneSettings {
                policy,
                retry_after_cap: self.retry_after_cap,
                max_in_flight: in_force.max_in_flight,
                tenant_in_flight: limits.in_flight,
                rate: in_force.rate_limit,
                ordered: row.endpoint.ordered,
                breaker: protection.breaker,
                disable: protection.disable,
            }),
            status: row.status,
            health: row.health.clone(),
            owned_since: Tick::START,
        };
        let config = Arc::new(self.config(&row, in_force.timeout, &tenant_keys));
        Ok(LoadedEndpoint {
            endpoint,
            found: Some((snapshot, config)),
        })
    }

    fn config(&self, row: &EndpointRow, timeout: Span, tenant_keys: &[u8]) -> EndpointConfig {
        let endpoint = &row.endpoint;
        let request = match endpoint.is_origin {
            true => self.one_off_request(row, tenant_keys),
            false => self.request(row),
        };
        // The pool key contains the URL and the credentials. A connection that was opened for another URL or with other
        // credentials is therefore never reused, not even one that was in use at the time of the change and is returned
        // to the pool later.
        let mut digest = DefaultHasher::new();
        endpoint.url.hash(&mut digest);
        let (id, url) = (endpoint.id, digest.finish());
        let pool_key = match request
            .as_ref()
            .ok()
            .and_then(|request| request.fingerprint)
        {
            Some(fingerprint) => format!("{id}/{url:016x}/{fingerprint}"),
            None => format!("{id}/{url:016x}"),
        };
        EndpointConfig {
            tenant: endpoint.tenant.clone(),
            url: endpoint.url.clone(),
            pool_key: PoolKey::new(&pool_key),
            time_limit: Duration::from_millis(timeout.as_millis()),
            request,
        }
    }

    fn request(&self, row: &EndpointRow) -> Result<RequestConfig, EndpointConfigError> {
        let endpoint = &row.endpoint;
        let destination = self.allowed(&endpoint.url, NOT_ALLOWED)?;
        let open = |purpose, sealed: &[u8]| {
            self.vault
                .open(&endpoint.tenant, endpoint.id, purpose, sealed)
                .map_err(|error| EndpointConfigError::Sealed(error.to_string()))
        };
        let headers = open(Purpose::Headers, &endpoint.sealed_headers)?;
        let keys = open(Purpose::SigningKeys, &endpoint.sealed_keys)?;
        let keyring = SigningKeyring::open(&keys)
            .map_err(|error| EndpointConfigError::Sealed(error.to_string()))?;
        let credentials = match endpoint.sealed_credentials.as_slice() {
            [] => Credentials::default(),
            sealed => Credentials::open(&open(Purpose::Credentials, sealed)?)
                .map_err(|error| EndpointConfigError::Sealed(error.to_string()))?,
        };
        let fingerprint = (!credentials.is_empty()).then(|| credentials.fingerprint());
        let mut request = RequestConfig {
            destination,
            headers: header_map(&headers)?,
            keyring,
            style: endpoint.signature_style,
            identity: identity(&credentials)?,
            grant: None,
            header_vault: None,
            fingerprint,
        };
        if let Some((auth, fingerprint)) = credentials.auth.zip(fingerprint) {
            self.authorize(&mut request, endpoint.id, fingerprint, &auth)?;
        }
        Ok(request)
    }

    /// Returns what the one-off requests of a tenant to one origin have in common.
    fn one_off_request(
        &self,
        row: &EndpointRow,
        tenant_keys: &[u8],
    ) -> Result<RequestConfig, EndpointConfigError> {
        let endpoint = &row.endpoint;
        let keys = TenantKeys::open(&self.vault, &endpoint.tenant, tenant_keys)
            .map_err(|error| EndpointConfigError::Sealed(error.to_string()))?;
        Ok(RequestConfig {
            destination: self.allowed(&endpoint.url, NOT_ALLOWED)?,
            headers: HeaderMap::new(),
            header_vault: Some(keys.header_vault().clone()),
            keyring: keys.keyring,
            style: endpoint.signature_style,
            identity: None,
            grant: None,
            fingerprint: None,
        })
    }

    /// Returns the destination and the custom headers of a one-off request.
    pub(super) fn one_off_target(
        &self,
        config: &RequestConfig,
        tenant: &TenantId,
        endpoint: EndpointId,
        request: &OneOffRequest,
    ) -> Result<(Destination, HeaderMap), EndpointConfigError> {
        let destination = self.allowed(&request.url, NOT_ALLOWED)?;
        let headers = match (&config.header_vault, request.sealed_headers.as_slice()) {
            (_, []) => HeaderMap::new(),
            (Some(vault), sealed) => {
                let opened = vault.open(tenant, endpoint, Purpose::Headers, sealed);
                header_map(
                    &opened.map_err(|error| EndpointConfigError::Sealed(error.to_string()))?,
                )?
            }
            (None, _) => {
                let error = "its endpoint does not belong to an origin";
                return Err(EndpointConfigError::Sealed(error.to_owned()));
            }
        };
        Ok((destination, headers))
    }

    fn authorize(
        &self,
        request: &mut RequestConfig,
        endpoint: EndpointId,
        fingerprint: CredentialsFingerprint,
        auth: &Auth,
    ) -> Result<(), EndpointConfigError> {
        match auth {
            Auth::Basic { username, password } => {
                let value = basic(username, password);
                request.headers.insert(AUTHORIZATION, value);
            }
            Auth::Bearer { token } => {
                let invalid = || {
                    EndpointConfigError::Sealed("its token is not a valid header value".to_owned())
                };
                let value = bearer(token).ok_or_else(invalid)?;
                request.headers.insert(AUTHORIZATION, value);
            }
            Auth::OAuth2(oauth2) => {
                let forbidden = "no access token: the token URL is not allowed";
                let destination = self.allowed(&oauth2.token_url, forbidden)?;
                let grant = Grant::new(endpoint, fingerprint, oauth2, destination);
                request.grant = Some(Arc::new(grant));
            }
        }
        Ok(())
    }

    fn allowed(&self, url: &str, reason: &'static str) -> Result<Destination, EndpointConfigError> {
        Destination::parse(url, &self.rules).map_err(|_| EndpointConfigError::Forbidden(reason))
    }
}

fn identity(credentials: &Credentials) -> Result<Option<ClientIdentity>, EndpointConfigError> {
    let certificate = credentials.client_certificate.as_ref();
    let identity = certificate.map(|certificate| certificate.identity());
    // The error text was written for the tenant and quotes no part of the certificate or key.
    identity
        .transpose()
        .map_err(|error| EndpointConfigError::Sealed(format!("its client certificate {error}")))
}

/// Builds the custom headers. They are encrypted as a JSON object of names and values.
fn header_map(json: &[u8]) -> Result<HeaderMap, EndpointConfigError> {
    let unreadable =
        || EndpointConfigError::Sealed("its encrypted custom headers cannot be decoded".to_owned());
    let headers: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(json).map_err(|_| unreadable())?;
    let mut map = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unreadable())?;
        let value = value.as_str().ok_or_else(unreadable)?;
        let mut value = HeaderValue::from_str(value).map_err(|_| unreadable())?;
        value.set_sensitive(true);
        map.append(name, value);
    }
    Ok(map)
}

/// Cached endpoint configurations.
#[derive(Default)]
pub(super) struct EndpointCache {
    entries: FxHashMap<EndpointId, Entry>,
}

#[derive(Default)]
struct Entry {
    config: Option<Arc<EndpointConfig>>,
    /// A read is in progress.
    is_loading: bool,
    /// The read in progress may be outdated and must be repeated.
    must_reload: bool,
}

impl EndpointCache {
    /// Returns the cached configuration of an endpoint.
    pub(super) fn get(&self, endpoint: EndpointId) -> Option<Arc<EndpointConfig>> {
        self.entries.get(&endpoint)?.config.clone()
    }

    /// Returns the cached configuration of an endpoint, unless a new read is in progress. The change may replace a
    /// leaked secret or a wrong URL, and the caller who made it already has the answer that it is in force.
    pub(super) fn current(&self, endpoint: EndpointId) -> Option<Arc<EndpointConfig>> {
        let entry = self.entries.get(&endpoint)?;
        entry.config.clone().filter(|_| !entry.is_loading)
    }

    /// Requests a read of an endpoint. Returns true if the caller must start it. Otherwise a read is in progress, and
    /// another one will follow it.
    pub(super) fn begin_load(&mut self, endpoint: EndpointId) -> bool {
        let entry = self.entries.entry(endpoint).or_default();
        entry.must_reload = entry.is_loading;
        !std::mem::replace(&mut entry.is_loading, true)
    }

    /// Marks a read in progress as possibly outdated, so that another read follows it.
    pub(super) fn mark_load_stale(&mut self, endpoint: EndpointId) {
        if let Some(entry) = self.entries.get_mut(&endpoint) {
            entry.must_reload = entry.is_loading;
        }
    }

    /// Stores the result of a read. Returns true if the caller must read again.
    pub(super) fn end_load(
        &mut self,
        endpoint: EndpointId,
        config: Option<Arc<EndpointConfig>>,
    ) -> bool {
        let entry = self.entries.entry(endpoint).or_default();
        if std::mem::take(&mut entry.must_reload) {
            return true;
        }
        entry.is_loading = false;
        if config.is_some() {
            entry.config = config;
        } else {
            self.entries.remove(&endpoint);
        }
        self.evict(endpoint);
        false
    }

    /// Removes endpoints that this node no longer owns. The result of a read in progress is discarded too.
    pub(super) fn forget_where(&mut self, is_gone: impl Fn(EndpointId) -> bool) {
        self.entries.retain(|endpoint, entry| {
            if !is_gone(*endpoint) {
                return true;
            }
            entry.config = None;
            entry.must_reload = entry.is_loading;
            entry.is_loading
        });
    }

    /// Ends a read whose result is not needed.
    pub(super) fn discard_load(&mut self, endpoint: EndpointId) {
        self.entries.remove(&endpoint);
    }

    /// Returns every endpoint that is cached or being read.
    pub(super) fn all(&self) -> Vec<EndpointId> {
        self.entries.keys().copied().collect()
    }

    /// Returns the tenant's cached endpoints, and all endpoints that are being read for the first time, which may
    /// belong to the tenant.
    pub(super) fn of_tenant(&self, tenant: &TenantId) -> Vec<EndpointId> {
        let is_of_tenant = |entry: &Entry| {
            let config = entry.config.as_ref();
            config.map_or(entry.is_loading, |config| config.tenant == *tenant)
        };
        let found = self.entries.iter().filter(|(_, entry)| is_of_tenant(entry));
        found.map(|(endpoint, _)| *endpoint).collect()
    }

    /// Returns true if the endpoint is cached or being read.
    pub(super) fn contains(&self, endpoint: EndpointId) -> bool {
        self.entries.contains_key(&endpoint)
    }

    fn evict(&mut self, kept: EndpointId) {
        if self.entries.len() > MAX_CACHED_ENDPOINTS {
            // Evicts the first idle entry. The order of the map is as good as random, and an evicted configuration can
            // be read again.
            let idle =
                |(endpoint, entry): &(&EndpointId, &Entry)| **endpoint != kept && !entry.is_loading;
            let victim = self
                .entries
                .iter()
                .find(idle)
                .map(|(endpoint, _)| *endpoint);
            if let Some(victim) = victim {
                self.entries.remove(&victim);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDPOINT: EndpointId = EndpointId(1);

    fn config(url: &str) -> Arc<EndpointConfig> {
        Arc::new(EndpointConfig {
            tenant: "acme".parse().expect("a valid tenant id"),
            url: url.to_owned(),
            pool_key: PoolKey::new("one"),
            time_limit: Duration::from_secs(1),
            request: Err(EndpointConfigError::Forbidden("for the test")),
        })
    }

    #[test]
    fn a_configuration_that_is_being_read_again_is_not_used() {
        let mut cache = EndpointCache::default();
        let url = |config: Option<Arc<EndpointConfig>>| config.map(|config| config.url.clone());
        assert!(cache.begin_load(ENDPOINT));
        assert!(!cache.end_load(ENDPOINT, Some(config("old"))));
        assert_eq!(url(cache.current(ENDPOINT)), Some("old".to_owned()));
        assert!(cache.begin_load(ENDPOINT));
        assert_eq!(url(cache.current(ENDPOINT)), None);
        // The tenant stays known.
        assert_eq!(url(cache.get(ENDPOINT)), Some("old".to_owned()));
        assert!(!cache.end_load(ENDPOINT, Some(config("new"))));
        assert_eq!(url(cache.current(ENDPOINT)), Some("new".to_owned()));
    }
}
