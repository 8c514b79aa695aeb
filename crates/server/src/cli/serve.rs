//! `posthaste serve`: runs the server until a stop signal.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::time::Span;
use posthaste_engine::database::with_password;
use posthaste_notify::notifications::Channels;
use posthaste_notify::notifications::mail::SendEmail;
use posthaste_store::{Retention, StoreSettings};
use posthaste_system::clock::Clock;
use posthaste_system::random;
use posthaste_telemetry::logging;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use super::failure::Failure;
use super::output;
use super::serve_args::ServeArgs;
use crate::config::{Config, StoreLocation};
use crate::node::SharedStore;
use crate::node::{Kept, Node, NodeSettings};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::cli::serve";

/// A second signal within this time counts as the same request. `timeout` and some supervisors signal the process and
/// then its group, and a terminal signals all processes in it.
const SAME_SIGNAL_WITHIN: Duration = Duration::from_secs(1);

/// Runs the server until SIGTERM or SIGINT.
pub fn run(args: &ServeArgs) -> Result<(), Failure> {
    let config = Config::load(args, std::env::vars_os()).map_err(Failure::Misconfigured)?;
    let _logs = logging::start(&config.log, Clock::system());
    for warning in config.warnings() {
        tracing::warn!(target: LOG_TARGET, "{warning}");
    }
    let settings = node_settings(&config)?;
    let runtime = runtime()?;
    let ended = runtime.block_on(serve(settings));
    // A DNS lookup that waits for a silent name server cannot be cancelled. Its answer is no longer needed.
    runtime.shutdown_background();
    ended
}

async fn serve(settings: NodeSettings) -> Result<(), Failure> {
    // Registered first, so that a signal during the start is not lost.
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::Unprepared)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::Unprepared)?;
    let mut node = Node::start(settings).await.map_err(Failure::NotStarted)?;
    if let Some(key) = node.take_first_admin_key() {
        output::note(&format!(
            "This is the first start. The admin key, which is shown only now:\n\n    {key}\n\nThe other commands take it from POSTHASTE_KEY. The page asks for it: http://{}/dashboard\n",
            node.address()
        ));
    }
    output::print(&format!("posthaste listens on http://{}\n", node.address()))?;
    tokio::select! {
        () = stop_signal(&mut terminate, &mut interrupt) => {}
        why = node.broken_down() => return Err(Failure::BrokenDown(why)),
    }
    let asked = Instant::now();
    // A second signal means: stop without waiting.
    let hurried = async {
        while asked.elapsed() < SAME_SIGNAL_WITHIN {
            stop_signal(&mut terminate, &mut interrupt).await;
        }
    };
    tokio::select! {
        () = node.stop() => Ok(()),
        () = hurried => Err(Failure::Hurried),
    }
}

/// Waits for a stop signal.
async fn stop_signal(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Creates the async runtime.
pub fn runtime() -> Result<Runtime, Failure> {
    let runtime = Builder::new_multi_thread().enable_all().build();
    runtime.map_err(Failure::Unprepared)
}

/// Derives the node's settings from the configuration.
pub fn node_settings(config: &Config) -> Result<NodeSettings, Failure> {
    config.check_role().map_err(Failure::Misconfigured)?;
    config.check_mail().map_err(Failure::Misconfigured)?;
    Ok(NodeSettings {
        listen: config.listen,
        store: store_location(config),
        role: config.role,
        store_settings: StoreSettings {
            default_policy: config.retry_policy.clone(),
            plans: Arc::new(config.plans()),
            ..StoreSettings::new(random::seed())
        },
        master_keys: config.key_source(),
        api: config.api_settings(),
        dashboard: config.dashboard.clone(),
        roots: config.roots().map_err(Failure::Roots)?,
        proxy: config.proxy(),
        limits: config.engine.dispatcher_limits(),
        breaker: config.breaker.clone(),
        means: means(config).map_err(Failure::Roots)?,
        retry_after_cap: config.engine.retry_after_cap,
        metrics: config.metrics,
        retention: Retention {
            payloads: config.payload_retention,
            attempts: config.attempt_retention,
            plans: Arc::new(config.plans.clone()),
            ..Retention::all(config.retention, 0)
        },
        alerts: config.alerts.clone(),
        grace: duration(config.grace),
        otlp: config.otlp.clone(),
    })
}

/// Returns the channels for notifications.
fn means(config: &Config) -> Result<Channels, String> {
    let post = config.post()?;
    Ok(Channels {
        settings: config.notices.clone(),
        mail: config.mail.clone(),
        post: post.map(|post| Arc::new(post) as Arc<dyn SendEmail>),
    })
}

/// Returns the location of the store.
fn store_location(config: &Config) -> Kept {
    match &config.store {
        StoreLocation::Sqlite(path) => Kept::File(path.clone()),
        StoreLocation::Postgres(url) => {
            let listen = config.store_listen.as_ref();
            Kept::Shared(Box::new(SharedStore {
                server: with_password(url.server()),
                listen: listen.map(|url| with_password(url.server())),
                role: config.role,
                lease: config.lease,
                connections: config.store_connections,
            }))
        }
    }
}

fn duration(span: Span) -> Duration {
    Duration::from_millis(span.as_millis())
}
