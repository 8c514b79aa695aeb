//! Loads a [`Config`] from its sources, and checks that its settings fit together.
//!
//! The sources are read from the weakest to the strongest. Errors of all of them are reported together; what a single
//! value cannot show, such as a limit above another one, is checked at the end.

use std::ffi::OsString;

use super::error::ConfigError;
use super::file;
use super::role::Role;
use super::sources::{self, Flags};
use super::store::StoreLocation;
use super::types::Config;

impl Config {
    /// Loads the configuration from the file, the environment and the flags. Reports all errors at once.
    pub fn load(
        flags: impl Into<Flags>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Config, ConfigError> {
        let flags = flags.into();
        let mut error = ConfigError::default();
        let environment = sources::environment(environment, &mut error);
        let flag_layer = sources::flags(&flags, &mut error);
        let file = match (&flags.config, environment.file) {
            (Some(path), _) => file::layer(path, "--config", &mut error),
            (None, Some(path)) => file::layer(&path, "POSTHASTE_CONFIG", &mut error),
            (None, None) => None,
        };
        let mut config = Config {
            unknown_variables: environment.unknown,
            ..Config::default()
        };
        for layer in file.iter().chain([&environment.layer, &flag_layer]) {
            layer.apply(&mut config, &mut error);
        }
        config.check_consistency(&mut error);
        error.into_result(config)
    }

    /// Reports settings that are valid alone and contradict each other.
    fn check_consistency(&self, error: &mut ConfigError) {
        let (first, longest) = (self.breaker.first_wait, self.breaker.longest_wait);
        if first > longest {
            error.add(
                "breaker.longest_wait",
                format!(
                    "must not be below breaker.first_wait: it is {longest}, and that is {first}"
                ),
            );
        }
        let (after, warn_before) = (self.disable.after, self.disable.warn_before);
        if warn_before > after {
            error.add(
                "disable.warn_before",
                format!(
                    "must not be longer than disable.after: it is {warn_before}, and that is {after}"
                ),
            );
        }
        self.check_plans(error);
        self.check_outboxes(error);
        let (attempts, allowed) = (
            self.retry_policy.max_attempts,
            self.tenant_limits.max_attempts,
        );
        if attempts > allowed {
            error.add(
                "retry_policy",
                format!(
                    "has {attempts} attempts, and tenant_limits.max_attempts allows {allowed}: change one of them"
                ),
            );
        }
    }

    /// Checks that the store supports this node's role: SQLite has only the role `all`.
    pub fn check_role(&self) -> Result<(), ConfigError> {
        let mut error = ConfigError::default();
        let is_sqlite = matches!(self.store, StoreLocation::Sqlite(_));
        if is_sqlite && self.role != Role::All {
            error.add(
                "role",
                format!(
                    "is \"{}\", which requires a PostgreSQL store: with SQLite there is only one server",
                    self.role
                ),
            );
        }
        error.into_result(())
    }

    /// Checks that the email settings are complete and consistent.
    pub fn check_mail(&self) -> Result<(), ConfigError> {
        let mut error = ConfigError::default();
        for (key, message) in self.mail.errors() {
            error.add(key, message);
        }
        error.into_result(())
    }
}
