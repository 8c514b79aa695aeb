//! Scenario `retention`: cost of deleting expired data at full delivery speed, and whether the file stops growing.
//!
//! Many events are delivered and stored. Then the tenant's retention period is set to one second, so that all of them
//! expire while the server delivers as many new events as it can; those expire one second later too. When the first
//! events are deleted, rounds follow in which deletions keep up with new events. The speed during deletion is
//! compared with the speed before and after, when there is nothing to delete.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use posthaste_charts::format;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{EVENT_TYPE, full_speed, single_endpoint};
use crate::api::Api;
use crate::error::BenchError;
use crate::fixture::Fixture;
use crate::progress::Progress;
use crate::report::{ScenarioResult, bytes, number, percentiles, row};
use crate::settings::Settings;
use crate::statistics::ratio;

/// Default number of events to delete.
const STORED: usize = 1_000_000;
/// Events are sent in pieces; each is this fraction of the stored events.
const PIECES: usize = 20;
/// Maximum number of pieces that are sent while the stored events are deleted.
const MAX_PIECES: usize = 60;
/// Number of rounds in which deletions keep up with new events.
const ROUNDS: usize = 5;
/// Retention period while nothing expires, and while everything does.
const LONG_RETENTION: &str = "30d";
const SHORT_RETENTION: &str = "1s";
/// Maximum number of uncounted events before a measurement, which open connections and fill caches.
const MAX_WARM_UP: usize = 2_000;
/// Maximum time until the event sent last is deleted.
const MAX_DELETION_TIME: Duration = Duration::from_secs(900);
/// Interval between two checks for that.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Target: maximum loss of speed during deletion, in percent.
const MAX_LOSS_PERCENT: f64 = 10.0;

/// Measurement over some events.
struct Measured {
    events: Range<usize>,
    per_second: Option<f64>,
}

/// Size of the database file and of its write-ahead log, in bytes.
#[derive(Clone, Copy)]
struct Size {
    file: u64,
    log: u64,
}

/// Sends events and counts them.
struct Sender<'a> {
    settings: &'a Settings,
    fixture: Fixture,
    sent: usize,
    piece: usize,
}

/// Runs the scenario.
pub async fn run(settings: &Settings) -> Result<ScenarioResult, BenchError> {
    let stored = settings.events.unwrap_or(STORED);
    let piece = (stored / PIECES).max(1);
    let total = stored + piece * (MAX_PIECES + ROUNDS + 8);
    let fixture = single_endpoint(settings, total).await?;
    let mut sender = Sender {
        settings,
        fixture,
        sent: 0,
        piece,
    };
    sender.prevent_partition_drop().await?;
    sender.send(stored, "storing").await?;
    sender = sender.set_retention(LONG_RETENTION).await?;
    let before = sender.measure("before").await?;
    let full = sender.size();
    let last = sender.newest_event().await?;

    sender = sender.set_retention(SHORT_RETENTION).await?;
    let began = Instant::now();
    let from = sender.sent;
    let mut sizes = Vec::new();
    let mut pieces = 0;
    while pieces < MAX_PIECES && sender.exists(&last).await? {
        sender.send(piece, "while removing").await?;
        sizes.extend(sender.size());
        pieces += 1;
    }
    let during = sender.measured(from..sender.sent);
    sender.await_deletion(&last).await?;
    let removed_within = began.elapsed();
    let mut rounds = Vec::new();
    for nth in 1..=ROUNDS {
        let what = format!("as much in as out, round {nth} of {ROUNDS}");
        sender.send(piece, &what).await?;
        let last = sender.newest_event().await?;
        sender.await_deletion(&last).await?;
        rounds.extend(sender.size());
    }
    sender = sender.set_retention(LONG_RETENTION).await?;
    let after = sender.measure("after").await?;
    sender.fixture.check(0..1, 0..sender.sent).await?;
    Ok(RetentionResult {
        stored,
        before,
        during,
        after,
        removed_within,
        full,
        sizes,
        rounds,
    }
    .outcome(&sender))
}

impl Sender<'_> {
    fn tenant(&self) -> String {
        format!("/v1/tenants/{}", self.fixture.target.tenant)
    }

    async fn api(&self) -> Result<Api, BenchError> {
        self.fixture.api().await
    }

    /// On PostgreSQL, a complete day is dropped as one partition, which costs almost nothing. To make the server
    /// delete row by row, another tenant keeps one event of the day for longer.
    async fn prevent_partition_drop(&mut self) -> Result<(), BenchError> {
        let mut api = self.api().await?;
        let patient = json!({"id": "patient", "name": "Patient"});
        api.post("/v1/tenants", Some(&patient)).await?;
        let event = json!({"type": EVENT_TYPE, "payload": {}});
        api.post("/v1/tenants/patient/events", Some(&event)).await?;
        Ok(())
    }

    /// Changes the retention period. Restarts the server, so that a retention run starts at once, and warms it up.
    async fn set_retention(mut self, period: &str) -> Result<Self, BenchError> {
        let mut api = self.api().await?;
        let limits = json!({"limits": {"retention": period}});
        api.patch(&self.tenant(), &limits).await?;
        (self.fixture, _, _) = self.fixture.restart().await?;
        self.send(self.piece.min(MAX_WARM_UP), "warming up").await?;
        Ok(self)
    }

    /// Sends this number of events and waits until all have arrived.
    async fn send(&mut self, count: usize, what: &str) -> Result<Range<usize>, BenchError> {
        let events = self.sent..self.sent + count;
        let progress = Progress::new(what, events.end as u64);
        let load = full_speed(self.settings, events.clone());
        self.fixture.run(load, 0..1, &progress).await?;
        self.sent = events.end;
        Ok(events)
    }

    /// Measures the speed of two pieces with nothing to delete.
    async fn measure(&mut self, what: &str) -> Result<Measured, BenchError> {
        let events = self.send(2 * self.piece, what).await?;
        Ok(self.measured(events))
    }

    fn measured(&self, events: Range<usize>) -> Measured {
        Measured {
            per_second: self.fixture.recorder.deliveries_per_second(events.clone()),
            events,
        }
    }

    /// Returns the id of the newest event.
    async fn newest_event(&self) -> Result<String, BenchError> {
        let path = format!("{}/events?limit=1", self.tenant());
        let listed = self.api().await?.get(&path).await?;
        let id = listed["data"][0]["id"].as_str();
        Ok(id.unwrap_or_default().to_owned())
    }

    /// Returns whether an event still exists.
    async fn exists(&self, event: &str) -> Result<bool, BenchError> {
        let path = format!("{}/events/{event}", self.tenant());
        match self.api().await?.get(&path).await {
            Ok(_) => Ok(true),
            Err(BenchError::Refused { status: 404, .. }) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Waits until an event, and so every earlier one, is deleted.
    async fn await_deletion(&self, event: &str) -> Result<(), BenchError> {
        let started_at = Instant::now();
        while !event.is_empty() && self.exists(event).await? {
            if started_at.elapsed() > MAX_DELETION_TIME {
                return Err(BenchError::Stalled {
                    what: "the removal of what was sent".to_owned(),
                    seconds: MAX_DELETION_TIME.as_secs(),
                    stderr_tail: self.fixture.process.stderr_tail(),
                });
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Returns the size of the store's file, if it is SQLite.
    fn size(&self) -> Option<Size> {
        let file = self.fixture.file(self.settings)?;
        let log = format!("{}-wal", file.display());
        let length = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
        Some(Size {
            file: length(&file),
            log: length(Path::new(&log)),
        })
    }
}

/// All measurements of the scenario.
struct RetentionResult {
    stored: usize,
    before: Measured,
    during: Measured,
    after: Measured,
    removed_within: Duration,
    full: Option<Size>,
    sizes: Vec<Size>,
    rounds: Vec<Size>,
}

impl RetentionResult {
    /// Returns the speed during deletion, divided by the mean of the speeds before and after.
    fn ratio(&self) -> Option<f64> {
        let quiet = self.before.per_second?.midpoint(self.after.per_second?);
        ratio(self.during.per_second?, quiet)
    }

    fn outcome(self, sender: &Sender<'_>) -> ScenarioResult {
        let line = |name: &str, measured: &Measured| {
            let latency = sender
                .fixture
                .recorder
                .accept_latency(measured.events.clone());
            row(&[
                name,
                &format::count(measured.events.len() as u64),
                &number(measured.per_second),
                &percentiles(latency),
            ])
        };
        let size = |size: &Size| json!({"file_bytes": size.file, "log_bytes": size.log});
        let stored = format::count(self.stored as u64);
        let ratio = self.ratio();
        let mut notes = vec![format!(
            "All {stored} were gone after {:.0} s. While they went, deliveries came to {} of the speed with nothing to \
             remove, the middle of before and after (target: a loss under {MAX_LOSS_PERCENT:.0} %).",
            self.removed_within.as_secs_f64(),
            number(ratio),
        )];
        notes.extend(self.full.map(|full| {
            let listed = |sizes: &[Size]| {
                let each = sizes.iter().map(|size| bytes(Some(size.file as f64)));
                each.collect::<Vec<_>>().join(", ")
            };
            let log = self.sizes.iter().chain(&self.rounds).map(|size| size.log);
            format!(
                "The file held {} when all were stored. After each piece while they went: {}. After each round of as much in \
                 as out: {}. Its log was {} at most.",
                bytes(Some(full.file as f64)),
                listed(&self.sizes),
                listed(&self.rounds),
                bytes(Some(log.max().unwrap_or(0) as f64)),
            )
        }));
        let measured = |measured: &Measured| json!({"events": measured.events.len(), "deliveries_per_second": measured.per_second});
        ScenarioResult {
            name: "retention",
            setting: format!(
                "{stored} finished deliveries of {} bytes are removed while others are made as fast as {} connections are answered",
                sender.settings.payload_bytes, sender.settings.connections,
            ),
            table: vec![
                row(&["", "events", "deliveries/s", "accept p50 / p99, ms"]),
                line("before", &self.before),
                line("while they are removed", &self.during),
                line("after", &self.after),
            ],
            notes,
            document: json!({
                "removed": self.stored,
                "removed_within_ms": self.removed_within.as_millis() as u64,
                "before": measured(&self.before),
                "while_removing": measured(&self.during),
                "after": measured(&self.after),
                "ratio": ratio,
                "full": self.full.as_ref().map(size),
                "sizes_while_removing": self.sizes.iter().map(size).collect::<Vec<Value>>(),
                "sizes_of_rounds": self.rounds.iter().map(size).collect::<Vec<Value>>(),
                "targets": {"loss": MAX_LOSS_PERCENT / 100.0},
            }),
        }
    }
}
