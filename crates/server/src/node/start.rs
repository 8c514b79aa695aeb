//! The steps of a node's start.
//!
//! [`start`](Node::start) opens the store and the vault, then starts engine, notifications, background tasks and last
//! the listener. If a step fails, the node does not start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use posthaste_api::limits;
use posthaste_api::serve::listen;
use posthaste_api::{self as api, App};
use posthaste_core::address::EgressRules;
use posthaste_core::lane::MAX_IN_FLIGHT;
use posthaste_dashboard::{self as dashboard, Dashboard, DashboardSettings};
use posthaste_egress::{Client, ClientSettings, Proxy, Roots};
use posthaste_engine::maintenance;
use posthaste_engine::replayer::Replayer;
use posthaste_engine::vault::{KeySource, Vault, VaultError};
use posthaste_engine::{Engine, EnginePhase, EngineSettings};
use posthaste_notify::alerts::{AlertChecker, AlertSettings, EndpointAlerts};
use posthaste_notify::notifications::{self, Channels, NotificationTasks};
use posthaste_outbox as outbox;
use posthaste_scheduler as scheduler;
use posthaste_store::postgres::PostgresStore;
use posthaste_store::sqlite::{SqliteStore, recognise};
use posthaste_store::{Retention, Store, StoreError, StoreSettings};
use posthaste_system::clock::{Clock, ClockCorrection};
use posthaste_system::random;
use posthaste_telemetry::traces::{Exporter, Telemetry};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};

use super::background_tasks::{BackgroundTask, StopsWith};
use super::clock::{self, MachineClock};
use super::cluster_events::ClusterEventHandler;
use super::error::StartError;
use super::keys::{create_first_admin_key, shared_vault};
use super::running::{Node, stop_requested};
use super::settings::{NodeSettings, StoreBackend};
use crate::config::Role;

impl Node {
    /// Starts a node. When this returns, the node accepts requests and sends.
    pub async fn start(mut settings: NodeSettings) -> Result<Node, StartError> {
        let (clock, clock_correction) = Clock::corrected();
        check_directory(&settings.store)?;
        // Before any file is created, because this step fails most often.
        let listener = bind(settings.listen)?;
        // The vault comes before the store: if the process dies in between, there is a key without data, and never data
        // without a key.
        let new_key_file = NewKeyFile::expected(settings.master_keys.as_ref(), &settings.store);
        let vault = open_configured_vault(settings.master_keys.take(), &settings.store)?;
        let address = listener.local_addr().unwrap_or(settings.listen);
        // Known only now, because port 0 has been replaced by a real one.
        settings.api.egress_rules.own_sockets = vec![address];
        set_confirmation_url(&mut settings, address);

        let engine = Engine::new();
        let cluster_events = Arc::new(ClusterEventHandler::new(engine.clone()));
        let opening = StoreOpening {
            settings: settings.store_settings.clone(),
            engine: &engine,
            cluster_events: &cluster_events,
            clock: &clock,
            clock_correction,
        };
        let opened = opening.open(settings.store, vault).await;
        if let (Err(_), Some(new_key_file)) = (&opened, new_key_file) {
            new_key_file.remove_without_store();
        }
        let (store, vault, machine_clock) = opened?;
        let vault = Arc::new(vault);
        let first_admin_key = match settings.api.admin_keys.is_empty() {
            true => create_first_admin_key(&*store, &clock).await?,
            false => None,
        };
        maintenance::reseal(&*store, &vault, &clock).await?;
        notifications::prepare(&*store, &clock, &settings.channels.settings).await?;

        let operational_tenant = settings.channels.settings.tenant.clone();
        let metrics = Arc::new(settings.metrics.create_metrics(operational_tenant));
        let telemetry = Telemetry::new(settings.otlp, clock.clone(), random::seed());
        let rules = settings.api.egress_rules.clone();
        let engine_task = start_engine(
            &engine,
            EngineSettings {
                store: store.clone(),
                store_settings: settings.store_settings,
                client: delivery_client(&rules, &settings.roots, settings.proxy),
                rules,
                vault: vault.clone(),
                metrics: metrics.clone(),
                telemetry: telemetry.clone(),
                clock: clock.clone(),
                rng: random::seed(),
                limits: settings.limits,
                endpoint_defaults: settings.endpoint_defaults,
                protection: settings.protection,
                retry_after_cap: settings.retry_after_cap,
                lease: store.cluster().map(|cluster| cluster.lease()),
            },
        )
        .await?;

        limits::look_for_lost_plans(store.clone(), settings.api.plans.clone());
        let (stop, stopped) = watch::channel(false);
        let app = App::new(
            store.clone(),
            engine.clone(),
            vault,
            metrics,
            clock,
            random::seed(),
            settings.api,
        );
        let app = Arc::new(app.with_telemetry(telemetry));
        cluster_events.set_app(&app);
        let exporter = start_exporter(&app, settings.roots);
        let mut background_tasks = start_background_tasks(
            &app,
            settings.retention,
            settings.alerts,
            settings.channels,
            machine_clock,
            &stopped,
        );
        let readers = outbox::start(&app, settings.outboxes, &stopped).into_iter();
        background_tasks.extend(
            readers.map(|reader| {
                BackgroundTask::new("the reader of an outbox", StopsWith::Node, reader)
            }),
        );
        let scheduler = scheduler::start(&app, &stopped);
        let scheduler = BackgroundTask::new("the scheduler", StopsWith::Node, scheduler);
        background_tasks.push(scheduler);
        let api_task = start_api(app, settings.role, settings.dashboard, listener, stopped);
        Ok(Node {
            address,
            first_admin_key,
            store,
            engine,
            stop,
            api_task,
            engine_task,
            background_tasks,
            exporter,
            grace: settings.grace,
        })
    }
}

/// Sets the URL for the links in confirmation emails. Without `public_url`, a server that only this machine reaches uses its
/// own address, as in development; others send no confirmation emails.
fn set_confirmation_url(settings: &mut NodeSettings, address: SocketAddr) {
    let channels = &mut settings.channels;
    if channels.base_url.is_none() && address.ip().is_loopback() {
        channels.base_url = Some(format!("http://{address}"));
    }
    settings.api.owner_emails.sends_confirmations =
        channels.mailer.is_some() && channels.base_url.is_some();
}

/// Opens the vault with the configured master keys; `None` if the nodes share a key through their store.
fn open_configured_vault(
    master_keys: Option<KeySource>,
    store: &StoreBackend,
) -> Result<Option<Vault>, StartError> {
    match (master_keys.map(Vault::open_or_create), store) {
        (None, _) => Ok(None),
        (Some(Ok(vault)), _) => Ok(Some(vault)),
        (Some(Err(error @ VaultError::Missing { .. })), StoreBackend::Sqlite(path)) => {
            // If the file is not a store, that is the error to report, not the missing key.
            recognise(path)?;
            Err(error.into())
        }
        (Some(Err(error)), _) => Err(error.into()),
    }
}

/// Checks that the directory of a SQLite store exists.
pub fn check_directory(store: &StoreBackend) -> Result<(), StartError> {
    let StoreBackend::Sqlite(path) = store else {
        return Ok(());
    };
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() && !directory.is_dir() => {
            Err(StartError::NoDirectory {
                path: directory.to_owned(),
            })
        }
        Some(_) | None => Ok(()),
    }
}

/// A key file that this start creates. A start that fails removes it, if there is no store that may need it.
struct NewKeyFile {
    key_file: PathBuf,
    store: PathBuf,
}

impl NewKeyFile {
    /// Returns the key file that is created when the vault is opened, if one is.
    fn expected(master_keys: Option<&KeySource>, store: &StoreBackend) -> Option<NewKeyFile> {
        match (master_keys, store) {
            (
                Some(KeySource::File {
                    path,
                    may_create: true,
                }),
                StoreBackend::Sqlite(store),
            ) if !path.exists() => Some(NewKeyFile {
                key_file: path.clone(),
                store: store.clone(),
            }),
            _ => None,
        }
    }

    fn remove_without_store(&self) {
        if !self.store.exists() {
            // If it cannot be removed, the next start uses it.
            let _ = std::fs::remove_file(&self.key_file);
        }
    }
}

fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    listen(address).map_err(|error| StartError::Listen { address, error })
}

/// Dependencies of opening the store.
struct StoreOpening<'a> {
    settings: StoreSettings,
    engine: &'a Engine,
    cluster_events: &'a Arc<ClusterEventHandler>,
    clock: &'a Clock,
    clock_correction: Arc<ClockCorrection>,
}

impl StoreOpening<'_> {
    /// Opens the store, and the vault if its key is in the store. From then on the clock is corrected: by the clock of the
    /// database, or by that of the machine, which the caller has to keep following.
    async fn open(
        self,
        backend: StoreBackend,
        vault: Option<Vault>,
    ) -> Result<(Arc<dyn Store>, Vault, Option<MachineClock>), StartError> {
        let hand_over = self.engine.hand_over();
        let settings = self.settings;
        match backend {
            StoreBackend::Sqlite(path) => {
                let vault = vault.expect("a SQLite store has a configured master key");
                let opening = spawn_blocking(move || SqliteStore::open(&path, settings, hand_over));
                let store = opening.await.expect("opening the store does not panic")?;
                let store = Arc::new(store);
                let clock = MachineClock::open(store.clone(), self.clock_correction).await?;
                Ok((store, vault, Some(clock)))
            }
            StoreBackend::Postgres(shared) => {
                let shared = shared.settings(self.clock.clone(), self.clock_correction);
                let cluster_events = self.cluster_events.clone();
                let opening = spawn_blocking(move || {
                    PostgresStore::open(shared, settings, hand_over, cluster_events)
                });
                let store = opening.await.expect("opening the store does not panic")?;
                let vault = shared_vault(&store, vault).await?;
                Ok((Arc::new(store), vault, None))
            }
        }
    }
}

/// Creates the client that sends deliveries.
fn delivery_client(rules: &EgressRules, roots: &Roots, proxy: Option<Proxy>) -> Client {
    Client::new(ClientSettings {
        rules: rules.clone(),
        roots: roots.clone(),
        proxy,
        // As many as may be in flight to one endpoint. Otherwise the busiest endpoints would close and open
        // connections all the time.
        max_idle_per_key: MAX_IN_FLIGHT as usize,
        ..ClientSettings::default()
    })
}

/// Starts the engine's task, and waits until the engine has read its backlog.
async fn start_engine(
    engine: &Engine,
    settings: EngineSettings,
) -> Result<JoinHandle<Result<(), StoreError>>, StartError> {
    let mut task = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(settings).await }
    });
    engine.started().await;
    if engine.phase() == EnginePhase::Stopped {
        // It must have failed, because no stop was requested.
        (&mut task).await.expect("the engine does not panic")?;
    }
    Ok(task)
}

/// Starts the export of traces and metrics, if a collector is configured.
fn start_exporter(app: &Arc<App>, roots: Roots) -> Option<Exporter> {
    let source = app.clone();
    app.telemetry.export(
        roots,
        Box::new(move || {
            let app = source.clone();
            Box::pin(async move { api::metrics::all(&app).await })
        }),
    )
}

/// Starts the tasks that run beside the engine and the API.
fn start_background_tasks(
    app: &Arc<App>,
    retention: Retention,
    alerts: AlertSettings,
    channels: Channels,
    machine_clock: Option<MachineClock>,
    stopped: &watch::Receiver<bool>,
) -> Vec<BackgroundTask> {
    let retention_runs = maintenance::start(
        app.store.clone(),
        app.clock.clone(),
        retention,
        app.owner_router.clone(),
        stopped.clone(),
    );
    let engine = app.engine.clone();
    let replayer = Replayer::new(
        app.store.clone(),
        app.clock.clone(),
        app.replay_wakeup.clone(),
        Box::new(move |endpoint, due| engine.work(endpoint, due)),
    )
    .shared_with(app.owner_router.clone());
    let alert_checks = AlertChecker::new(
        app.store.clone(),
        app.clock.clone(),
        app.queue_age.clone(),
        app.owner_router.clone(),
        alerts.clone(),
        channels.audience(),
    )
    .start(app.owner_router.clone(), stopped.clone());
    let notifications = notifications::start(NotificationTasks {
        store: app.store.clone(),
        clock: app.clock.clone(),
        owner_router: app.owner_router.clone(),
        observer: Arc::new(EndpointAlerts::new(
            app.store.clone(),
            app.clock.clone(),
            alerts,
        )),
        metrics: app.metrics.clone(),
        channels,
        stopped: stopped.clone(),
    });
    let clock = clock::start(app.clock.clone(), machine_clock, stopped.clone());
    let replays = tokio::spawn(replayer.run());
    // The names are part of an error message.
    vec![
        BackgroundTask::new("the alert checker", StopsWith::Node, alert_checks),
        BackgroundTask::new(
            "the notification dispatcher",
            StopsWith::Node,
            notifications,
        ),
        BackgroundTask::new("the maintenance task", StopsWith::Node, retention_runs),
        BackgroundTask::new("the clock task", StopsWith::Node, clock),
        BackgroundTask::new("the replay task", StopsWith::Store, replays),
    ]
}

/// Serves the routes of this node's role until the node stops.
fn start_api(
    app: Arc<App>,
    role: Role,
    dashboard: DashboardSettings,
    listener: TcpListener,
    stopped: watch::Receiver<bool>,
) -> JoinHandle<io::Result<()>> {
    tokio::spawn(async move {
        let settings = app.settings.clone();
        let metrics = app.metrics.clone();
        let stop = stop_requested(stopped.clone());
        let router = match role.answers() {
            true => {
                let is_enabled = dashboard.enabled;
                let dashboard = Arc::new(Dashboard::new(app.clone(), dashboard, stopped));
                let pages = match is_enabled {
                    true => dashboard::router(dashboard),
                    false => dashboard::confirmation_router(dashboard),
                };
                api::router(app).merge(pages)
            }
            false => api::probes_only(app),
        };
        api::serve::serve(listener, router, &settings, metrics, stop).await
    })
}
