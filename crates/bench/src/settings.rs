//! Settings of a benchmark.
//!
//! [`Settings`] holds the arguments of `posthaste bench`, [`Scenario`] names what is measured. [`Settings::check`] refuses
//! runs that would not fit in memory, would overwrite a store, or need PostgreSQL and have none.

use std::path::{Path, PathBuf};

use posthaste_core::lane::{MAX_BURST, MAX_PER_SECOND, RateLimit};
use serde::{Serialize, Serializer};

use super::database;
use super::error::BenchError;
use super::measured_process::ProcessKind;

/// Maximum number of events of one run, because the recorder is in memory.
pub const MAX_EVENTS: usize = 10_000_000;
/// Maximum number of endpoints that each event goes to.
pub const MAX_ENDPOINTS: usize = 100;
/// Maximum number of slots in a recorder: events times endpoints.
pub const MAX_SLOTS: usize = 50_000_000;
/// Number of connections to all endpoints together, unless there are more endpoints.
const CONNECTIONS_OUT: usize = 512;
/// Maximum number of connections to one endpoint. More do not increase the throughput.
const MAX_CONNECTIONS_OUT: usize = 64;

/// The scenarios of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Scenario {
    /// Maximum throughput of the relay and the server, alternately
    Throughput,
    /// Latency at 100 events per second of the relay and the server, alternately
    Lag,
    /// A healthy endpoint beside one that hangs
    Hanging,
    /// A healthy endpoint beside one with a long backlog, and a restart with it
    Backlog,
    /// An endpoint that recovers with a large backlog
    Recovery,
    /// Many pending deliveries to many endpoints, and a restart with them
    Memory,
    /// Cost of an event with many events stored
    History,
    /// The HTTP client alone: raw connections and the client with its checks, alternately
    Door,
    /// Latency on PostgreSQL with one node, and with two nodes of which one accepts and the other sends
    Nodes,
    /// Cost of commits and fetches on PostgreSQL with a large backlog, dead rows and an old snapshot
    Flat,
    /// Duration of each dashboard page with few and with many deliveries stored
    Pages,
    /// Cost of retention while delivering, and the size of the file
    Retention,
    /// Cost of metrics and logs: with and without them, alternately
    Observe,
    /// Receivers that fail partly, reject or rate limit: deliveries that succeed, and what holds back the others
    PartialFailure,
    /// A tenant beside callers that try to stall the server
    HostileCallers,
    /// Rows of an application's outbox, paced and at full speed
    Outbox,
    /// Schedules under full load, many that are due at once, and many that are idle
    Schedules,
}

/// Settings of a benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// The server's store; a temporary file if `None`.
    #[serde(serialize_with = "without_password")]
    pub store: Option<String>,
    /// Number of events; each scenario has its own default.
    pub events: Option<usize>,
    /// Number of endpoints that each event goes to.
    pub endpoints: usize,
    /// Length of each payload, in bytes.
    pub payload_bytes: usize,
    /// Number of outstanding requests of the producers.
    pub connections: usize,
    /// Number of rounds in which relay and server take turns.
    pub rounds: usize,
    /// Events per second of paced runs.
    pub per_second: f64,
    /// Seed of the failures that receivers draw.
    pub seed: u64,
    /// Additional settings of the server, as `KEY=VALUE`.
    pub set: Vec<String>,
    /// Configuration file of the server.
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Scenarios to run.
    pub scenarios: Vec<Scenario>,
    /// Measure only the relay or only the server.
    #[serde(skip)]
    pub only: Option<ProcessKind>,
}

impl Settings {
    /// Checks the settings.
    pub fn check(&self) -> Result<(), BenchError> {
        let slots = self.events.unwrap_or(0).saturating_mul(self.endpoints);
        if slots > MAX_SLOTS {
            return Err(BenchError::Usage(format!(
                "{slots} deliveries are too many for one run: at most {MAX_SLOTS}"
            )));
        }
        let database = self.database();
        let needs_postgres = |scenario: &&Scenario| {
            matches!(
                scenario,
                Scenario::Nodes | Scenario::Flat | Scenario::Outbox
            )
        };
        match (database, self.scenarios.iter().find(needs_postgres)) {
            (Some(store), _) => drop(database::server_of(store)?),
            (None, None) => {}
            (None, Some(_)) => {
                return Err(BenchError::Usage(
                    "nodes, flat and outbox are about PostgreSQL: add --store postgres://…"
                        .to_owned(),
                ));
            }
        }
        match self.store_file() {
            Some(file) if file.exists() => Err(BenchError::Usage(format!(
                "{} exists: a benchmark fills a store with rubbish, so name a new file",
                file.display()
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the URL of the database server, if the store is PostgreSQL.
    pub fn database(&self) -> Option<&str> {
        let store = self.store.as_deref();
        store.filter(|store| database::is_database(store))
    }

    /// Returns the store's file, if it is SQLite.
    fn store_file(&self) -> Option<&Path> {
        self.store
            .as_deref()?
            .strip_prefix("sqlite:")
            .map(Path::new)
    }

    /// Returns the store setting for the server. The path of a file is made absolute, because the server runs in
    /// another folder.
    pub fn store_in(&self, directory: &Path) -> String {
        let absolute = |file: &Path| std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        match (&self.store, self.store_file()) {
            (_, Some(file)) => format!("sqlite:{}", absolute(file).display()),
            (Some(store), None) => store.clone(),
            (None, None) => format!("sqlite:{}", directory.join("bench.db").display()),
        }
    }

    /// Returns the folder of the data, if it is known.
    pub fn data_folder(&self, directory: &Path) -> Option<PathBuf> {
        match (&self.store, self.store_file()) {
            (_, Some(file)) => std::path::absolute(file).ok()?.parent().map(Path::to_owned),
            (Some(_), None) => None,
            (None, None) => Some(directory.to_owned()),
        }
    }

    /// Returns the in-flight limit of one endpoint, for the relay and the server.
    pub fn in_flight(&self) -> usize {
        (CONNECTIONS_OUT / self.endpoints.max(1)).clamp(1, MAX_CONNECTIONS_OUT)
    }

    /// Returns the highest rate limit and burst that an endpoint may have.
    pub fn unlimited() -> RateLimit {
        RateLimit {
            per_second: MAX_PER_SECOND,
            burst: MAX_BURST,
        }
    }
}

/// Serializes the store without the password of its URL.
fn without_password<S: Serializer>(store: &Option<String>, to: S) -> Result<S::Ok, S::Error> {
    let shown = store
        .as_deref()
        .map(|store| match database::server_of(store) {
            Ok(server) if database::is_database(store) => server.to_string(),
            Ok(_) | Err(_) if database::is_database(store) => "postgres".to_owned(),
            Ok(_) | Err(_) => store.to_owned(),
        });
    shown.serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(store: Option<&str>) -> Settings {
        Settings {
            store: store.map(str::to_owned),
            events: None,
            endpoints: 1,
            payload_bytes: 500,
            connections: 64,
            rounds: 3,
            per_second: 100.0,
            seed: 1,
            set: Vec::new(),
            config: None,
            scenarios: vec![Scenario::Throughput],
            only: None,
        }
    }

    #[test]
    fn a_relative_file_becomes_absolute() {
        let directory = Path::new("/home");
        let here = std::env::current_dir().unwrap();
        let relative = settings(Some("sqlite:b.db"));
        assert_eq!(
            relative.store_in(directory),
            format!("sqlite:{}", here.join("b.db").display())
        );
        assert_eq!(settings(None).store_in(directory), "sqlite:/home/bench.db");
        let elsewhere = settings(Some("postgres://h/d"));
        assert_eq!(elsewhere.store_in(directory), "postgres://h/d");
        assert_eq!(elsewhere.data_folder(directory), None);
    }

    #[test]
    fn an_existing_store_is_refused() {
        let here = format!("sqlite:{}", file!());
        let there = format!("sqlite:{}", env!("CARGO_MANIFEST_DIR"));
        assert!(settings(Some(&here)).check().is_ok());
        assert!(
            settings(Some(&there))
                .check()
                .is_err_and(|e| e.exit_code() == 2)
        );
    }

    #[test]
    fn a_password_is_not_serialized() {
        let text = serde_json::to_string(&settings(Some("postgres://u:hunter2@h/d"))).unwrap();
        assert!(
            !text.contains("hunter2") && text.contains("postgres://u@h"),
            "{text}"
        );
        let file = serde_json::to_string(&settings(Some("sqlite:b.db"))).unwrap();
        assert!(file.contains("sqlite:b.db"), "{file}");
    }

    #[test]
    fn scenarios_about_postgresql_require_it() {
        let mut flat = settings(None);
        flat.scenarios = vec![Scenario::Flat];
        assert!(flat.check().is_err_and(|error| error.exit_code() == 2));
        flat.store = Some("postgres://h/d".to_owned());
        assert!(flat.check().is_ok());
        let mut outbox = settings(None);
        outbox.scenarios = vec![Scenario::Outbox];
        assert!(outbox.check().is_err_and(|error| error.exit_code() == 2));
    }

    #[test]
    fn many_endpoints_share_the_connections() {
        let of = |endpoints| {
            let mut settings = settings(None);
            settings.endpoints = endpoints;
            settings.in_flight()
        };
        assert_eq!((of(1), of(10), of(100), of(1_000)), (64, 51, 5, 1));
    }
}
