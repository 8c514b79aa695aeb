//! One posthaste process, put together: store, vault, engine, API, and what keeps house.
//!
//! ```text
//!  start:  vault ▸ store (migrates, takes the lock) ▸ engine (looks at what waits) ▸ API
//!  stop:   API takes no more, engine begins no more ▸ requests are answered, flights come back and are
//!          recorded ▸ figures are written ▸ store closes
//! ```
//!
//! On a database that others share it asks for work once it is open, and gives all of it up at a stop: each
//! shard is another node's as soon as nothing of it is under way.

mod keepers;
mod keys;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::dispatcher::Limits;
use posthaste_core::lane::{BreakerSettings, MAX_IN_FLIGHT};
use posthaste_core::time::Span;
use posthaste_egress::{Client, ClientSettings, Proxy, Roots};
use posthaste_store::postgres::PostgresStore;
use posthaste_store::sqlite::{SqliteStore, recognise};
use posthaste_store::{OpenError, Retention, Store, StoreError, StoreSettings};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::alerts::{AlertSettings, Hearing, Watch};
use crate::api::{self, ApiSettings, App};
use crate::chance;
use crate::clock::Clock;
use crate::config::{MetricSettings, Role};
use crate::dashboard::{self, Dashboard, DashboardSettings};
use crate::database::SharedStore;
use crate::engine::{Engine, EngineSettings, Phase};
use crate::housekeeping;
use crate::limits;
use crate::notices::{self, Means, Telling};
use crate::observe::{Observatory, flush};
use crate::orders::Messenger;
use crate::replayer::Replayer;
use crate::telemetry::{Exporter, OtlpSettings, Telemetry};
use crate::vault::{KeySource, MasterKeyId, Vault, VaultError};
use keepers::{Ends, Keeper, all_ended, any_ended, ended};
use keys::{make_first_admin_key, shared_vault};

/// How long the store may take to write what is left and close.
const CLOSING_TIME: Duration = Duration::from_secs(30);

/// What a node is made from.
pub struct NodeSettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where everything is kept.
    pub store: Kept,
    /// What it does for others on the same store.
    pub role: Role,
    /// What the store is told.
    pub store_settings: StoreSettings,
    /// Where the master keys come from; nothing if nodes share one through their store.
    pub master_keys: Option<KeySource>,
    /// How the API behaves; its egress rules are the sender's too.
    pub api: ApiSettings,
    /// What the pages look like, and who may see them.
    pub dashboard: DashboardSettings,
    /// Whose certificates are believed.
    pub roots: Roots,
    /// The proxy through which everything is sent, if there is one.
    pub proxy: Option<Proxy>,
    /// What the engine may use.
    pub limits: Limits,
    /// When breakers trip.
    pub breaker: BreakerSettings,
    /// By what means people are told.
    pub means: Means,
    /// The longest `Retry-After` that is honoured.
    pub retry_after_cap: Span,
    /// What is counted, and told to Prometheus.
    pub metrics: MetricSettings,
    /// How long what is finished is kept.
    pub retention: Retention,
    /// When somebody is to be told that something is wrong.
    pub alerts: AlertSettings,
    /// How long to wait for what is in flight when stopping.
    pub grace: Duration,
    /// What a collector is told.
    pub otlp: OtlpSettings,
}

/// Where everything is kept.
pub enum Kept {
    /// In a file of this node's own.
    File(PathBuf),
    /// In a database that nodes share.
    Shared(Box<SharedStore>),
}

/// Why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The master keys cannot be had.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// The nodes on this store use a master key that this one was not given.
    #[error(
        "this database holds what was sealed with {}, and this node does not have it: give every node the same POSTHASTE_MASTER_KEY (or --master-key-file)",
        in_use.map_or("a master key".to_owned(), |id| format!("the master key {id}"))
    )]
    NoMasterKey {
        /// Its name, if that is known.
        in_use: Option<MasterKeyId>,
    },
    /// What they sealed does not open with the keys that were given.
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
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {error}; choose another address with --listen, port 0 picks one"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What went wrong.
        error: io::Error,
    },
}

/// A running node.
pub struct Node {
    address: SocketAddr,
    /// The admin key that was made at the first start, to be shown once.
    first_admin_key: Option<String>,
    store: Arc<dyn Store>,
    engine: Engine,
    observe: Arc<Observatory>,
    stopping: watch::Sender<bool>,
    serving: JoinHandle<io::Result<()>>,
    sending: JoinHandle<Result<(), StoreError>>,
    keepers: Vec<Keeper>,
    /// What tells a collector, if there is one.
    telling: Option<Exporter>,
    grace: Duration,
}

/// Why a node that ran is of no use any more. Started again, it goes on from what is on disk.
#[derive(Debug, thiserror::Error)]
pub enum Breakdown {
    /// The store cannot say whether it keeps its promises.
    #[error("{0}; nothing that was acknowledged is lost, start the server again")]
    Store(StoreError),
    /// A part of it has ended that never should.
    #[error(
        "{0} has ended, which is a fault of posthaste; nothing that was acknowledged is lost, start the server again"
    )]
    Ended(&'static str),
}

impl Node {
    /// Starts a node. When this is done it takes requests, and sends.
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
        // The vault first: should the process die in between, there is a key without data, and never
        // data without a key.
        let vault = match (master_keys.map(Vault::open_or_create), &kept) {
            (None, _) => None,
            (Some(Ok(vault)), _) => Some(vault),
            (Some(Err(error @ VaultError::Missing { .. })), Kept::File(path)) => {
                // A file that is no store has no key to miss.
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
        // Known only now: port 0 has become a real one.
        api_settings.egress_rules.own_sockets = vec![address];

        let engine = Engine::new();
        let messenger = Arc::new(Messenger::new(engine.clone()));
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
        housekeeping::reseal(&*store, &vault, &clock).await?;
        notices::prepare(&*store, &clock, &means.settings).await?;

        let rules = api_settings.egress_rules.clone();
        let client = Client::new(ClientSettings {
            rules: rules.clone(),
            roots: roots.clone(),
            proxy,
            // As many as may be in flight to one endpoint: otherwise the busiest would close and open
            // connections all the time.
            max_idle_per_key: MAX_IN_FLIGHT as usize,
            ..ClientSettings::default()
        });
        let observe = Arc::new(metrics.observatory(means.settings.tenant.clone()));
        let telemetry = Telemetry::new(otlp, clock.clone(), chance::seed());
        let engine_settings = EngineSettings {
            store: store.clone(),
            store_settings,
            client,
            rules,
            vault: vault.clone(),
            observe: observe.clone(),
            telemetry: telemetry.clone(),
            clock: clock.clone(),
            dice: chance::seed(),
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
            // It can only have failed: nobody has told it to stop.
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
            chance::seed(),
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
        let tidying = housekeeping::start(
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
        let watching = Watch::new(&app, alerts.clone(), means.audience())
            .start(app.switchboard.clone(), stopped.clone());
        let herald = notices::start(Telling {
            store: store.clone(),
            clock: app.clock.clone(),
            switchboard: app.switchboard.clone(),
            hears: Arc::new(Hearing::new(store.clone(), app.clock.clone(), alerts)),
            observe: observe.clone(),
            means,
            stopped: stopped.clone(),
        });
        let keepers = vec![
            Keeper::new("the watch for alerts", Ends::WithTheNode, watching),
            Keeper::new("the herald", Ends::WithTheNode, herald),
            Keeper::new("the housekeeping", Ends::WithTheNode, tidying),
            Keeper::new(
                "the replayer",
                Ends::WithTheStore,
                tokio::spawn(replayer.run()),
            ),
            Keeper::new(
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The admin key that was made at the first start. It can be had once, and is stored nowhere.
    pub fn take_first_admin_key(&mut self) -> Option<String> {
        self.first_admin_key.take()
    }

    /// Waits until something has ended without which the node is of no use: it would take events and
    /// send none. That is for whoever started it to notice, and not for whoever waits for his events.
    pub async fn broken_down(&mut self) -> Breakdown {
        tokio::select! {
            why = self.engine.store_broken() => Breakdown::Store(why),
            ended = &mut self.sending => match ended {
                Ok(Err(why)) => Breakdown::Store(why),
                Ok(Ok(())) | Err(_) => Breakdown::Ended("the engine"),
            },
            _ = &mut self.serving => Breakdown::Ended("the API"),
            ended = any_ended(&mut self.keepers) => Breakdown::Ended(ended),
        }
    }

    /// Takes no more requests, sends nothing new, answers what is under way, waits for what is in flight and
    /// for letters, and closes the store. What does not come back within the grace is left for the next start.
    pub async fn stop(self) {
        self.stopping.send_replace(true);
        // At once, and not when every request is answered: one that is slow could use up the grace, and
        // what was sent in the meantime would be sent again at the next start.
        self.engine.calm_down();
        let in_flight = self.engine.flight_count();
        tracing::info!(in_flight, "stopping");
        let retired = async {
            // Others go on at once with whatever is not in flight here.
            if let Some(cluster) = self.store.cluster()
                && let Err(error) = cluster.retire().await
            {
                tracing::warn!(%error, "others will take over when the lease has ended");
            }
        };
        let drained = async {
            tokio::join!(ended(self.serving), retired);
            self.engine.shut_down().await;
        };
        // A letter that the mail server has taken must be known to be sent.
        let ended = all_ended(self.keepers);
        let (drained, ended) =
            tokio::join!(timeout(self.grace, drained), timeout(self.grace, ended));
        if ended.is_err() {
            tracing::warn!(
                "the grace period is over; a letter that is being sent may be sent again"
            );
        }
        if drained.is_err() {
            let in_flight = self.engine.flight_count();
            tracing::warn!(
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
            Ok(Ok(())) => tracing::info!("stopped"),
            Ok(Err(error)) => tracing::error!(%error, "the store did not close properly"),
            Err(_) => tracing::error!("the store did not close in time"),
        }
    }
}

async fn until(mut stopped: watch::Receiver<bool>) {
    // If the sender is gone, so is the node.
    let _ = stopped.wait_for(|stopping| *stopping).await;
}

/// What a store is opened with.
struct Opening<'a> {
    engine: &'a Engine,
    messenger: &'a Arc<Messenger>,
    clock: &'a Clock,
}

impl Opening<'_> {
    /// Opens the store, and the vault if its key is in it.
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
        assert!(matches!(why, Breakdown::Ended("the engine")), "{why}");
        node.stop().await;
    }

    #[tokio::test]
    async fn a_node_whose_api_has_ended_says_so_and_closes_its_store() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut node = node(directory.path()).await;
        let store = node.store.clone();
        node.serving.abort();
        let why = node.broken_down().await;
        assert!(matches!(why, Breakdown::Ended("the API")), "{why}");
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
        assert!(matches!(why, Breakdown::Store(_)), "{why}");
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
            // As long as a mail server takes.
            tokio::time::sleep(Duration::from_millis(300)).await;
            let _ = tell.send(store.told().await);
        });
        let writer = Keeper::new("a writer", Ends::WithTheNode, writing);
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
        let sleeper = Keeper::new("a sleeper", Ends::WithTheNode, sleeping);
        node.keepers.push(sleeper);
        node.stop().await;
    }
}
