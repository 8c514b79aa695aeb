//! Measures the cost of one delivered event for the store: accepted in a group, then recorded as delivered.
//!
//! `cargo run --release --example cost -- [STORED…] [--endpoints N] [--dir PATH]`: for each number of finished events
//! that are already in the file, measures 100,000 more in groups of 256.
//!
//! With `--store postgres://…` it measures an empty database instead. The CPU time is then that of the server's
//! processes for that database, and the written bytes are not reported.
#![expect(
    clippy::disallowed_methods,
    reason = "a measurement reaches its own server without the egress crate"
)]

#[path = "../tests/engines/mod.rs"]
mod engines;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use posthaste_core::classify::{Classification, HttpStatus, Outcome};
use posthaste_core::delivery::{Delivery, SettledAttempt, State, Trigger};
use posthaste_core::dispatcher::{AttemptRecord, Record};
use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::rng::Rng;
use posthaste_core::time::Timestamp;
use posthaste_store::postgres::{PostgresStore, ServerUrl};
use posthaste_store::sqlite::SqliteStore;
use posthaste_store::{
    AttemptDetail, Content, CreateResult, DeliveryFilter, Endpoint, HandOver, HandedOver, NewEvent,
    PageRequest, Store, StoreError, StoreSettings, Tenant,
};

const MEASURED: u64 = 100_000;
const GROUP: usize = 256;
const FILLING_GROUP: usize = 4_096;
/// Number of endpoints per tenant. Each subscribes to a different event type.
const PER_TENANT: u64 = 10;
const START_MS: u64 = 1_700_000_000_000;
const PAYLOAD: &[u8] = &[b'x'; 200];

#[derive(Default)]
struct Taken(Mutex<Vec<HandedOver>>);

impl HandOver for Taken {
    fn accepted(&self, deliveries: Vec<HandedOver>) {
        self.0.lock().expect("no panic").extend(deliveries);
    }

    fn broken(&self, why: &StoreError) {
        panic!("{why}");
    }
}

struct Bench {
    store: Arc<dyn Store>,
    /// The database whose server processes are measured; `None` to measure this process.
    database: Option<String>,
    taken: Arc<Taken>,
    endpoints: u64,
    clock_ms: u64,
}

fn main() {
    let mut sizes = Vec::new();
    let mut endpoints = 1_000;
    let mut parent = std::env::temp_dir();
    let mut url: Option<String> = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--endpoints" => endpoints = value(args.next()),
            "--store" => url = Some(args.next().expect("a URL")),
            "--dir" => parent = args.next().expect("a path").into(),
            _ => sizes.push(value(Some(arg))),
        }
    }
    if sizes.is_empty() {
        sizes = vec![0, 1_000_000];
    }
    let directory = tempfile::tempdir_in(parent).expect("a directory");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    println!(
        "| stored | endpoints | events/s | CPU µs per event | KB written per event | \
         p99 of a group, ms | newest 50, ms |"
    );
    println!("|---|---|---|---|---|---|---|");
    runtime.block_on(async {
        let taken = Arc::new(Taken::default());
        let settings = StoreSettings::new(Rng::seeded(1));
        let mut database = None;
        let store: Arc<dyn Store> = match url {
            None => {
                let path = directory.path().join("cost.db");
                Arc::new(SqliteStore::open(path, settings, taken.clone()).expect("it opens"))
            }
            Some(url) => {
                let server: ServerUrl = url.parse().expect("a URL");
                database = Some(server.database().to_owned());
                let server = engines::settings(server);
                let cluster_events = Arc::new(engines::IgnoreClusterEvents);
                let store = PostgresStore::open(server, settings, taken.clone(), cluster_events);
                Arc::new(store.expect("it opens"))
            }
        };
        let mut bench = Bench::open(store, database, taken, endpoints).await;
        let mut stored = 0;
        for size in sizes {
            if size > stored {
                bench.run(size - stored, FILLING_GROUP).await;
                stored = size;
            }
            bench.measure(stored).await;
            stored += MEASURED;
        }
    });
}

fn value(text: Option<String>) -> u64 {
    text.and_then(|text| text.parse().ok())
        .expect("a whole number")
}

impl Bench {
    async fn open(
        store: Arc<dyn Store>,
        database: Option<String>,
        taken: Arc<Taken>,
        endpoints: u64,
    ) -> Bench {
        let now = Timestamp(START_MS);
        for number in 1..=endpoints {
            if (number - 1) % PER_TENANT == 0 {
                let created = store.create_tenant(now, tenant(now, number)).await;
                assert_eq!(created, Ok(CreateResult::Created));
            }
            let created = store.create_endpoint(now, endpoint(now, number), u32::MAX);
            assert_eq!(created.await, Ok(CreateResult::Created));
        }
        Bench {
            store,
            database,
            taken,
            endpoints,
            clock_ms: START_MS,
        }
    }

    /// Accepts and delivers `events` events. Returns the duration of each group.
    async fn run(&mut self, events: u64, group: usize) -> Vec<Duration> {
        let contents: Vec<Arc<Content>> = (0..PER_TENANT).map(content).collect();
        let mut took = Vec::new();
        let mut done = 0;
        while done < events {
            let began = Instant::now();
            let count = (events - done).min(group as u64);
            // Simulates 40,000 events per second.
            self.clock_ms += count.div_ceil(40);
            let now = Timestamp(self.clock_ms);
            let accepted: Vec<_> = (0..count)
                .map(|number| {
                    let endpoint = (done + number) % self.endpoints + 1;
                    let event = NewEvent::new(
                        tenant_of(endpoint),
                        contents[(endpoint % PER_TENANT) as usize].clone(),
                    );
                    self.store.accept(now, vec![event])
                })
                .collect();
            for answer in accepted {
                answer.await.expect("it is accepted");
            }
            let handed_over = std::mem::take(&mut *self.taken.0.lock().expect("no panic"));
            let (sent, received) = std::sync::mpsc::channel();
            for handed in handed_over {
                let sent = sent.clone();
                let done = Box::new(move |written| {
                    let _ = sent.send(written);
                });
                let record = succeeded(&handed.delivery, now);
                self.store
                    .record(now, record, AttemptDetail::default(), done);
            }
            drop(sent);
            for written in received {
                written.expect("it is written");
            }
            took.push(began.elapsed());
            done += count;
        }
        took
    }

    /// Returns the CPU time of the store: of this process, or of the server processes of its database.
    fn cpu(&self) -> Duration {
        match &self.database {
            None => cpu("self"),
            Some(database) => backends(database).iter().map(|pid| cpu(pid)).sum(),
        }
    }

    async fn measure(&mut self, stored: u64) {
        let before = (self.cpu(), written(), Instant::now());
        let mut took = self.run(MEASURED, GROUP).await;
        let (cpu, written, elapsed) = (
            self.cpu() - before.0,
            written() - before.1,
            before.2.elapsed(),
        );
        took.sort_unstable();
        let p99 = took[took.len() * 99 / 100];
        let began = Instant::now();
        for number in 0..20 {
            let endpoint = number * 7 % self.endpoints + 1;
            let filter = DeliveryFilter {
                endpoint: Some(EndpointId(u128::from(endpoint))),
                ..DeliveryFilter::default()
            };
            let page = PageRequest {
                limit: 50,
                before: None,
            };
            let found = self
                .store
                .deliveries(tenant_of(endpoint), filter, page)
                .await;
            found.expect("it is read");
        }
        let listed = began.elapsed() / 20;
        let events = MEASURED as f64;
        println!(
            "| {stored} | {} | {:.0} | {:.1} | {:.2} | {:.1} | {:.2} |",
            self.endpoints,
            events / elapsed.as_secs_f64(),
            cpu.as_secs_f64() * 1e6 / events,
            written as f64 / 1_024.0 / events,
            p99.as_secs_f64() * 1e3,
            listed.as_secs_f64() * 1e3,
        );
    }
}

/// Returns the server processes of a database, found by their titles.
fn backends(database: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").expect("a Linux machine");
    let named = processes.flatten().filter_map(|process| {
        let title = std::fs::read_to_string(process.path().join("cmdline")).ok()?;
        let serves =
            title.starts_with("postgres: ") && title.split(' ').any(|word| word == database);
        serves.then(|| process.file_name().to_string_lossy().into_owned())
    });
    named.collect()
}

/// Returns the CPU time of a process, all threads together.
fn cpu(process: &str) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("a Linux machine");
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .expect("fields")
        .split_whitespace()
        .collect();
    let ticks: u64 = [11, 12]
        .iter()
        .map(|place| fields[*place].parse::<u64>().expect("ticks"))
        .sum();
    // A clock tick is 10 ms on every Linux.
    Duration::from_millis(ticks * 10)
}

/// Returns the bytes that this process has caused to be written to disk.
fn written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").expect("a Linux machine");
    let line = io
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|bytes| bytes.parse().ok()).expect("a figure")
}

fn succeeded(waiting: &Delivery, now: Timestamp) -> Record {
    let status = HttpStatus::new(200).expect("a status");
    let mut facts = waiting.facts().clone();
    facts.attempts += 1;
    facts.spent += 1;
    let settlement = SettledAttempt {
        number: facts.attempts,
        trigger: Trigger::Automatic,
        started_at: now,
        finished_at: now,
        outcome: Outcome::Answered {
            status,
            retry_after: None,
        },
        meaning: Classification::Success,
        next_attempt_at: None,
        retry_after: None,
    };
    Record::Attempt(Box::new(AttemptRecord {
        delivery: Delivery::restore(facts, State::Succeeded { at: now }),
        settlement,
        health: None,
        disable: None,
        endpoint_changes: Vec::new(),
    }))
}

fn content(kind: u64) -> Arc<Content> {
    Arc::new(Content::new(
        format!("invoice.{kind}").parse().expect("a type"),
        Bytes::from_static(PAYLOAD),
    ))
}

fn tenant_of(endpoint: u64) -> TenantId {
    let number = (endpoint - 1) / PER_TENANT;
    format!("tenant-{number}").parse().expect("a name")
}

fn tenant(now: Timestamp, endpoint: u64) -> Tenant {
    Tenant::new(tenant_of(endpoint), "Acme".to_owned(), now)
}

fn endpoint(now: Timestamp, number: u64) -> Endpoint {
    Endpoint {
        event_types: vec![
            format!("invoice.{}", number % PER_TENANT)
                .parse()
                .expect("a pattern"),
        ],
        owner_email_confirmed: true,
        ..Endpoint::new(
            EndpointId(u128::from(number)),
            tenant_of(number),
            "https://example.com/hook".to_owned(),
            now,
        )
    }
}
