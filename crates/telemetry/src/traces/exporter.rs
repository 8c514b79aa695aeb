//! Sends spans and metrics to the collector.
//!
//! [`Exporter`] sends spans in batches, and metrics at intervals. A collector that is unavailable costs a bounded
//! number of spans and delays nothing else. Closing sends what remains, within a time limit.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use posthaste_egress::Roots;
use posthaste_system::periodic_task::stopped_within;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::collector_client::{Accepted, CollectorClient};
use super::{TelemetryState, otlp, unix_time};
use crate::metrics::metric::Metric;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::telemetry::exporter";

/// Time for which spans wait for others, to be sent in one request.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// Time for which spans are offered to a collector that does not accept them.
const SPAN_RETRY_TIME: Duration = Duration::from_secs(60);
/// Time for which a shutdown waits for the remaining spans and metrics.
const FINAL_FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// Function that returns the current metrics.
pub type MetricsSource =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = Vec<Metric>> + Send>> + Send + Sync>;

/// Background tasks that send to the collector.
pub struct Exporter {
    stopping: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    state: Arc<TelemetryState>,
}

pub(super) fn start(state: Arc<TelemetryState>, roots: Roots, source: MetricsSource) -> Exporter {
    let (stopping, stopped) = watch::channel(false);
    let mut tasks = Vec::new();
    let client = |path: &str| CollectorClient::new(&state, &roots, path, stopped.clone());
    if state.settings.traces {
        let client = client(otlp::TRACES_PATH);
        tasks.push(tokio::spawn(export_spans(
            state.clone(),
            client,
            stopped.clone(),
        )));
    }
    if state.settings.metrics {
        let client = client(otlp::METRICS_PATH);
        let exporting = export_metrics(state.clone(), client, source, stopped.clone());
        tasks.push(tokio::spawn(exporting));
    }
    Exporter {
        stopping,
        tasks,
        state,
    }
}

impl Exporter {
    /// Sends what remains, within a short time limit, and ends the tasks.
    pub async fn close(self) {
        self.stopping.send_replace(true);
        let end = Instant::now() + FINAL_FLUSH_TIMEOUT;
        for task in self.tasks {
            let ending = task.abort_handle();
            if timeout_at(end, task).await.is_err() {
                ending.abort();
            }
        }
        let spans = self.state.queue.len();
        if spans > 0 {
            self.state.queue.drop_spans(spans as u64);
            tracing::warn!(target: LOG_TARGET, spans, "the collector did not accept the last spans in time");
        }
    }
}

/// Sends spans until the exporter is closed, and then those that remain.
async fn export_spans(
    state: Arc<TelemetryState>,
    mut client: CollectorClient,
    mut stopped: watch::Receiver<bool>,
) {
    let mut is_last = false;
    while !is_last {
        is_last = tokio::select! {
            () = state.queue.batch_ready() => false,
            is_stopped = stopped_within(&mut stopped, BATCH_DELAY) => is_stopped,
        };
        loop {
            let spans = state.queue.take();
            if spans.is_empty() {
                break;
            }
            let body = otlp::traces(&state, &spans);
            match client.deliver(body.into(), SPAN_RETRY_TIME).await {
                Accepted::All => {}
                Accepted::AllBut(rejected) => state.queue.drop_spans(rejected),
                Accepted::Nothing => state.queue.drop_spans(spans.len() as u64),
            }
        }
    }
}

/// Sends a reading of the metrics after every interval, and a last one when the exporter is closed.
async fn export_metrics(
    state: Arc<TelemetryState>,
    mut client: CollectorClient,
    source: MetricsSource,
    mut stopped: watch::Receiver<bool>,
) {
    let interval = Duration::from_millis(state.settings.interval.as_millis());
    let mut is_last = false;
    while !is_last {
        is_last = stopped_within(&mut stopped, interval).await;
        let metrics = source().await;
        let body = otlp::metrics(&state, unix_time(&state.clock), &metrics);
        // The next reading contains everything that this one does, so retrying longer than one interval is useless.
        match client.deliver(body.into(), interval).await {
            Accepted::All | Accepted::AllBut(_) => {}
            Accepted::Nothing => state.queue.drop_reading(),
        }
    }
}
