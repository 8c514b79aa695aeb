//! Settings of the server's components, derived from a [`Config`].
//!
//! Each function makes the settings of one component: egress client, mail, API, vault. Files that the configuration
//! names are read here. [`Config::warnings`] lists settings that are valid, but risky or without effect.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use posthaste_api::hash_key;
use posthaste_api::settings::{ApiSettings, OwnerEmailSettings, RequestRate};
use posthaste_egress::{Proxy, Roots};
use posthaste_engine::vault::{KeySource, key_file_beside};
use posthaste_notify::notifications::mail::SmtpMailer;

use super::store::StoreLocation;
use super::types::{Config, MasterKeySource};

/// Maximum size of a certificate bundle. The complete public list is about 256 KiB.
const MAX_BUNDLE_BYTES: u64 = 16 << 20;

impl Config {
    /// Returns the source of the master keys, or `None` if the nodes share a key in their database. Call it
    /// before the database file is opened and thereby created: a key file is created only for a new database.
    pub fn key_source(&self) -> Option<KeySource> {
        match (&self.master_key, &self.store) {
            (MasterKeySource::Text { text, origin }, _) => Some(KeySource::Text {
                text: text.reveal().to_owned(),
                origin: origin.clone(),
            }),
            (MasterKeySource::File(path), StoreLocation::Sqlite(database)) => {
                Some(KeySource::for_database(path.clone(), database))
            }
            // Any node may start first. If the first one created a key file, the other nodes would lack it.
            (MasterKeySource::File(path), StoreLocation::Postgres(_)) => Some(KeySource::File {
                path: path.clone(),
                may_create: false,
            }),
            (MasterKeySource::BesideStore, StoreLocation::Sqlite(database)) => {
                let beside = key_file_beside(database);
                Some(KeySource::for_database(beside, database))
            }
            (MasterKeySource::BesideStore, StoreLocation::Postgres(_)) => None,
        }
    }

    /// Returns the trusted certificate authorities: the public ones and those of the bundle.
    pub fn roots(&self) -> Result<Roots, String> {
        match &self.ca_bundle {
            Some(path) => read_bundle(path),
            None => Ok(Roots::mozilla()),
        }
    }

    /// Returns the client that sends emails, if an SMTP server is set. Emails link to the dashboard, if that
    /// is enabled.
    pub fn mailer(&self) -> Result<Option<SmtpMailer>, String> {
        let dashboard = &self.dashboard;
        let url = dashboard.public_url.clone().filter(|_| dashboard.enabled);
        Ok(self.mail.mailer(url, self.roots()?))
    }

    /// Returns the proxy for all outbound requests.
    pub fn proxy(&self) -> Option<Proxy> {
        let proxy = self.egress_proxy.clone();
        proxy.map(|proxy| proxy.resolving(self.egress_proxy_resolves))
    }

    /// Returns the settings of the API.
    pub fn api_settings(&self) -> ApiSettings {
        let limits = &self.limits;
        let admin_key = self.admin_key.iter();
        ApiSettings {
            body_bytes: limits.body_bytes.into(),
            batch_bytes: limits.batch_body_bytes.into(),
            head_timeout: Duration::from_millis(limits.header_read_time.as_millis()),
            write_timeout: Duration::from_millis(limits.write_time.as_millis()),
            idle_timeout: Duration::from_millis(limits.idle_time.as_millis()),
            max_connections: limits.connections as usize,
            max_connections_per_peer: limits.connections_per_peer.map(|count| count as usize),
            body_memory_bytes: limits.body_memory_bytes.into(),
            tenant_body_memory_bytes: limits.tenant_body_memory_bytes.map(u64::from),
            grace: Duration::from_millis(self.grace.as_millis()),
            key_rate: RequestRate {
                per_second: limits.requests_per_second,
                burst: limits.request_burst,
            },
            admin_keys: admin_key.map(|key| hash_key(key.reveal())).collect(),
            trusted_proxies: self.trusted_proxies.clone(),
            egress_rules: self.egress.clone(),
            public_url: self.dashboard.public_url.clone(),
            plans: Arc::new(self.plans()),
            sends_emails: self.mail.server.is_some(),
            owner_emails: OwnerEmailSettings {
                allowed_domains: self.mail.allowed_domains.clone(),
                limits: self.mail.tenant_limits,
                // Decided when the node knows its address.
                sends_confirmations: false,
            },
            endpoint_defaults: self.endpoint_defaults.limits(),
            alerts: self.alerts.clone(),
            default_policy: (self.retry_policy.clone(), self.retry_policy_written.clone()),
            ..ApiSettings::default()
        }
    }

    /// Returns warnings to log at the start: settings that are valid, but risky or without effect.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.unknown_variables.clone();
        if self.egress_proxy_resolves {
            warnings.push(match &self.egress_proxy {
                Some(proxy) => format!(
                    "host names are resolved by {proxy}, so posthaste does not check their addresses: make sure that the proxy refuses private addresses"
                ),
                None => "egress_proxy_resolves has no effect without egress_proxy".to_owned(),
            });
        }
        warnings.extend(self.mail.warning());
        if self.mail.server.is_some() && self.dashboard.public_url.is_none() {
            warnings.push(
                "mail.server is set without public_url: confirmation links for owner_email do not work outside this machine"
                    .to_owned(),
            );
        }
        if !self.listen.ip().is_loopback() {
            warnings.push(format!(
                "listening on {} without TLS: use a reverse proxy with TLS in front of it",
                self.listen
            ));
        }
        warnings
    }
}

/// Reads the public certificate authorities and those of a bundle.
pub(super) fn read_bundle(path: &Path) -> Result<Roots, String> {
    let name = path.display();
    let unreadable = |error| format!("cannot read {name}: {error}");
    let length_bytes = fs::metadata(path).map_err(unreadable)?.len();
    if length_bytes > MAX_BUNDLE_BYTES {
        return Err(format!("{name} is too large for a bundle of certificates"));
    }
    let pem = fs::read(path).map_err(unreadable)?;
    Roots::mozilla()
        .with_bundle(&pem)
        .map_err(|error| format!("{name}: {error}"))
}
