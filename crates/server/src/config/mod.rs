//! Configuration of the server.
//!
//! [`Config::load`] builds a [`Config`] from four sources. From weakest to strongest: the default, the
//! configuration file, the environment variable, the flag. `limits.body_bytes` is also
//! `POSTHASTE_LIMITS_BODY_BYTES` and `--set limits.body_bytes=…`. Frequently used settings have a flag of
//! their own, such as `--listen`. Guarantees:
//!
//! - All errors are reported at once ([`ConfigError`]), each with its line, variable or flag and the accepted
//!   values. This includes values that a stronger source overrides.
//! - An unknown key or flag is an error, so that a misspelt setting is never ignored silently. An unknown
//!   variable is only a warning, because other programs may use the same prefix.
//! - No message and no `Debug` output shows a key ([`Secret`](posthaste_core::secret::Secret)).
//!
//! `config.default.toml` lists and explains every setting with its default.

mod alerts;
mod components;
mod dashboard;
mod endpoint_defaults;
mod error;
mod fields;
mod file;
mod layer;
mod load;
mod mail;
mod metrics;
mod notifications;
mod otlp;
mod outboxes;
mod plans;
mod read;
mod role;
mod settings;
mod sources;
mod store;
pub(crate) mod toml_source;
mod types;

pub use endpoint_defaults::EndpointDefaults;
pub use error::{ConfigError, InvalidSetting};
pub use metrics::MetricSettings;
pub use outboxes::OutboxConfig;
pub use role::Role;
pub use settings::{SETTINGS, Setting, ValueKind};
pub use sources::Flags;
pub use store::{DatabaseUrl, StoreLocation};
pub use types::{Config, EngineSettings, MasterKeySource, RequestLimits, TenantLimits};
