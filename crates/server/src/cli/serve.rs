//! `posthaste serve`: runs the server until a stop signal.

use std::time::Duration;

use posthaste_system::clock::Clock;
use posthaste_telemetry::logging;
use tokio::time::Instant;

use super::error::CommandError;
use super::output;
use super::runtime::{self, StopSignals};
use super::serve_args::ServeArgs;
use crate::config::Config;
use crate::node::{Node, NodeSettings, check_directory};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::cli::serve";

/// A second signal within this time counts as the same request. `timeout` and some supervisors signal the process and
/// then its group, and a terminal signals all processes in it.
const SAME_SIGNAL_WITHIN: Duration = Duration::from_secs(1);

/// Runs the server until SIGTERM or SIGINT.
pub fn run(args: &ServeArgs) -> Result<(), CommandError> {
    let config = Config::load(args, std::env::vars_os()).map_err(CommandError::Config)?;
    if args.check {
        return check(&config);
    }
    let _logs = logging::start(&config.log, Clock::system());
    for warning in config.warnings() {
        tracing::warn!(target: LOG_TARGET, "{warning}");
    }
    let settings = NodeSettings::from_config(&config)?;
    let runtime = runtime::multi_threaded()?;
    let ended = runtime.block_on(serve(settings));
    // A DNS lookup that waits for a silent name server cannot be cancelled. Its answer is no longer needed.
    runtime.shutdown_background();
    ended
}

/// Reports what is wrong with the configuration. Creates no files and connects to nothing.
fn check(config: &Config) -> Result<(), CommandError> {
    for warning in config.warnings() {
        output::print_hint(&format!("warning: {warning}"));
    }
    let settings = NodeSettings::from_config(config)?;
    check_directory(&settings.store)?;
    output::print(&format!(
        "The configuration is valid: listen on {}, store {}\n",
        config.listen, config.store
    ))
}

async fn serve(settings: NodeSettings) -> Result<(), CommandError> {
    // Registered first, so that a signal during the start is not lost.
    let mut signals = StopSignals::register()?;
    let mut node = Node::start(settings).await?;
    if let Some(key) = node.take_first_admin_key() {
        output::print_notice(&format!(
            "First start. The admin key, which is shown only once:\n\n    {key}\n\nSet POSTHASTE_KEY to it for the other commands. To open the dashboard, sign in with it: http://{}/dashboard\n",
            node.address()
        ));
    }
    output::print(&format!("posthaste listens on http://{}\n", node.address()))?;
    tokio::select! {
        () = signals.recv() => {}
        failure = node.failed() => return Err(CommandError::NodeFailed(failure)),
    }
    let stop_requested_at = Instant::now();
    // A second signal means: stop without waiting.
    let second_signal = async {
        while stop_requested_at.elapsed() < SAME_SIGNAL_WITHIN {
            signals.recv().await;
        }
    };
    tokio::select! {
        () = node.stop() => Ok(()),
        () = second_signal => Err(CommandError::SecondSignal),
    }
}
