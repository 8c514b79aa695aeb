//! The fixture of one run: receivers, a recorder, and the relay or the server between receivers and producers.
//!
//! [`Fixture`] starts the measured process with its endpoints, sends loads to it, and waits for their arrival. Dropping
//! it stops the process and deletes the data.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use posthaste_core::sign::SharedSecret;
use tempfile::TempDir;
use tokio::time::{interval, sleep};

use super::api::{Api, CreatedEndpoint, NewEndpoint};
use super::database::Database;
use super::error::BenchError;
use super::measured_process::{MeasuredProcess, ProcessKind};
use super::producer::{ApiTarget, Load, produce};
use super::progress::Progress;
use super::receiver::Receivers;
use super::recorder::Recorder;
use super::relay::{RelayConfig, RelayEndpoint};
use super::settings::Settings;
use super::usage::Usage;

/// Time without an arrival after which a run fails.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between two checks of the arrivals.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The tenant of all events.
const TENANT: &str = "bench";

/// One run.
pub struct Fixture {
    /// The record of all events.
    pub recorder: Arc<Recorder>,
    /// The endpoints.
    pub receivers: Receivers,
    /// The measured process.
    pub process: MeasuredProcess,
    /// The API that events are sent to.
    pub target: ApiTarget,
    /// The endpoints as the server knows them.
    pub endpoints: Vec<CreatedEndpoint>,
    /// The node that sends, if it is not the one that accepts.
    pub worker: Option<MeasuredProcess>,
    arguments: Vec<String>,
    admin_key: String,
    directory: Option<TempDir>,
    /// The temporary database. Declared last, so that it is dropped after the processes that use it.
    pub database: Option<Database>,
}

/// The division of work between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeLayout {
    /// One node accepts and sends.
    Single,
    /// One node accepts, another owns all shards and sends.
    Split,
}

impl Fixture {
    /// Starts the relay, and a recorder for this number of events.
    pub async fn relay(settings: &Settings, events: usize) -> Result<Fixture, BenchError> {
        let recorder = Arc::new(Recorder::new(settings.endpoints, events));
        let receivers = Receivers::start(Arc::clone(&recorder))?;
        let mut endpoints = Vec::new();
        for index in 0..recorder.endpoints() {
            let secret = SharedSecret::from_random(random_bytes()?);
            receivers.trust(index, secret.reveal())?;
            endpoints.push(RelayEndpoint {
                address: receivers.address(),
                path: format!("/{index}"),
                secret: secret.reveal().to_owned(),
            });
        }
        let config = RelayConfig {
            endpoints,
            connections: settings.in_flight(),
        };
        let config = serde_json::to_string(&config).expect("the configuration serializes");
        let arguments = vec!["bench-relay".to_owned()];
        let process = MeasuredProcess::start(
            ProcessKind::Relay,
            &arguments,
            Some(&config),
            Path::new("."),
        )
        .await?;
        let target = target(process.address(), String::from("none"));
        Ok(Fixture {
            recorder,
            receivers,
            process,
            target,
            endpoints: Vec::new(),
            worker: None,
            arguments,
            admin_key: String::new(),
            directory: None,
            database: None,
        })
    }

    /// Starts the server with endpoints as `new_endpoint`, and a recorder for these numbers of endpoints and events.
    pub async fn server(
        settings: &Settings,
        (endpoints, events): (usize, usize),
        new_endpoint: impl Fn(usize, String) -> NewEndpoint,
    ) -> Result<Fixture, BenchError> {
        let recorder = Recorder::new(endpoints, events);
        Fixture::nodes(settings, recorder, new_endpoint, NodeLayout::Single).await
    }

    /// Starts one or two nodes, as [`Fixture::server`] does.
    pub async fn nodes(
        settings: &Settings,
        recorder: Recorder,
        new_endpoint: impl Fn(usize, String) -> NewEndpoint,
        layout: NodeLayout,
    ) -> Result<Fixture, BenchError> {
        let recorder = Arc::new(recorder);
        let receivers = Receivers::start(Arc::clone(&recorder))?;
        let directory = TempDir::with_prefix("posthaste-bench-")
            .map_err(BenchError::machine("cannot make a folder for the store"))?;
        let admin_key = format!("ph_{}", hex(&random_bytes::<24>()?));
        let database = match settings.database() {
            Some(store) => {
                let name = format!("posthaste_bench_{}", hex(&random_bytes::<8>()?));
                Some(Database::create(store, &name).await?)
            }
            None => None,
        };
        let store = match &database {
            Some(database) => database.url().to_owned(),
            None => settings.store_in(directory.path()),
        };
        let mut arguments = serve_arguments(settings, &store, &admin_key);
        let mut worker = None;
        if layout == NodeLayout::Split {
            let role = |role: &str| ["--role".to_owned(), role.to_owned()];
            let mut other = arguments.clone();
            other.extend(role("worker"));
            worker = Some(
                MeasuredProcess::start(ProcessKind::Server, &other, None, directory.path()).await?,
            );
            arguments.extend(role("api"));
        }
        let process =
            MeasuredProcess::start(ProcessKind::Server, &arguments, None, directory.path()).await?;
        let mut api = Api::connect(process.address(), &admin_key).await?;
        api.ready().await?;
        let tenant = format!("{TENANT}-{}", hex(&random_bytes::<6>()?));
        let key = api.make_tenant(&tenant, recorder.endpoints()).await?;
        let mut endpoints = Vec::new();
        for index in 0..recorder.endpoints() {
            let endpoint = new_endpoint(index, receivers.url(index));
            let endpoint = api.make_endpoint(&tenant, &endpoint).await?;
            receivers.trust(index, &endpoint.secret)?;
            endpoints.push(endpoint);
        }
        let mut target = target(process.address(), key);
        target.tenant = tenant;
        Ok(Fixture {
            recorder,
            receivers,
            process,
            target,
            endpoints,
            worker,
            arguments,
            admin_key,
            directory: Some(directory),
            database,
        })
    }

    /// Returns the store's file, if it is SQLite.
    pub fn file(&self, settings: &Settings) -> Option<PathBuf> {
        let directory = self.directory.as_ref()?;
        let store = settings.store_in(directory.path());
        store.strip_prefix("sqlite:").map(PathBuf::from)
    }

    /// Returns the admin key of the server.
    pub fn admin_key(&self) -> &str {
        &self.admin_key
    }

    /// Opens a connection to the server's API.
    pub async fn api(&self) -> Result<Api, BenchError> {
        Api::connect(self.process.address(), &self.admin_key).await
    }

    /// Opens a connection to the node that sends, which has the lag metrics.
    pub async fn sender(&self) -> Result<Api, BenchError> {
        let sender = self.worker.as_ref().unwrap_or(&self.process);
        Api::connect(sender.address(), &self.admin_key).await
    }

    /// Returns the usage of all nodes once they are idle.
    pub async fn settled_usage(&self) -> Result<Usage, BenchError> {
        let usage = self.process.settled_usage().await?;
        match &self.worker {
            Some(worker) => Ok(usage.plus(&worker.settled_usage().await?)),
            None => Ok(usage),
        }
    }

    /// Returns the processor time of the database server, if it is visible.
    pub async fn database_cpu(&self) -> Option<Duration> {
        self.database.as_ref()?.cpu().await
    }

    /// Restarts the server on the same store. Returns the durations of the stop and of the start.
    pub async fn restart(self) -> Result<(Fixture, Duration, Duration), BenchError> {
        let Fixture {
            process, directory, ..
        } = self;
        let folder = directory
            .as_ref()
            .map_or_else(std::env::temp_dir, |directory| directory.path().to_owned());
        let started_at = Instant::now();
        process.stop().await?;
        let stopped_within = started_at.elapsed();
        let process =
            MeasuredProcess::start(ProcessKind::Server, &self.arguments, None, &folder).await?;
        let started_within = process.started_within();
        let fixture = Fixture {
            target: ApiTarget {
                address: process.address(),
                ..self.target
            },
            process,
            directory,
            recorder: self.recorder,
            receivers: self.receivers,
            endpoints: self.endpoints,
            worker: self.worker,
            arguments: self.arguments,
            admin_key: self.admin_key,
            database: self.database,
        };
        fixture.api().await?.ready().await?;
        Ok((fixture, stopped_within, started_within))
    }

    /// Sends a load and waits until all its events have arrived at these endpoints. The progress bar shows the
    /// arrivals.
    pub async fn run(
        &self,
        load: Load,
        endpoints: Range<usize>,
        progress: &Progress,
    ) -> Result<(), BenchError> {
        let arrived = self.recorder.arrivals(endpoints.clone());
        let new_endpoint = arrived + (load.events.len() * endpoints.len()) as u64;
        let producing = produce(&self.target, load, &self.recorder);
        let at = || self.recorder.arrivals(endpoints.clone());
        progress.track(producing, at).await?;
        self.await_arrivals(new_endpoint, endpoints.clone(), STALL_TIMEOUT, progress)
            .await
    }

    /// Waits until `new_endpoint` events have arrived at these endpoints. Fails after `max_silence` without an arrival.
    pub async fn await_arrivals(
        &self,
        new_endpoint: u64,
        endpoints: Range<usize>,
        max_silence: Duration,
        progress: &Progress,
    ) -> Result<(), BenchError> {
        let mut polls = interval(POLL_INTERVAL);
        let arrivals = || self.recorder.arrivals(endpoints.clone());
        let (mut arrived, mut arrived_at) = (arrivals(), Instant::now());
        while arrived < new_endpoint {
            polls.tick().await;
            let now = arrivals();
            if now != arrived {
                (arrived, arrived_at) = (now, Instant::now());
                progress.set(arrived);
            } else if arrived_at.elapsed() > max_silence {
                return Err(BenchError::Stalled {
                    what: format!("the arrival of {} more", new_endpoint - arrived),
                    seconds: max_silence.as_secs(),
                    stderr_tail: self.process.stderr_tail(),
                });
            }
        }
        Ok(())
    }

    /// Waits a moment for possible duplicates, then checks the recorder.
    pub async fn check(
        &self,
        endpoints: Range<usize>,
        events: Range<usize>,
    ) -> Result<(), BenchError> {
        sleep(Duration::from_millis(100)).await;
        self.recorder.check(endpoints, events)
    }
}

fn target(address: SocketAddr, key: String) -> ApiTarget {
    ApiTarget {
        address,
        tenant: TENANT.to_owned(),
        key,
    }
}

fn serve_arguments(settings: &Settings, store: &str, admin_key: &str) -> Vec<String> {
    let arguments = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--store",
        store,
        "--admin-key",
        admin_key,
        "--allow-network",
        "127.0.0.0/8",
        "--allow-http",
    ];
    let set = settings.set.iter().flat_map(|set| ["--set", set]);
    let config = settings.config.iter().flat_map(|config| {
        let path = config.display().to_string();
        ["--config".to_owned(), path]
    });
    let arguments = arguments.into_iter().chain(set).map(str::to_owned);
    arguments.chain(config).collect()
}

fn random_bytes<const BYTES: usize>() -> Result<[u8; BYTES], BenchError> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| BenchError::Broken(format!("there is no chance: {error}")))?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
