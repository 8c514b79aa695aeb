//! The list of all settings.
//!
//! [`SETTINGS`] defines the environment variables and the flags. Plans are not in it: the operator chooses
//! their names, so they can be set only in the file. [`read`](super::read) validates the values, and
//! `config.default.toml` explains them. Tests check that the three agree.

use serde_json::{Number, Value};

use ValueKind::{List, Number as Count, Policy, Text, Truth};

/// The conversion of text from the environment or a flag to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Used as it is.
    Text,
    /// `true` or `false`.
    Truth,
    /// A number, or a word such as `none` where the setting accepts one.
    Number,
    /// Items separated by commas.
    List,
    /// The name of a preset, or a retry policy in JSON.
    Policy,
}

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its key in the file, with the section before a dot.
    pub key: &'static str,
    /// The conversion of its text.
    pub kind: ValueKind,
    /// True if it has its own flag, in addition to `--set`.
    pub has_flag: bool,
}

const fn flagged(key: &'static str, kind: ValueKind) -> Setting {
    Setting {
        key,
        kind,
        has_flag: true,
    }
}

const fn plain(key: &'static str, kind: ValueKind) -> Setting {
    Setting {
        key,
        kind,
        has_flag: false,
    }
}

/// Every setting, in the order of `config.default.toml`.
pub const SETTINGS: &[Setting] = &[
    flagged("listen", Text),
    flagged("store", Text),
    flagged("role", Text),
    plain("lease", Text),
    plain("finish_upgrade_after", Text),
    plain("store_listen", Text),
    plain("store_connections", Count),
    flagged("admin_key", Text),
    plain("master_key", Text),
    flagged("master_key_file", Text),
    plain("trusted_proxy", List),
    flagged("allow_network", List),
    plain("deny_network", List),
    plain("allow_port", List),
    plain("deny_port", List),
    plain("nat64_prefix", List),
    flagged("allow_http", Truth),
    plain("ca_bundle", Text),
    plain("egress_proxy", Text),
    plain("egress_proxy_resolves", Truth),
    plain("retry_policy", Policy),
    flagged("retention", Text),
    plain("payload_retention", Text),
    plain("attempt_retention", Text),
    flagged("grace", Text),
    plain("public_url", Text),
    plain("limits.body_bytes", Count),
    plain("limits.batch_body_bytes", Count),
    plain("limits.body_memory_bytes", Count),
    plain("limits.tenant_body_memory_bytes", Count),
    plain("limits.connections", Count),
    plain("limits.connections_per_peer", Count),
    plain("limits.header_read_time", Text),
    plain("limits.write_time", Text),
    plain("limits.idle_time", Text),
    plain("limits.requests_per_second", Count),
    plain("limits.request_burst", Count),
    plain("limits.max_deliveries_per_request", Count),
    plain("tenant_limits.endpoints", Count),
    plain("tenant_limits.events_per_second", Count),
    plain("tenant_limits.deliveries_per_second", Count),
    plain("tenant_limits.events_per_month", Count),
    plain("tenant_limits.max_attempts", Count),
    plain("tenant_limits.in_flight", Count),
    plain("tenant_limits.schedules", Count),
    plain("tenant_limits.shortest_schedule_interval", Text),
    plain("dashboard.enabled", Truth),
    plain("dashboard.session", Text),
    plain("portal.name", Text),
    plain("portal.logo", Text),
    plain("portal.accent", Text),
    plain("portal.accent_dark", Text),
    plain("portal.frame_ancestors", List),
    plain("engine.max_in_flight", Count),
    plain("engine.ready_per_lane", Count),
    plain("engine.retry_after_cap", Text),
    plain("endpoint_defaults.timeout", Text),
    plain("endpoint_defaults.max_in_flight", Count),
    plain("endpoint_defaults.rate_limit.per_second", Count),
    plain("endpoint_defaults.rate_limit.burst", Count),
    plain("breaker.window", Text),
    plain("breaker.min_samples", Count),
    plain("breaker.failure_ratio", Count),
    plain("breaker.consecutive_failures", Count),
    plain("breaker.exhausted_deliveries", Count),
    plain("breaker.refusals", Count),
    plain("breaker.first_wait", Text),
    plain("breaker.longest_wait", Text),
    plain("disable.after", Text),
    plain("disable.warn_before", Text),
    plain("disable.on_gone", Truth),
    plain("alerts.enabled", Truth),
    plain("alerts.every", Text),
    plain("alerts.window", Text),
    plain("alerts.calm", Text),
    plain("alerts.min_attempts", Count),
    plain("alerts.retry_ratio", Count),
    plain("alerts.dead_letter_ratio", Count),
    plain("alerts.attempts_per_success", Count),
    plain("alerts.second_attempt_success_ratio", Count),
    plain("alerts.retrying_over_24h", Count),
    plain("alerts.dead_letters_growing", Count),
    plain("alerts.breaker_tripped", Text),
    plain("alerts.disable_warning", Text),
    plain("alerts.endpoint_disabled", Text),
    plain("alerts.queue_age", Text),
    plain("alerts.held_back", Text),
    plain("alerts.store_slow", Text),
    plain("alerts.store_nearly_full", Count),
    plain("alerts.notices_stuck", Text),
    plain("alerts.held_after_faults", Count),
    plain("alerts.outbox_unreachable", Text),
    plain("alerts.schedules_failing", Count),
    plain("alerts.database_bytes", Count),
    plain("notices.tenant", Text),
    plain("notices.gather", Text),
    plain("mail.server", Text),
    plain("mail.password", Text),
    plain("mail.tls", Text),
    plain("mail.from", Text),
    plain("mail.to", List),
    plain("mail.every", Text),
    plain("mail.allowed_domains", List),
    plain("mail.tenant_emails_per_day", Count),
    plain("mail.tenant_new_recipients_per_day", Count),
    plain("metrics.enabled", Truth),
    plain("metrics.per_endpoint", Truth),
    plain("metrics.endpoints", Count),
    flagged("log.format", Text),
    flagged("log.level", Text),
    plain("otlp.endpoint", Text),
    plain("otlp.headers", List),
    plain("otlp.traces", Truth),
    plain("otlp.metrics", Truth),
    plain("otlp.interval", Text),
    plain("otlp.sample", Count),
    plain("otlp.service_name", Text),
];

impl Setting {
    /// Returns the setting with this key.
    pub fn named(key: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// Returns the setting that contains the field at `path` of a document.
    pub(super) fn containing(path: &str) -> Option<&'static Setting> {
        let lies_in = |setting: &&Setting| {
            let rest = path.strip_prefix(setting.key);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        SETTINGS.iter().find(lies_in)
    }

    /// Returns its environment variable.
    pub fn variable(&self) -> String {
        let key = self.key.replace('.', "_").to_ascii_uppercase();
        format!("POSTHASTE_{key}")
    }

    /// Returns its flag, or `--set` with its key.
    pub fn flag(&self) -> String {
        if self.has_flag {
            format!("--{}", self.key.replace(['.', '_'], "-"))
        } else {
            format!("--set {}", self.key)
        }
    }

    /// Converts text to the value of this setting. Text that cannot be converted stays text. The reader then
    /// refuses it with a message about the accepted values.
    pub(super) fn value_of(&self, text: &str) -> Value {
        let as_text = || Value::String(text.to_owned());
        match self.kind {
            ValueKind::Text => as_text(),
            ValueKind::Truth => text.parse().map_or_else(|_| as_text(), Value::Bool),
            ValueKind::Number => text
                .parse::<u64>()
                .ok()
                .map(Number::from)
                .or_else(|| text.parse().ok().and_then(Number::from_f64))
                .map_or_else(as_text, Value::Number),
            ValueKind::List => text
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty())
                .map(|item| Value::String(item.to_owned()))
                .collect(),
            ValueKind::Policy if text.trim_start().starts_with('{') => {
                posthaste_core::json::parse(text).unwrap_or_else(|_| as_text())
            }
            ValueKind::Policy => as_text(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_and_flag_are_derived_from_the_key() {
        let setting = Setting::named("log.level").expect("a setting");
        assert_eq!(setting.variable(), "POSTHASTE_LOG_LEVEL");
        assert_eq!(setting.flag(), "--log-level");
        let setting = Setting::named("limits.body_bytes").expect("a setting");
        assert_eq!(setting.flag(), "--set limits.body_bytes");
    }

    #[test]
    fn no_two_settings_share_a_variable_or_lie_in_one_another() {
        for setting in SETTINGS {
            let same = |other: &&Setting| other.variable() == setting.variable();
            assert_eq!(SETTINGS.iter().filter(same).count(), 1, "{}", setting.key);
            assert_eq!(Setting::containing(setting.key), Some(setting));
        }
        let key = |path: &str| Setting::containing(path).map(|setting| setting.key);
        assert_eq!(key("allow_network[2]"), Some("allow_network"));
        assert_eq!(key("retry_policy.backoff.base"), Some("retry_policy"));
        assert_eq!(key("master_key_file"), Some("master_key_file"));
        assert_eq!(key("limits"), None);
        assert_eq!(key("listener"), None);
    }

    #[test]
    fn a_misspelling_is_recognised() {
        let known = || SETTINGS.iter().map(Setting::variable);
        let guess = |name: &str| posthaste_core::suggestion::nearest(name, known());
        for (name, variable) in [
            ("POSTHASTE_LISTN", "POSTHASTE_LISTEN"),
            ("POSTHASTE_ALOW_HTTP", "POSTHASTE_ALLOW_HTTP"),
        ] {
            assert_eq!(guess(name).as_deref(), Some(variable));
        }
        assert_eq!(guess("POSTHASTE_TELEMETRY_COLOUR"), None);
    }
}
