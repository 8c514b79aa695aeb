//! Sends spans and metrics to the collector. Tolerates a collector that is unavailable.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use posthaste_egress::Roots;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::line::{Line, Taken};
use super::{TelemetryState, otlp, unix_time};
use crate::metrics::metric::Metric;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::telemetry::exporter";

/// Time for which spans wait for others, to be sent in one request.
const LINGER: Duration = Duration::from_secs(1);
/// Time for which spans are offered to a collector that does not accept them.
const SPAN_PATIENCE: Duration = Duration::from_secs(60);
/// Time for which a shutdown waits for the remaining spans and metrics.
const FLUSH_TIME: Duration = Duration::from_secs(3);

/// Function that returns the current metrics.
pub type Source = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Vec<Metric>> + Send>> + Send + Sync>;

/// Background tasks that send to the collector.
pub struct Exporter {
    stopping: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    station: Arc<TelemetryState>,
}

pub(super) fn start(station: Arc<TelemetryState>, roots: Roots, source: Source) -> Exporter {
    let (stopping, stopped) = watch::channel(false);
    let mut tasks = Vec::new();
    let line = |path: &str| Line::new(&station, &roots, path, stopped.clone());
    if station.settings.traces {
        let line = line(otlp::TRACES_PATH);
        let telling = tell_spans(station.clone(), line, stopped.clone());
        tasks.push(tokio::spawn(telling));
    }
    if station.settings.metrics {
        let line = line(otlp::METRICS_PATH);
        let telling = tell_metrics(station.clone(), line, source, stopped.clone());
        tasks.push(tokio::spawn(telling));
    }
    Exporter {
        stopping,
        tasks,
        station,
    }
}

impl Exporter {
    /// Sends what remains, within a short time limit, and ends the tasks.
    pub async fn close(self) {
        self.stopping.send_replace(true);
        let end = Instant::now() + FLUSH_TIME;
        for task in self.tasks {
            let ending = task.abort_handle();
            if timeout_at(end, task).await.is_err() {
                ending.abort();
            }
        }
        let spans = self.station.queue.len();
        if spans > 0 {
            self.station.queue.drop_spans(spans as u64);
            tracing::warn!(target: LOG_TARGET, spans, "the collector did not take the last spans in time");
        }
    }
}

async fn tell_spans(
    station: Arc<TelemetryState>,
    mut line: Line,
    mut stopped: watch::Receiver<bool>,
) {
    loop {
        let stopping = tokio::select! {
            () = station.queue.enough() => false,
            () = sleep(LINGER) => false,
            _ = stopped.wait_for(|stopping| *stopping) => true,
        };
        loop {
            let spans = station.queue.take();
            if spans.is_empty() {
                break;
            }
            let body = otlp::traces(&station, &spans);
            match line.deliver(body.into(), SPAN_PATIENCE).await {
                Taken::All => {}
                Taken::AllBut(rejected) => station.queue.drop_spans(rejected),
                Taken::Nothing => station.queue.drop_spans(spans.len() as u64),
            }
        }
        if stopping {
            return;
        }
    }
}

async fn tell_metrics(
    station: Arc<TelemetryState>,
    mut line: Line,
    source: Source,
    mut stopped: watch::Receiver<bool>,
) {
    let interval = Duration::from_millis(station.settings.interval.as_millis());
    loop {
        let stopping = tokio::select! {
            () = sleep(interval) => false,
            _ = stopped.wait_for(|stopping| *stopping) => true,
        };
        let metrics = source().await;
        let body = otlp::metrics(&station, unix_time(&station.clock), &metrics);
        // The next reading contains everything that this one does, so retrying longer than one interval is useless.
        match line.deliver(body.into(), interval).await {
            Taken::All | Taken::AllBut(_) => {}
            Taken::Nothing => station.queue.drop_reading(),
        }
        if stopping {
            return;
        }
    }
}
