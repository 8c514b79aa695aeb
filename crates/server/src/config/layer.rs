//! The settings of one source, and the location of each of them for messages.

use posthaste_core::validation::ValidationErrors;
use serde_json::Value;

use super::error::ConfigError;
use super::settings::Setting;
use super::toml_source::Lines;
use super::types::Config;

/// The settings of one source.
pub(super) struct Layer {
    pub(super) document: Value,
    pub(super) origin: SettingSource,
}

/// The kind of source, used to describe the location of a field in messages.
pub(super) enum SettingSource {
    File { name: String, lines: Lines },
    Environment,
    Flags,
}

impl Layer {
    /// Sets the settings of this source, and reports those that are invalid.
    pub(super) fn apply(&self, config: &mut Config, error: &mut ConfigError) {
        let mut errors = ValidationErrors::default();
        let master_key_origin = self.origin.of("master_key");
        config.read(&self.document, master_key_origin, &mut errors);
        for invalid in errors.iter() {
            error.add(self.origin.of(&invalid.field), invalid.message.as_str());
        }
    }
}

impl SettingSource {
    /// Describes where this source sets the field at `path`.
    fn of(&self, path: &str) -> String {
        let by_name = |name: &dyn Fn(&Setting) -> String| match Setting::containing(path) {
            None => path.to_owned(),
            Some(setting) => {
                let inside = path[setting.key.len()..].trim_start_matches('.');
                let blank = if inside.is_empty() { "" } else { ", " };
                format!("{}{blank}{inside}", name(setting))
            }
        };
        match self {
            SettingSource::File { name, lines } => match lines.of(path) {
                Some(line) => format!("{name} line {line}, {path}"),
                None => format!("{name}, {path}"),
            },
            SettingSource::Environment => by_name(&Setting::variable),
            SettingSource::Flags => by_name(&Setting::flag),
        }
    }
}
