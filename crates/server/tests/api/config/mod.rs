//! The configuration: every setting, every source of settings, every error.

mod documents;
mod mail;
mod outboxes;
mod plans;
mod protection;
mod rules;
mod values;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command, FromArgMatches};
use posthaste::cli::serve_args::ServeArgs;
use posthaste::config::{Config, ConfigError, MasterKeySource, SETTINGS, Setting, ValueKind};
use posthaste_core::policy::Preset;
use posthaste_core::time::Span;
use tempfile::TempDir;

use values::VALUES;

const AUTHORITY: &str = "\
-----BEGIN CERTIFICATE-----
MIIBijCCAS+gAwIBAgIUFmQggn91+81ZsMKF2kobGoeswAowCgYIKoZIzj0EAwIw
GTEXMBUGA1UEAwwOdGVzdCBhdXRob3JpdHkwIBcNMjYxMTE1MDY1NzAxWhgPMjEy
NjEwMjIwNjU3MDFaMBkxFzAVBgNVBAMMDnRlc3QgYXV0aG9yaXR5MFkwEwYHKoZI
zj0CAQYIKoZIzj0DAQcDQgAEyfVMEGQ0yCgeRbmyzju+VNWvVRSDsSGNanwOs35g
p0TtJZ/5zfymL1osZ9AjXFliOOWRopuzlxlikA/8VciV0KNTMFEwHQYDVR0OBBYE
FOQCzw5YI6zOF/6oFNdVA6CM+ow/MB8GA1UdIwQYMBaAFOQCzw5YI6zOF/6oFNdV
A6CM+ow/MA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSQAwRgIhAKtKwHle
J9xm08VZct29XVxvv8XesML4LEKwSVg9V5xlAiEAlZe2qsKlZkNdASipOG0Z7eUo
1oWPQq/AzFL47HsKPXY=
-----END CERTIFICATE-----
";

/// The sources of a configuration: file, environment and flags.
struct ConfigSources {
    folder: TempDir,
    file: Option<String>,
    environment: Vec<(OsString, OsString)>,
    flags: Vec<String>,
}

impl ConfigSources {
    fn new() -> ConfigSources {
        ConfigSources {
            folder: tempfile::tempdir().expect("a folder"),
            file: None,
            environment: Vec::new(),
            flags: Vec::new(),
        }
    }

    fn file(mut self, text: impl Into<String>) -> ConfigSources {
        self.file = Some(text.into());
        self
    }

    fn variable(mut self, name: &str, text: &str) -> ConfigSources {
        self.environment.push((name.into(), text.into()));
        self
    }

    fn flags<I: AsRef<str>>(mut self, flags: impl IntoIterator<Item = I>) -> ConfigSources {
        let flags = flags.into_iter().map(|flag| flag.as_ref().to_owned());
        self.flags.extend(flags);
        self
    }

    fn file_path(&self) -> PathBuf {
        self.folder.path().join("posthaste.toml")
    }

    fn load(&self) -> Result<Config, ConfigError> {
        let mut line = vec!["serve".to_owned()];
        if let Some(text) = &self.file {
            fs::write(self.file_path(), text).expect("written");
            line.extend([
                "--config".to_owned(),
                self.file_path().display().to_string(),
            ]);
        }
        line.extend(self.flags.iter().cloned());
        Config::load(&args(line), self.environment.iter().cloned())
    }

    /// Returns the reported errors, with the path of the file replaced by `FILE`.
    fn errors(&self) -> Vec<String> {
        let error = self.load().expect_err("configuration errors");
        let file = self.file_path().display().to_string();
        let errors = error.errors().iter();
        errors
            .map(|error| {
                let origin = error.origin.replace(&file, "FILE");
                let message = error.message.replace(&file, "FILE");
                format!("{origin}: {message}")
            })
            .collect()
    }
}

fn command() -> Command {
    ServeArgs::augment_args(Command::new("serve"))
}

fn args(line: Vec<String>) -> ServeArgs {
    let matches = command().try_get_matches_from(line).expect("arguments");
    ServeArgs::from_arg_matches(&matches).expect("arguments")
}

/// The setting as a line of a configuration file.
fn in_toml(setting: &Setting, text: &str) -> String {
    let value = match setting.kind {
        ValueKind::Text => format!("{text:?}"),
        ValueKind::Number if text.parse::<f64>().is_err() => format!("{text:?}"),
        ValueKind::Number | ValueKind::Truth => text.to_owned(),
        ValueKind::List => format!("{:?}", text.split(',').collect::<Vec<_>>()),
        ValueKind::Policy if text.starts_with('{') => text.replace(':', " ="),
        ValueKind::Policy => format!("{text:?}"),
    };
    match setting.key.split_once('.') {
        Some((section, name)) => format!("[{section}]\n{name} = {value}\n"),
        None => format!("{} = {value}\n", setting.key),
    }
}

fn in_flags(setting: &Setting, text: &str) -> Vec<String> {
    if setting.has_flag {
        vec![format!("{}={text}", setting.flag())]
    } else {
        vec!["--set".to_owned(), format!("{}={text}", setting.key)]
    }
}

/// Clears the origin of the master key, the only value that differs by source.
fn without_origin(mut config: Config) -> Config {
    if let MasterKeySource::Text { origin, .. } = &mut config.master_key {
        origin.clear();
    }
    config
}

fn bundles() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["a.pem", "b.pem", "c.pem"] {
        fs::write(folder.path().join(name), AUTHORITY).expect("written");
    }
    for name in ["a.svg", "b.png", "c.webp"] {
        fs::write(folder.path().join(name), name).expect("written");
    }
    folder
}

#[test]
fn every_setting_can_be_set_by_file_environment_and_flag_in_that_order() {
    let keys: Vec<&str> = VALUES.iter().map(|(key, _)| *key).collect();
    let known: Vec<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
    assert_eq!(keys, known);
    let bundles = bundles();
    let defaults = Config::default();
    for (key, texts) in VALUES {
        let setting = Setting::named(key).expect("a setting");
        let texts = texts.map(|text| match *key {
            "ca_bundle" | "portal.logo" => bundles.path().join(text).display().to_string(),
            _ => text.to_owned(),
        });
        let [first, second, third] = &texts;
        let load = |file: Option<&str>, variable: Option<&str>, flag: Option<&str>| {
            let mut sources = ConfigSources::new();
            if let Some(text) = file {
                sources = sources.file(in_toml(setting, text));
            }
            if let Some(text) = variable {
                sources = sources.variable(&setting.variable(), text);
            }
            if let Some(text) = flag {
                sources = sources.flags(in_flags(setting, text));
            }
            without_origin(
                sources
                    .load()
                    .unwrap_or_else(|error| panic!("{key}: {error}")),
            )
        };
        for text in &texts {
            let alone = load(Some(text), None, None);
            assert_eq!(alone, load(None, Some(text), None), "{key} {text}");
            assert_eq!(alone, load(None, None, Some(text)), "{key} {text}");
        }
        assert_ne!(load(Some(first), None, None), defaults, "{key}");
        let both = load(Some(first), Some(second), None);
        assert_eq!(both, load(None, Some(second), None), "{key}");
        let all = load(Some(first), Some(second), Some(third));
        assert_eq!(all, load(None, None, Some(third)), "{key}");
        let outer = load(Some(second), None, Some(third));
        assert_eq!(outer, load(None, None, Some(third)), "{key}");
    }
}

#[test]
fn the_default_file_has_every_key_with_its_default() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config.default.toml");
    let text = fs::read_to_string(path).expect("config.default.toml");
    let config = ConfigSources::new()
        .file(text.clone())
        .load()
        .expect("a configuration");
    assert_eq!(config, Config::default());

    let mut section = String::new();
    let mut found = Vec::new();
    let mut above = "";
    for line in text.lines() {
        let bare = line.strip_prefix("# ").unwrap_or(line);
        if let Some(name) = line.strip_prefix('[') {
            section = format!("{}.", name.trim_end_matches(']'));
        } else if let Some((name, _)) = bare.split_once(" = ")
            && let Some(setting) = Setting::named(&format!("{section}{name}"))
        {
            assert!(above.starts_with("# "), "{} is not explained", setting.key);
            found.push(setting.key);
        }
        above = line;
    }
    let known: Vec<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
    assert_eq!(found, known);
}

#[test]
fn every_error_is_reported_at_once_with_its_source() {
    let sources = ConfigSources::new()
        .file(
            "listen = 'everywhere'\n\
             listenn = '127.0.0.1:1'\n\
             allow_network = ['10.0.0.0/8', '10.0.0.0/99']\n\
             [limits]\n\
             body_bytes = 'many'\n\
             [retry_policy]\n\
             backoff = { kind = 'fixed', interval = 'soon' }\n",
        )
        .variable(
            "POSTHASTE_STORE",
            "postgres://u:hunter2@db/posthaste?sslmode=perhaps",
        )
        .variable("POSTHASTE_ALLOW_HTTP", "yes")
        .variable("POSTHASTE_LIMITS_CONNECTIONS", "0")
        .variable(
            "POSTHASTE_RETRY_POLICY",
            "{\"preset\": \"swift\", \"max_attempts\": 0}",
        )
        .flags(["--retention", "a month", "--admin-key", "correct horse"])
        .flags(["--set", "engine.max_in_flght=5", "--set", "grace"]);
    let errors = sources.errors();
    let expected = [
        (
            "--set engine.max_in_flght: ",
            "did you mean engine.max_in_flight?",
        ),
        ("--set: ", "KEY=VALUE"),
        ("FILE line 1, listen: ", "127.0.0.1:8420"),
        ("FILE line 3, allow_network[1]: ", "10.0.0.0/8"),
        ("FILE line 7, retry_policy.backoff.interval: ", "\"250ms\""),
        (
            "FILE line 5, limits.body_bytes: ",
            "must be a whole number from 1024",
        ),
        (
            "FILE line 2, listenn: ",
            "is not a known field; did you mean listen?",
        ),
        ("POSTHASTE_STORE: ", "verify-full"),
        ("POSTHASTE_ALLOW_HTTP: ", "must be true or false"),
        (
            "POSTHASTE_RETRY_POLICY, max_attempts: ",
            "must be a whole number from 1",
        ),
        (
            "POSTHASTE_LIMITS_CONNECTIONS: ",
            "must be a whole number from 1",
        ),
        ("--admin-key: ", "without spaces"),
        ("--retention: ", "\"250ms\""),
    ];
    for ((origin, remedy), line) in expected.iter().zip(&errors) {
        assert!(line.starts_with(origin), "{line}\nshould begin {origin}");
        assert!(line.contains(remedy), "{line}\nshould say {remedy}");
    }
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
    let error = sources.load().expect_err("configuration errors");
    assert_eq!(error.exit_code(), 2);
    let shown = format!("{error} {error:?}");
    assert!(
        shown.starts_with("the configuration has 13 errors\n"),
        "{shown}"
    );
    for secret in ["hunter2", "horse"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn an_unreadable_file_does_not_hide_other_errors() {
    let sources = ConfigSources::new()
        .flags(["--config", "/does/not/exist.toml", "--grace", "long"])
        .variable("POSTHASTE_LISTEN", "here");
    let errors = sources.errors();
    assert!(
        errors[0].starts_with("--config: cannot read /does/not/exist.toml"),
        "{errors:?}"
    );
    assert!(errors[1].starts_with("POSTHASTE_LISTEN: "), "{errors:?}");
    assert!(errors[2].starts_with("--grace: "), "{errors:?}");

    let errors = ConfigSources::new().file("listen = \n").errors();
    assert!(
        errors[0].starts_with("FILE: is not valid TOML: "),
        "{errors:?}"
    );
    assert!(errors[0].ends_with("at line 1 column 10"), "{errors:?}");
    let errors = ConfigSources::new()
        .file("grace = '1s'\ngrace = '2s'\n")
        .errors();
    assert!(errors[0].contains("line 2"), "{errors:?}");
}

#[test]
fn the_file_can_be_named_by_environment_or_flag() {
    let sources = ConfigSources::new();
    let path = sources.folder.path().join("named.toml");
    fs::write(&path, "grace = '7s'").expect("written");
    let sources = sources.variable("POSTHASTE_CONFIG", path.to_str().expect("text"));
    assert_eq!(sources.load().expect("valid").grace, Span::from_secs(7));
    let sources = sources.file("retention = '7d'");
    let config = sources.load().expect("valid");
    assert_eq!(config.grace, Config::default().grace);
    assert_eq!(config.retention, Span::from_days(7));
}

#[test]
fn unrelated_and_empty_variables_are_ignored() {
    let sources = ConfigSources::new()
        .variable("PATH", "/bin")
        .variable("POSTHASTE_SERVER", "https://hooks.customer.com")
        .variable("POSTHASTE_KEY", "ph_x")
        .variable("POSTHASTE_TENANT", "acme")
        .variable("POSTHASTE_CA", "ca.pem")
        .variable("POSTHASTE_SECRET", "whsec_x")
        .variable("POSTHASTE_RECEIVER_LISTEN", "127.0.0.1:1")
        .variable("POSTHASTE_PORT", "tcp://10.0.0.1:8420")
        .variable("POSTHASTE_ALLOW_PORT", "tcp://10.0.0.1:8420")
        .variable("POSTHASTE_ADMIN_KEY", "")
        .variable("POSTHASTE_CONFIG", "");
    assert_eq!(sources.load(), Ok(Config::default()));
}

#[test]
fn an_unknown_variable_is_only_a_warning() {
    let sources = ConfigSources::new()
        .variable("POSTHASTE_LISTN", "127.0.0.1:1")
        .variable("POSTHASTE_BIN", "hunter2");
    let warnings = sources.load().expect("a configuration").warnings();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].starts_with("POSTHASTE_BIN is not a setting"));
    assert!(warnings[1].contains("did you mean POSTHASTE_LISTEN?"));
    assert!(!format!("{warnings:?}").contains("hunter2"));
}

#[test]
fn a_stronger_source_replaces_the_other_kind_of_master_key() {
    let key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let sources = ConfigSources::new()
        .file("master_key_file = 'a.key'")
        .variable("POSTHASTE_MASTER_KEY", key);
    let MasterKeySource::Text { origin, .. } = sources.load().expect("valid").master_key else {
        panic!("the environment is stronger than the file");
    };
    assert_eq!(origin, "POSTHASTE_MASTER_KEY");
    let sources = sources.flags(["--master-key-file", "b.key"]);
    let master_key = sources.load().expect("valid").master_key;
    assert_eq!(master_key, MasterKeySource::File(PathBuf::from("b.key")));

    let errors = ConfigSources::new()
        .file(format!("master_key = '{key}'\nmaster_key_file = 'a.key'"))
        .errors();
    assert!(errors[0].contains("set one of them"), "{errors:?}");
    let errors = ConfigSources::new()
        .variable("POSTHASTE_MASTER_KEY", "swordfish")
        .errors();
    assert!(
        errors[0].starts_with("POSTHASTE_MASTER_KEY: the key must be 32 bytes"),
        "{errors:?}"
    );
    assert!(!errors[0].contains("swordfish"), "{errors:?}");
}

#[test]
fn contradicting_settings_are_an_error() {
    let sources = ConfigSources::new()
        .file("[breaker]\nfirst_wait = '10m'\n[tenant_limits]\nmax_attempts = 5\n");
    let errors = sources.errors();
    assert!(
        errors[0].starts_with("breaker.longest_wait: "),
        "{errors:?}"
    );
    assert!(
        errors[1].starts_with("retry_policy: has 9 attempts"),
        "{errors:?}"
    );
    assert_eq!(errors.len(), 2);
}

#[test]
fn a_certificate_bundle_is_read_at_the_start() {
    let sources = ConfigSources::new().flags(["--set", "ca_bundle=/does/not/exist.pem"]);
    let errors = sources.errors();
    assert!(
        errors[0].starts_with("--set ca_bundle: cannot read"),
        "{errors:?}"
    );
    let sources = ConfigSources::new();
    let path = sources.folder.path().join("ca.pem");
    fs::write(&path, "hello").expect("written");
    let sources = sources.variable("POSTHASTE_CA_BUNDLE", path.to_str().expect("text"));
    assert!(sources.errors()[0].contains("contains no certificate"));
    fs::write(&path, AUTHORITY).expect("written");
    assert!(sources.load().expect("valid").roots().is_ok());
}

#[test]
fn a_setting_given_twice_is_an_error() {
    let errors = ConfigSources::new()
        .flags(["--grace", "1s", "--set", "grace=2s"])
        .errors();
    assert_eq!(errors, ["--set grace: is given twice"]);
}

#[test]
fn a_short_admin_key_is_refused_wherever_it_is_set() {
    let short = "hunter2-hunter2";
    let file = format!("admin_key = '{short}'\n");
    for (origin, sources) in [
        (
            "--admin-key: ",
            ConfigSources::new().flags(["--admin-key", short]),
        ),
        (
            "POSTHASTE_ADMIN_KEY: ",
            ConfigSources::new().variable("POSTHASTE_ADMIN_KEY", short),
        ),
        ("FILE line 1, admin_key: ", ConfigSources::new().file(&file)),
    ] {
        let errors = sources.errors();
        assert_eq!(errors.len(), 1, "{errors:#?}");
        assert!(errors[0].starts_with(origin), "{}", errors[0]);
        for part in ["at least 16 characters", "openssl rand -hex 32"] {
            assert!(errors[0].contains(part), "{part} in {}", errors[0]);
        }
        assert!(!errors[0].contains("hunter2"), "{}", errors[0]);
        let error = sources.load().expect_err("a configuration error");
        assert_eq!(error.exit_code(), 2);
    }
    let long = ConfigSources::new().flags(["--admin-key", "hunter2-hunter2-"]);
    assert!(long.load().is_ok());
}

#[test]
fn debug_output_contains_no_secrets() {
    let key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let sources = ConfigSources::new()
        .variable("POSTHASTE_MASTER_KEY", key)
        .flags(["--admin-key", "hunter2-hunter2-hunter2"]);
    let config = sources.load().expect("valid");
    let flags = args(
        ["serve", "--admin-key", "hunter2-hunter2-hunter2"]
            .map(str::to_owned)
            .to_vec(),
    );
    let shown = format!("{config:?} {config:#?} {flags:?} {:?}", config.key_source());
    assert!(
        !shown.contains("hunter2") && !shown.contains(key),
        "{shown}"
    );
    assert_eq!(Config::default().warnings(), Vec::<String>::new());
}

#[test]
fn help_names_every_flag_s_variable_and_default() {
    command().debug_assert();
    let help = command().term_width(10_000).render_long_help().to_string();
    let mut flags: Vec<String> = SETTINGS
        .iter()
        .filter(|setting| setting.has_flag)
        .map(|setting| {
            assert!(
                help.contains(&format!("[env: {}]", setting.variable())),
                "{}",
                setting.key
            );
            setting.flag()
        })
        .collect();
    flags.extend(["--check", "--config", "--set"].map(str::to_owned));
    flags.sort();
    let command = command();
    let mut known: Vec<String> = command
        .get_arguments()
        .filter_map(|arg| Some(format!("--{}", arg.get_long()?)))
        .collect();
    known.sort();
    assert_eq!(known, flags);
    let defaults = Config::default();
    for default in [
        defaults.listen.to_string(),
        defaults.store.to_string(),
        defaults.retention.to_string(),
        defaults.grace.to_string(),
        defaults.log.format.name().to_owned(),
        defaults.log.filter.to_string(),
    ] {
        assert!(help.contains(&format!("[default: {default}]")), "{default}");
    }
}

#[test]
fn the_settings_reach_the_api() {
    let config = ConfigSources::new()
        .file(
            "retry_policy = { preset = 'swift', max_attempts = 3 }\n\
             grace = '3s'\n[limits]\nbody_bytes = 2048\nbatch_body_bytes = 4096\n\
             connections = 5\nheader_read_time = '6s'\nrequests_per_second = 7\nrequest_burst = 8\n\
             [tenant_limits]\nendpoints = 9\nevents_per_second = 10\nmax_attempts = 11\n\
             events_per_month = 12\nin_flight = 13\n",
        )
        .flags(["--admin-key", "ph_0123456789abc", "--allow-http"])
        .load()
        .expect("valid");
    let api = config.api_settings();
    assert_eq!((api.body_bytes, api.batch_bytes), (2_048, 4_096));
    assert_eq!((api.max_connections, api.head_timeout.as_secs()), (5, 6));
    assert_eq!((api.key_rate.per_second, api.key_rate.burst), (7, 8));
    let limits = api.plans.server;
    assert_eq!(limits.endpoints, Some(9));
    assert_eq!(limits.events_per_second, Some(10));
    assert_eq!(limits.max_attempts, Some(11));
    assert_eq!(
        (limits.events_per_month, limits.in_flight),
        (Some(12), Some(13))
    );
    assert_eq!(limits.payload_bytes, Some(2_048));
    let rates = api.plans.default_rates;
    assert_eq!(rates.events_per_second, None, "a limit is set");
    assert_eq!(rates.deliveries_per_second, Some(50_000));
    assert_eq!(limits.retention, Some(config.retention));
    assert_eq!(api.grace.as_secs(), 3);
    assert_eq!(
        api.admin_keys,
        [posthaste_api::hash_key("ph_0123456789abc")]
    );
    assert!(api.egress_rules.allow_http);
    let (policy, written) = api.default_policy;
    assert_eq!(policy.max_attempts, 3);
    assert_eq!(
        written,
        serde_json::json!({"preset": "swift", "max_attempts": 3})
    );
    let by_name = ConfigSources::new().variable("POSTHASTE_RETRY_POLICY", "brisk");
    let (policy, written) = by_name.load().expect("valid").api_settings().default_policy;
    assert_eq!(policy, Preset::Brisk.policy());
    assert_eq!(written, serde_json::json!({"preset": "brisk"}));
}
