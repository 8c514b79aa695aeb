//! One posthaste process: store, vault, engine, API and background tasks.
//!
//! ```text
//!  start:  vault ▸ store (migrates, takes the lock) ▸ engine (reads the backlog) ▸ API
//!  stop:   API accepts no requests, engine starts no attempts ▸ requests are answered, attempts in flight
//!          are recorded ▸ stats are written ▸ store closes
//! ```
//!
//! On a shared database, [`Node`] asks for shards once it is open, and releases all of them at a stop. Each shard can
//! be granted to another node as soon as nothing of it is in flight.

mod background_tasks;
pub mod cluster_events;
mod keys;
mod shared_store;

pub use shared_store::SharedStore;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use posthaste_api::limits;
use posthaste_api::{self as api, ApiSettings, App};
use posthaste_core::dispatcher::Limits;
use posthaste_core::lane::{BreakerSettings, MAX_IN_FLIGHT};
use posthaste_core::time::Span;
use posthaste_dashboard::{self as dashboard, Dashboard, DashboardSettings};
use posthaste_egress::{Client, ClientSettings, Proxy, Roots};
use posthaste_engine::maintenance;
use posthaste_engine::replayer::Replayer;
use posthaste_engine::vault::{KeySource, MasterKeyId, Vault, VaultError};
use posthaste_engine::{Engine, EngineSettings, Phase};
use posthaste_notify::alerts::{AlertChecker, AlertSettings, Hearing};
use posthaste_notify::notifications::{self, Channels, Telling};
use posthaste_store::postgres::PostgresStore;
use posthaste_store::sqlite::{SqliteStore, recognise};
use posthaste_store::{OpenError, Retention, Store, StoreError, StoreSettings};
use posthaste_system::clock::Clock;
use posthaste_system::random;
use posthaste_telemetry::metrics::{Metrics, flush};
use posthaste_telemetry::traces::{Exporter, OtlpSettings, Telemetry};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::config::{MetricSettings, Role};
use crate::node::cluster_events::ClusterEventHandler;
use background_tasks::{BackgroundTask, Ends, all_ended, any_ended, ended};
use keys::{make_first_admin_key, shared_vault};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::node";

/// Time limit for the store to write what remains and close.
const CLOSING_TIME: Duration = Duration::from_secs(30);

/// Settings of a node.
pub struct NodeSettings {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Location of the store.
    pub store: Kept,
    /// Role among the nodes on the same store.
    pub role: Role,
    /// Settings of the store.
    pub store_settings: StoreSettings,
    /// Source of the master keys; `None` if the nodes share one through their store.
    pub master_keys: Option<KeySource>,
    /// Settings of the API; its egress rules also apply to deliveries.
    pub api: ApiSettings,
    /// Appearance and access of the dashboard.
    pub dashboard: DashboardSettings,
    /// Trusted root certificates.
    pub roots: Roots,
    /// Proxy for all outbound requests, if there is one.
    pub proxy: Option<Proxy>,
    /// Limits of the engine.
    pub limits: Limits,
    /// Thresholds of the breakers.
    pub breaker: BreakerSettings,
    /// Channels of notifications.
    pub means: Channels,
    /// Longest `Retry-After` that is honoured.
    pub retry_after_cap: Span,
    /// Settings of metrics.
    pub metrics: MetricSettings,
    /// Retention periods.
    pub retention: Retention,
    /// Settings of alerts.
    pub alerts: AlertSettings,
    /// Time to wait for attempts in flight when stopping.
    pub grace: Duration,
    /// Settings of the export to a collector.
    pub otlp: OtlpSettings,
}

/// Location of the store.
pub enum Kept {
    /// A SQLite file of this node.
    File(PathBuf),
    /// A PostgreSQL database that nodes share.
    Shared(Box<SharedStore>),
}

/// Reason why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The master keys are not available.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// The nodes on this store use a master key that this node was not given.
    #[error(
        "this database holds what was sealed with {}, and this node does not have it: give every node the same POSTHASTE_MASTER_KEY (or --master-key-file)",
        in_use.map_or("a master key".to_owned(), |id| format!("the master key {id}"))
    )]
    NoMasterKey {
        /// Id of that key, if it is known.
        in_use: Option<MasterKeyId>,
    },
    /// The stored secrets cannot be decrypted with the given keys.
    #[error(
        "{0}; give every node of this database the same POSTHASTE_MASTER_KEY (or --master-key-file)"
    )]
    OtherMasterKey(VaultError),
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The node cannot listen on the address.
    #[error(
        "cannot listen on {address}: {error}; choose another address with --listen, port 0 picks one"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error.
        error: io::Error,
    },
}

/// A running node.
pub struct Node {
    address: SocketAddr,
    /// The admin key that was created at the first start, to be shown once.
    first_admin_key: Option<String>,
    store: Arc<dyn Store>,
    engine: Engine,
    observe: Arc<Metrics>,
    stopping: watch::Sender<bool>,
    serving: JoinHandle<io::Result<()>>,
    sending: JoinHandle<Result<(), StoreError>>,
    keepers: Vec<BackgroundTask>,
    /// Export to a collector, if there is one.
    telling: Option<Exporter>,
    grace: Duration,
}

/// Reason why a running node can no longer work. After a restart it continues from the stored state.
#[derive(Debug, thiserror::Error)]
pub enum NodeFailure {
    /// The store can no longer guarantee what it accepted.
    #[error("{0}; nothing that was acknowledged is lost, start the server again")]
    Store(StoreError),
    /// A task has ended that must run as long as the node.
    #[error(
        "{0} has ended, which is a fault of posthaste; nothing that was acknowledged is lost, start the server again"
    )]
    Ended(&'static str),
}

impl Node {
    /// Starts a node. When this returns, the node accepts requests and sends.
    pub async fn start(settings: NodeSettings) -> Result<Node, StartError> {
        let NodeSettings {
            listen,
            store: kept,
            role,
            store_settings,
            master_keys,
            api: mut api_settings,
            dashboard,
            roots,
            proxy,
            limits: engine_limits,
            breaker,
            means,
            retry_after_cap,
            metrics,
            retention,
            alerts,
            grace,
            otlp,
        } = settings;
        let clock = Clock::system();
        // The vault comes first: if the process dies in between, there is a key without data, and never data without a
        // key.
        let vault = match (master_keys.map(Vault::open_or_create), &kept) {
            (None, _) => None,
            (Some(Ok(vault)), _) => Some(vault),
            (Some(Err(error @ VaultError::Missing { .. })), Kept::File(path)) => {
                // If the file is not a store, that is the error to report, not the missing key.
                recognise(path)?;
                return Err(error.into());
            }
            (Some(Err(error)), _) => return Err(error.into()),
        };
        let listener = TcpListener::bind(listen).await;
        let listener = listener.map_err(|error| StartError::Listen {
            address: listen,
            error,
        })?;
        let address = listener.local_addr().unwrap_or(listen);
        // Known only now, because port 0 has been replaced by a real one.
        api_settings.egress_rules.own_sockets = vec![address];

        let engine = Engine::new();
        let messenger = Arc::new(ClusterEventHandler::new(engine.clone()));
        let opening = Opening {
            engine: &engine,
            messenger: &messenger,
            clock: &clock,
        };
        let (store, vault) = opening.open(kept, store_settings.clone(), vault).await?;
        let vault = Arc::new(vault);
        let first_admin_key = match api_settings.admin_keys.is_empty() {
            true => make_first_admin_key(&*store, &clock).await?,
            false => None,
        };
        maintenance::reseal(&*store, &vault, &clock).await?;
        notifications::prepare(&*store, &clock, &means.settings).await?;

        let rules = api_settings.egress_rules.clone();
        let client = Client::new(ClientSettings {
            rules: rules.clone(),
            roots: roots.clone(),
            proxy,
            // As many as may be in flight to one endpoint. Otherwise the busiest endpoints would close and open
            // connections all the time.
            max_idle_per_key: MAX_IN_FLIGHT as usize,
            ..ClientSettings::default()
        });
        let observe = Arc::new(metrics.observatory(means.settings.tenant.clone()));
        let telemetry = Telemetry::new(otlp, clock.clone(), random::seed());
        let engine_settings = EngineSettings {
            store: store.clone(),
            store_settings,
            client,
            rules,
            vault: vault.clone(),
            observe: observe.clone(),
            telemetry: telemetry.clone(),
            clock: clock.clone(),
            dice: random::seed(),
            limits: engine_limits,
            breaker,
            retry_after_cap,
            lease: store.cluster().map(|cluster| cluster.lease()),
        };
        let mut sending = tokio::spawn({
            let engine = engine.clone();
            async move { engine.run(engine_settings).await }
        });
        engine.started().await;
        if engine.phase() == Phase::Stopped {
            // It must have failed, because no stop was requested.
            (&mut sending).await.expect("the engine does not panic")?;
        }

        limits::look_for_lost_plans(store.clone(), api_settings.plans.clone());
        let (stopping, stopped) = watch::channel(false);
        let app = App::new(
            store.clone(),
            engine.clone(),
            vault,
            observe.clone(),
            clock,
            random::seed(),
            api_settings.clone(),
        );
        let app = Arc::new(app.telling(telemetry.clone()));
        messenger.introduce(&app);
        let telling = telemetry.export(
            roots,
            Box::new({
                let app = app.clone();
                move || {
                    let app = app.clone();
                    Box::pin(async move { api::metrics::all(&app).await })
                }
            }),
        );
        let tidying = maintenance::start(
            store.clone(),
            app.clock.clone(),
            retention,
            app.switchboard.clone(),
            stopped.clone(),
        );
        let replayer = Replayer::new(
            store.clone(),
            app.clock.clone(),
            app.replay_bell.clone(),
            Box::new({
                let engine = engine.clone();
                move |endpoint, due| engine.work(endpoint, due)
            }),
        )
        .shared_with(app.switchboard.clone());
        let watching = AlertChecker::new(
            store.clone(),
            app.clock.clone(),
            app.queue_age.clone(),
            alerts.clone(),
            means.audience(),
        )
        .start(app.switchboard.clone(), stopped.clone());
        let herald = notifications::start(Telling {
            store: store.clone(),
            clock: app.clock.clone(),
            switchboard: app.switchboard.clone(),
            hears: Arc::new(Hearing::new(store.clone(), app.clock.clone(), alerts)),
            observe: observe.clone(),
            means,
            stopped: stopped.clone(),
        });
        let keepers = vec![
            BackgroundTask::new("the watch for alerts", Ends::WithTheNode, watching),
            BackgroundTask::new("the herald", Ends::WithTheNode, herald),
            BackgroundTask::new("the housekeeping", Ends::WithTheNode, tidying),
            BackgroundTask::new(
                "the replayer",
                Ends::WithTheStore,
                tokio::spawn(replayer.run()),
            ),
            BackgroundTask::new(
                "the keeping of figures",
                Ends::WithTheNode,
                flush::start(store.clone(), observe.clone(), stopped.clone()),
            ),
        ];
        let serving = tokio::spawn(async move {
            let stop = until(stopped.clone());
            let router = match role.answers() {
                true if !dashboard.enabled => api::router(app),
                true => {
                    let dashboard = Dashboard::new(app.clone(), dashboard, stopped.clone());
                    let pages = dashboard::router(Arc::new(dashboard));
                    api::router(app).merge(pages)
                }
                false => api::probes_only(app),
            };
            api::serve::serve(listener, router, &api_settings, stop).await
        });
        Ok(Node {
            address,
            first_admin_key,
            store,
            engine,
            observe,
            stopping,
            serving,
            sending,
            keepers,
            telling,
            grace,
        })
    }

    /// Returns the address that the node listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the admin key that was created at the first start. Can be called once; the key is stored nowhere.
    pub fn take_first_admin_key(&mut self) -> Option<String> {
        self.first_admin_key.take()
    }

    /// Waits until a part has failed that the node needs, because without it the node would accept events and send
    /// none. The process that started the node must react.
    pub async fn broken_down(&mut self) -> NodeFailure {
        tokio::select! {
            why = self.engine.store_broken() => NodeFailure::Store(why),
            ended = &mut self.sending => match ended {
                Ok(Err(why)) => NodeFailure::Store(why),
                Ok(Ok(())) | Err(_) => NodeFailure::Ended("the engine"),
            },
            _ = &mut self.serving => NodeFailure::Ended("the API"),
            ended = any_ended(&mut self.keepers) => NodeFailure::Ended(ended),
        }
    }

    /// Stops the node: accepts no requests, starts no attempts, answers open requests, waits for attempts in flight and
    /// for emails, and closes the store. What is not finished within the grace period is left for the next start.
    pub async fn stop(self) {
        self.stopping.send_replace(true);
        // At once, not after all requests are answered. A slow request could use up the grace period, and attempts that
        // started meanwhile would be sent again at the next start.
        self.engine.stop_starting();
        let in_flight = self.engine.flight_count();
        tracing::info!(target: LOG_TARGET, in_flight, "stopping");
        let retired = async {
            // Other nodes take over at once what is not in flight here.
            if let Some(cluster) = self.store.cluster()
                && let Err(error) = cluster.retire().await
            {
                tracing::warn!(target: LOG_TARGET, %error, "others will take over when the lease has ended");
            }
        };
        let drained = async {
            tokio::join!(ended(self.serving), retired);
            self.engine.shut_down().await;
        };
        // If the mail server has accepted an email, that must be recorded.
        let ended = all_ended(self.keepers);
        let (drained, ended) =
            tokio::join!(timeout(self.grace, drained), timeout(self.grace, ended));
        if ended.is_err() {
            tracing::warn!(target: LOG_TARGET,
                "the grace period is over; a letter that is being sent may be sent again"
            );
        }
        if drained.is_err() {
            let in_flight = self.engine.flight_count();
            tracing::warn!(target: LOG_TARGET,
                in_flight,
                "the grace period is over; what is still in flight will be sent again at the next start"
            );
        }
        self.sending.abort();
        flush::last(&self.observe, &*self.store).await;
        if let Some(telling) = self.telling {
            telling.close().await;
        }
        match timeout(CLOSING_TIME, self.store.close()).await {
            Ok(Ok(())) => tracing::info!(target: LOG_TARGET, "stopped"),
            Ok(Err(error)) => {
                tracing::error!(target: LOG_TARGET, %error, "the store did not close properly")
            }
            Err(_) => tracing::error!(target: LOG_TARGET, "the store did not close in time"),
        }
    }
}

async fn until(mut stopped: watch::Receiver<bool>) {
    // An error means that the node no longer exists.
    let _ = stopped.wait_for(|stopping| *stopping).await;
}

/// Dependencies of opening the store.
struct Opening<'a> {
    engine: &'a Engine,
    messenger: &'a Arc<ClusterEventHandler>,
    clock: &'a Clock,
}

impl Opening<'_> {
    /// Opens the store, and the vault if its key is in the store.
    async fn open(
        self,
        kept: Kept,
        settings: StoreSettings,
        vault: Option<Vault>,
    ) -> Result<(Arc<dyn Store>, Vault), StartError> {
        let hand_over = self.engine.hand_over();
        match kept {
            Kept::File(path) => {
                let vault = vault.expect("a file has a key of its own");
                let opening = spawn_blocking(move || SqliteStore::open(&path, settings, hand_over));
                let store = opening.await.expect("opening does not panic")?;
                Ok((Arc::new(store), vault))
            }
            Kept::Shared(shared) => {
                let shared = shared.settings(self.clock);
                let orders = self.messenger.clone();
                let opening = spawn_blocking(move || {
                    PostgresStore::open(shared, settings, hand_over, orders)
                });
                let store = opening.await.expect("opening does not panic")?;
                let vault = shared_vault(&store, vault).await?;
                Ok((Arc::new(store), vault))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::serve::node_settings;
    use crate::config::{Config, StoreLocation};

    async fn node(directory: &std::path::Path) -> Node {
        let config = Config {
            listen: "127.0.0.1:0".parse().expect("an address"),
            store: StoreLocation::Sqlite(directory.join("posthaste.db")),
            ..Config::default()
        };
        let settings = node_settings(&config).expect("they are right");
        Node::start(settings).await.expect("it starts")
    }

    #[tokio::test]
    async fn a_node_that_cannot_send_any_more_says_so() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut node = node(directory.path()).await;
        node.sending.abort();
        let why = node.broken_down().await;
        assert!(matches!(why, NodeFailure::Ended("the engine")), "{why}");
        node.stop().await;
    }

    #[tokio::test]
    async fn a_node_whose_api_has_ended_says_so_and_closes_its_store() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut node = node(directory.path()).await;
        let store = node.store.clone();
        node.serving.abort();
        let why = node.broken_down().await;
        assert!(matches!(why, NodeFailure::Ended("the API")), "{why}");
        node.stop().await;
        assert_eq!(store.told().await, Err(StoreError::Closed));
    }

    #[tokio::test]
    async fn a_node_whose_store_failed_says_so() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut node = node(directory.path()).await;
        let failed = StoreError::Unavailable("the disk failed".to_owned());
        node.engine.hand_over().broken(&failed);
        let why = node.broken_down().await;
        assert!(matches!(why, NodeFailure::Store(_)), "{why}");
        node.stop().await;
    }

    #[tokio::test]
    async fn a_node_closes_its_store_when_what_was_begun_beside_it_has_ended() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut node = node(directory.path()).await;
        let (store, stopped) = (node.store.clone(), node.stopping.subscribe());
        let (tell, told) = tokio::sync::oneshot::channel();
        let writing = tokio::spawn(async move {
            until(stopped).await;
            // As long as a mail server may take.
            tokio::time::sleep(Duration::from_millis(300)).await;
            let _ = tell.send(store.told().await);
        });
        let writer = BackgroundTask::new("a writer", Ends::WithTheNode, writing);
        node.keepers.push(writer);
        node.stop().await;
        assert_eq!(told.await, Ok(Ok(0)));
    }

    #[tokio::test]
    async fn a_node_does_not_wait_for_ever() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut node = node(directory.path()).await;
        node.grace = Duration::from_millis(50);
        let sleeping = tokio::spawn(std::future::pending());
        let sleeper = BackgroundTask::new("a sleeper", Ends::WithTheNode, sleeping);
        node.keepers.push(sleeper);
        node.stop().await;
    }
}
