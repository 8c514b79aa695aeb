//! Converts the environment and the flags to documents in the shape of the configuration file.
//!
//! So file, [`Environment`] and [`Flags`] are read by the same code, and their errors are reported together. An unknown
//! variable is only a warning, because other programs may set it.

use std::ffi::OsString;
use std::path::PathBuf;

use posthaste_core::suggestion::nearest;
use serde_json::{Map, Value};

use super::error::ConfigError;
use super::layer::{Layer, SettingSource};
use super::settings::{SETTINGS, Setting};

const PREFIX: &str = "POSTHASTE_";
const CONFIG_VARIABLE: &str = "POSTHASTE_CONFIG";
/// Variables of the other commands. The server ignores them.
const CLIENT_VARIABLES: [&str; 6] = [
    "POSTHASTE_CA",
    "POSTHASTE_KEY",
    "POSTHASTE_RECEIVER_LISTEN",
    "POSTHASTE_SECRET",
    "POSTHASTE_SERVER",
    "POSTHASTE_TENANT",
];

/// Maximum number of unknown variables that are reported.
const MAX_UNKNOWN: usize = 16;

/// The settings from the environment.
pub(super) struct Environment {
    pub(super) layer: Layer,
    /// The configuration file that `POSTHASTE_CONFIG` names.
    pub(super) file: Option<PathBuf>,
    /// Messages about unknown variables. Such a variable may be meant for another program, for example a
    /// script that starts the server. It is therefore a warning and does not stop the server.
    pub(super) unknown: Vec<String>,
}

/// Reads the variables that begin with `POSTHASTE_`.
pub(super) fn environment(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    error: &mut ConfigError,
) -> Environment {
    let mut document = Map::new();
    let mut file = None;
    let mut unknown = Vec::new();
    let mut variables: Vec<(String, OsString)> = variables
        .into_iter()
        .filter_map(|(name, text)| Some((name.into_string().ok()?, text)))
        // An empty variable counts as not set. Authors of compose files and Kubernetes manifests expect that.
        .filter(|(name, text)| name.starts_with(PREFIX) && !text.is_empty())
        .collect();
    variables.sort();
    for (name, text) in variables {
        if name == CONFIG_VARIABLE {
            file = Some(PathBuf::from(text));
            continue;
        }
        let setting = SETTINGS.iter().find(|setting| setting.variable() == name);
        match (setting, text.into_string()) {
            // Kubernetes sets `POSTHASTE_ALLOW_PORT=tcp://10.0.0.1:80` for a service named posthaste-allow.
            (Some(_), Ok(text)) if is_foreign_variable(&name) && text.contains("://") => {}
            (Some(setting), Ok(text)) => put(&mut document, setting, &text),
            (Some(_), Err(_)) => error.add(name, "is not valid UTF-8"),
            (None, _) if is_foreign_variable(&name) => {}
            (None, _) if unknown.len() < MAX_UNKNOWN => {
                unknown.push(format!("{name} {}", unknown_variable(&name)));
            }
            (None, _) => {}
        }
    }
    let layer = Layer {
        document: Value::Object(document),
        origin: SettingSource::Environment,
    };
    Environment {
        layer,
        file,
        unknown,
    }
}

/// Returns true for a variable of the client, and for one that Kubernetes or Docker sets for a service named
/// posthaste: `POSTHASTE_PORT`, `POSTHASTE_SERVICE_HOST`, `POSTHASTE_PORT_8420_TCP_ADDR`.
fn is_foreign_variable(name: &str) -> bool {
    CLIENT_VARIABLES.contains(&name)
        || name.ends_with("_PORT")
        || name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT_")
        || name.split_once("_PORT_").is_some_and(|(_, port)| {
            let protocol = port.trim_start_matches(|c: char| c.is_ascii_digit());
            protocol.len() < port.len()
                && ["_TCP", "_UDP", "_SCTP"]
                    .iter()
                    .any(|known| protocol.starts_with(known))
        })
}

/// The message for a plan that is set by a variable or a flag.
const PLANS_ARE_IN_THE_FILE: &str = "must be set in the file, as plans in [plans.NAME]";
/// The message for an outbox that is set by a variable or a flag.
const OUTBOXES_ARE_IN_THE_FILE: &str = "must be set in the file, as outboxes in [[outbox]]";

fn unknown_variable(name: &str) -> String {
    if name.starts_with("POSTHASTE_PLANS_") {
        return PLANS_ARE_IN_THE_FILE.to_owned();
    }
    if name.starts_with("POSTHASTE_OUTBOX_") {
        return OUTBOXES_ARE_IN_THE_FILE.to_owned();
    }
    match nearest(name, SETTINGS.iter().map(Setting::variable)) {
        Some(guess) => format!("is not a setting; did you mean {guess}?"),
        None => "is not a setting; config.default.toml lists all of them".to_owned(),
    }
}

/// The flags of the command line. Their values stay text, so that errors in flags, environment variables and file are
/// reported together.
#[derive(Default)]
pub struct Flags {
    /// Path of the configuration file.
    pub config: Option<PathBuf>,
    /// Settings that have a flag of their own, by key.
    pub given: Vec<(&'static str, String)>,
    /// Settings given as `KEY=VALUE`.
    pub set: Vec<String>,
}

/// Reads the flags.
pub(super) fn flags(flags: &Flags, error: &mut ConfigError) -> Layer {
    let mut document = Map::new();
    let mut given: Vec<&Setting> = Vec::new();
    for (key, text) in &flags.given {
        let setting = Setting::named(key).expect("every flag is a setting");
        given.push(setting);
        put(&mut document, setting, text);
    }
    for pair in &flags.set {
        let Some((key, text)) = pair.split_once('=') else {
            // The text may be a key, so the message must not show it.
            error.add("--set", "must be KEY=VALUE, such as limits.connections=500");
            continue;
        };
        let Some(setting) = Setting::named(key.trim()) else {
            error.add(format!("--set {key}"), unknown_key(key));
            continue;
        };
        if given.contains(&setting) {
            error.add(format!("--set {key}"), "is given twice");
            continue;
        }
        given.push(setting);
        put(&mut document, setting, text);
    }
    Layer {
        document: Value::Object(document),
        origin: SettingSource::Flags,
    }
}

fn unknown_key(key: &str) -> String {
    if key.starts_with("plans.") {
        return PLANS_ARE_IN_THE_FILE.to_owned();
    }
    if key == "outbox" || key.starts_with("outbox.") {
        return OUTBOXES_ARE_IN_THE_FILE.to_owned();
    }
    match nearest(key, SETTINGS.iter().map(|setting| setting.key.to_owned())) {
        Some(guess) => format!("is not a setting; did you mean {guess}?"),
        None => "is not a setting; config.default.toml lists all of them".to_owned(),
    }
}

/// Inserts a setting at the position that it has in the file.
fn put(document: &mut Map<String, Value>, setting: &Setting, text: &str) {
    let value = setting.value_of(text);
    let mut sections = setting.key.split('.');
    let name = sections.next_back().expect("a key has a name");
    let fields = sections.fold(document, |fields, section| {
        let section = fields
            .entry(section)
            .or_insert_with(|| Value::Object(Map::new()));
        section.as_object_mut().expect("every section is an object")
    });
    fields.insert(name.to_owned(), value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_a_service_named_posthaste_are_ignored() {
        for name in [
            "POSTHASTE_PORT",
            "POSTHASTE_SERVICE_HOST",
            "POSTHASTE_SERVICE_PORT",
            "POSTHASTE_SERVICE_PORT_HTTP",
            "POSTHASTE_PORT_8420_TCP",
            "POSTHASTE_PORT_8420_TCP_ADDR",
            "POSTHASTE_METRICS_PORT_9000_UDP_PROTO",
            "POSTHASTE_METRICS_SERVICE_HOST",
            "POSTHASTE_KEY",
        ] {
            assert!(is_foreign_variable(name), "{name}");
        }
        for name in [
            "POSTHASTE_PORTS",
            "POSTHASTE_PORT_X",
            "POSTHASTE_KEYS",
            "POSTHASTE_",
        ] {
            assert!(!is_foreign_variable(name), "{name}");
        }
        let ambiguous = SETTINGS
            .iter()
            .filter(|setting| is_foreign_variable(&setting.variable()));
        let ambiguous: Vec<&str> = ambiguous.map(|setting| setting.key).collect();
        assert_eq!(
            ambiguous,
            ["allow_port", "deny_port"],
            "settings that only their values tell from foreign variables"
        );
    }
}
