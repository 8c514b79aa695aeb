//! One run: receivers, a ledger, and the relay or the server between receivers and producers.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use posthaste_core::sign::SharedSecret;
use tempfile::TempDir;
use tokio::time::{interval, sleep};

use super::api::{Api, CreatedEndpoint, Wanted};
use super::database::Database;
use super::failure::Failure;
use super::ledger::Ledger;
use super::producer::{ApiTarget, Load, produce};
use super::progress::Progress;
use super::receiver::Receivers;
use super::relay::{Orders, RelayEndpoint};
use super::settings::Settings;
use super::subject::{Kind, MeasuredProcess};
use super::usage::Usage;

/// Time without an arrival after which a run fails.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between two checks of the arrivals.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The tenant of all events.
const TENANT: &str = "bench";

/// One run.
pub struct Stage {
    /// The record of all events.
    pub ledger: Arc<Ledger>,
    /// The endpoints.
    pub receivers: Receivers,
    /// The measured process.
    pub subject: MeasuredProcess,
    /// The API that events are sent to.
    pub intake: ApiTarget,
    /// The endpoints as the server knows them.
    pub made: Vec<CreatedEndpoint>,
    /// The node that sends, if it is not the one that accepts.
    pub worker: Option<MeasuredProcess>,
    arguments: Vec<String>,
    admin_key: String,
    home: Option<TempDir>,
    /// The temporary database. Declared last, so that it is dropped after the processes that use it.
    pub database: Option<Database>,
}

/// The division of work between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// One node accepts and sends.
    One,
    /// One node accepts, another owns all shards and sends.
    Apart,
}

impl Stage {
    /// Starts the relay with the endpoints of the ledger.
    pub async fn relay(settings: &Settings, ledger: Arc<Ledger>) -> Result<Stage, Failure> {
        let receivers = Receivers::start(Arc::clone(&ledger))?;
        let mut endpoints = Vec::new();
        for index in 0..ledger.endpoints() {
            let secret = SharedSecret::from_random(chance()?);
            receivers.trust(index, secret.reveal())?;
            endpoints.push(RelayEndpoint {
                address: receivers.address(),
                path: format!("/{index}"),
                secret: secret.reveal().to_owned(),
            });
        }
        let orders = Orders {
            endpoints,
            connections: settings.in_flight(),
        };
        let orders = serde_json::to_string(&orders).expect("orders are plain data");
        let arguments = vec!["bench-relay".to_owned()];
        let subject =
            MeasuredProcess::start(Kind::Relay, &arguments, Some(&orders), Path::new(".")).await?;
        let intake = intake(subject.address(), String::from("none"));
        Ok(Stage {
            ledger,
            receivers,
            subject,
            intake,
            made: Vec::new(),
            worker: None,
            arguments,
            admin_key: String::new(),
            home: None,
            database: None,
        })
    }

    /// Starts the server and creates the endpoints of the ledger with the settings of `wanted`.
    pub async fn server(
        settings: &Settings,
        ledger: Arc<Ledger>,
        wanted: impl Fn(usize, String) -> Wanted,
    ) -> Result<Stage, Failure> {
        Stage::nodes(settings, ledger, wanted, Parts::One).await
    }

    /// Starts one or two nodes, as [`Stage::server`] does.
    pub async fn nodes(
        settings: &Settings,
        ledger: Arc<Ledger>,
        wanted: impl Fn(usize, String) -> Wanted,
        parts: Parts,
    ) -> Result<Stage, Failure> {
        let receivers = Receivers::start(Arc::clone(&ledger))?;
        let home = TempDir::with_prefix("posthaste-bench-")
            .map_err(Failure::machine("cannot make a folder for the store"))?;
        let admin_key = format!("ph_{}", hex(&chance::<24>()?));
        let database = match settings.database() {
            Some(store) => {
                let name = format!("posthaste_bench_{}", hex(&chance::<8>()?));
                Some(Database::make(store, &name).await?)
            }
            None => None,
        };
        let store = match &database {
            Some(database) => database.url().to_owned(),
            None => settings.store_in(home.path()),
        };
        let mut arguments = serve_arguments(settings, &store, &admin_key);
        let mut worker = None;
        if parts == Parts::Apart {
            let role = |role: &str| ["--role".to_owned(), role.to_owned()];
            let mut other = arguments.clone();
            other.extend(role("worker"));
            worker = Some(MeasuredProcess::start(Kind::Server, &other, None, home.path()).await?);
            arguments.extend(role("api"));
        }
        let subject = MeasuredProcess::start(Kind::Server, &arguments, None, home.path()).await?;
        let mut api = Api::connect(subject.address(), &admin_key).await?;
        api.ready().await?;
        let tenant = format!("{TENANT}-{}", hex(&chance::<6>()?));
        let key = api.make_tenant(&tenant, ledger.endpoints()).await?;
        let mut made = Vec::new();
        for index in 0..ledger.endpoints() {
            let endpoint = wanted(index, receivers.url(index));
            let endpoint = api.make_endpoint(&tenant, &endpoint).await?;
            receivers.trust(index, &endpoint.secret)?;
            made.push(endpoint);
        }
        let mut intake = intake(subject.address(), key);
        intake.tenant = tenant;
        Ok(Stage {
            ledger,
            receivers,
            subject,
            intake,
            made,
            worker,
            arguments,
            admin_key,
            home: Some(home),
            database,
        })
    }

    /// Returns the store's file, if it is SQLite.
    pub fn file(&self, settings: &Settings) -> Option<PathBuf> {
        let home = self.home.as_ref()?;
        let store = settings.store_in(home.path());
        store.strip_prefix("sqlite:").map(PathBuf::from)
    }

    /// Opens a connection to the server's API.
    pub async fn api(&self) -> Result<Api, Failure> {
        Api::connect(self.subject.address(), &self.admin_key).await
    }

    /// Opens a connection to the node that sends, which has the lag metrics.
    pub async fn sender(&self) -> Result<Api, Failure> {
        let sender = self.worker.as_ref().unwrap_or(&self.subject);
        Api::connect(sender.address(), &self.admin_key).await
    }

    /// Returns the usage of all nodes once they are idle.
    pub async fn settled_usage(&self) -> Result<Usage, Failure> {
        let usage = self.subject.settled_usage().await?;
        match &self.worker {
            Some(worker) => Ok(usage.and(&worker.settled_usage().await?)),
            None => Ok(usage),
        }
    }

    /// Returns the processor time of the database server, if it is visible.
    pub async fn database_cpu(&self) -> Option<Duration> {
        self.database.as_ref()?.cpu().await
    }

    /// Restarts the server on the same store. Returns the durations of the stop and of the start.
    pub async fn restart(self) -> Result<(Stage, Duration, Duration), Failure> {
        let Stage { subject, home, .. } = self;
        let folder = home
            .as_ref()
            .map_or_else(std::env::temp_dir, |home| home.path().to_owned());
        let asked_at = Instant::now();
        subject.stop().await?;
        let stopped_within = asked_at.elapsed();
        let subject = MeasuredProcess::start(Kind::Server, &self.arguments, None, &folder).await?;
        let started_within = subject.started_within();
        let stage = Stage {
            intake: ApiTarget {
                address: subject.address(),
                ..self.intake
            },
            subject,
            home,
            ledger: self.ledger,
            receivers: self.receivers,
            made: self.made,
            worker: self.worker,
            arguments: self.arguments,
            admin_key: self.admin_key,
            database: self.database,
        };
        stage.api().await?.ready().await?;
        Ok((stage, stopped_within, started_within))
    }

    /// Sends a load and waits until all its events have arrived at these endpoints. The progress bar shows the
    /// arrivals.
    pub async fn run(
        &self,
        load: Load,
        endpoints: Range<usize>,
        progress: &Progress,
    ) -> Result<(), Failure> {
        let seen = self.ledger.arrivals(endpoints.clone());
        let wanted = seen + (load.events.len() * endpoints.len()) as u64;
        let producing = produce(&self.intake, load, &self.ledger);
        let at = || self.ledger.arrivals(endpoints.clone());
        progress.beside(producing, at).await?;
        self.await_arrivals(wanted, endpoints.clone(), STALL_TIMEOUT, progress)
            .await
    }

    /// Waits until `wanted` events have arrived at these endpoints. Fails after `max_silence` without an arrival.
    pub async fn await_arrivals(
        &self,
        wanted: u64,
        endpoints: Range<usize>,
        max_silence: Duration,
        progress: &Progress,
    ) -> Result<(), Failure> {
        let mut looks = interval(POLL_INTERVAL);
        let arrivals = || self.ledger.arrivals(endpoints.clone());
        let (mut seen, mut seen_at) = (arrivals(), Instant::now());
        while seen < wanted {
            looks.tick().await;
            let now = arrivals();
            if now != seen {
                (seen, seen_at) = (now, Instant::now());
                progress.set(seen);
            } else if seen_at.elapsed() > max_silence {
                return Err(Failure::Stalled {
                    what: format!("the arrival of {} more", wanted - seen),
                    seconds: max_silence.as_secs(),
                    said: self.subject.last_words(),
                });
            }
        }
        Ok(())
    }

    /// Waits a moment for possible duplicates, then checks the ledger.
    pub async fn check(
        &self,
        endpoints: Range<usize>,
        events: Range<usize>,
    ) -> Result<(), Failure> {
        sleep(Duration::from_millis(100)).await;
        self.ledger.check(endpoints, events)
    }
}

fn intake(address: SocketAddr, key: String) -> ApiTarget {
    ApiTarget {
        address,
        tenant: TENANT.to_owned(),
        key,
    }
}

fn serve_arguments(settings: &Settings, store: &str, admin_key: &str) -> Vec<String> {
    let words = [
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
    words.into_iter().chain(set).map(str::to_owned).collect()
}

fn chance<const BYTES: usize>() -> Result<[u8; BYTES], Failure> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::Broken(format!("there is no chance: {error}")))?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
