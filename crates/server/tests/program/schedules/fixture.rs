//! Servers with schedules, and the checks of their runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use posthaste_core::time::{Span, Timestamp};
use posthaste_store::postgres::{Dial, Session};
use posthaste_testbed::{Api, Arrival, Database, FakeClock, Node, NodeOptions, Receiver, TcpProxy};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(super) const TENANT: &str = "acme";
const PROGRAM: &str = env!("CARGO_BIN_EXE_posthaste");
/// Short, so that a start after a kill does not wait for long.
const LEASE: &str = "lease=2s";

/// The store of the servers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Store {
    Sqlite,
    Postgres,
}

/// Both stores.
pub(super) const STORES: [Store; 2] = [Store::Sqlite, Store::Postgres];

/// The store and the directory of servers that are started again.
pub(super) struct Installation {
    home: TempDir,
    pub(super) database: Option<Database>,
    /// URL of the database, if servers do not connect to it directly.
    url: Option<String>,
}

impl Installation {
    pub(super) fn new(store: Store) -> Installation {
        Installation {
            home: tempfile::tempdir().expect("a directory"),
            database: match store {
                Store::Sqlite => None,
                Store::Postgres => Some(Database::with_schema()),
            },
            url: None,
        }
    }

    /// Returns an installation on PostgreSQL whose servers connect through the returned proxy.
    pub(super) fn via_proxy() -> (Installation, TcpProxy) {
        let database = Database::with_schema();
        let proxy = TcpProxy::to(database.address());
        let installation = Installation {
            home: tempfile::tempdir().expect("a directory"),
            url: Some(database.url_via_proxy(&proxy)),
            database: Some(database),
        };
        (installation, proxy)
    }

    fn options(&self) -> NodeOptions {
        let home: &Path = self.home.path();
        let file = || format!("sqlite:{}", home.join("posthaste.db").display());
        let direct = || self.database.as_ref().map_or_else(file, Database::url);
        let store = self.url.clone().unwrap_or_else(direct);
        NodeOptions::new(PROGRAM, &store, home)
            .with(&["--set", LEASE])
            .with(&["--log-level", "info,posthaste::attempt=off"])
    }

    /// Starts a server.
    pub(super) fn start(&self) -> Node {
        Node::start(&self.options())
    }

    /// Starts a server with a wall clock of its own.
    pub(super) fn start_on(&self, clock: &FakeClock) -> Node {
        Node::start(&self.options().on_clock(clock))
    }
}

/// A lock that decisions wait for before they insert their runs, when their events are inserted.
pub(super) struct DecisionLock<'a> {
    database: &'a Database,
    session: Session,
}

impl<'a> DecisionLock<'a> {
    /// Makes decisions wait for the lock. It is free at first.
    pub(super) async fn install(database: &'a Database) -> DecisionLock<'a> {
        database.query(
            "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NEW; END $$; \
             CREATE TRIGGER wait BEFORE INSERT ON schedule_runs EXECUTE FUNCTION wait()",
        );
        let url = database.url().parse().expect("a URL");
        let dial: Arc<dyn Dial> = Arc::new(posthaste_engine::database::EgressDialer);
        let session = Session::open(&url, &dial).await;
        let session = session.expect("the database accepts connections");
        // Otherwise it looks like a session of a server.
        let name = "SET application_name = 'application'";
        session.batch(name).await.expect("a name");
        DecisionLock { database, session }
    }

    /// Takes the lock.
    pub(super) async fn acquire(&self) {
        let lock = "BEGIN; SELECT pg_advisory_xact_lock(7)";
        self.session.batch(lock).await.expect("locked");
    }

    /// Gives the lock back.
    pub(super) async fn release(&self) {
        self.session.batch("COMMIT").await.expect("committed");
    }

    /// Returns whether a decision waits.
    pub(super) fn is_waited_for(&self) -> bool {
        let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted";
        self.database.number(waiting) > 0
    }
}

/// Creates the tenant, and an endpoint that gets as many requests as there are.
pub(super) async fn set_up(api: &mut Api, receiver: &Receiver) {
    api.tenant(TENANT).await;
    let rate = json!({"per_second": 5_000, "burst": 5_000});
    let fields = json!({"url": receiver.url(), "rate_limit": rate, "max_in_flight": 100});
    api.endpoint(TENANT, fields).await;
}

/// Creates a schedule with these fields, which sends events.
pub(super) async fn create(api: &mut Api, name: &str, fields: Value) -> Value {
    let mut schedule = json!({"id": name, "event": {"type": "tick", "payload": {"of": name}}});
    let all = schedule.as_object_mut().expect("an object");
    all.extend(fields.as_object().expect("an object").clone());
    let path = format!("/v1/tenants/{TENANT}/schedules");
    api.post(&path, schedule).await.expect(201)
}

/// A schedule that runs every second, and makes up for what it has missed.
pub(super) fn every_second() -> Value {
    json!({"every": "1s", "missed": "run_all"})
}

/// A run as the API shows it.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) scheduled_for: Timestamp,
    pub(super) status: String,
    pub(super) event: Option<String>,
}

/// Returns all runs of a schedule, oldest first.
pub(super) async fn runs(api: &mut Api, name: &str) -> Vec<Run> {
    let first = format!("/v1/tenants/{TENANT}/schedules/{name}/runs?limit=250");
    let mut path = first.clone();
    let mut runs = Vec::new();
    loop {
        let page = api.get(&path).await.expect(200);
        for run in page["data"].as_array().expect("a list") {
            let text = |field: &str| run[field].as_str().map(str::to_owned);
            let scheduled_for = text("scheduled_for").expect("a time");
            runs.push(Run {
                scheduled_for: scheduled_for.parse().expect("a time"),
                status: text("status").expect("a status"),
                event: text("event_id"),
            });
        }
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("{first}&cursor={cursor}"),
            None => break,
        }
    }
    runs.reverse();
    runs
}

/// Pauses schedules, so that they make no more runs.
pub(super) async fn pause(api: &mut Api, names: &[String]) {
    for name in names {
        let path = format!("/v1/tenants/{TENANT}/schedules/{name}/pause");
        api.call("POST", &path, None).await.expect(200);
    }
}

/// Returns the events that arrived for each schedule and occurrence.
fn arrived(arrivals: &[Arrival]) -> BTreeMap<(String, Timestamp), BTreeSet<String>> {
    let mut arrived: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for arrival in arrivals {
        let schedule = arrival.header("posthaste-schedule-id").to_owned();
        let scheduled_for = arrival.header("posthaste-scheduled-for");
        let key = (schedule, scheduled_for.parse().expect("a time"));
        arrived.entry(key).or_default().insert(arrival.event());
    }
    arrived
}

/// Checks paused schedules: no occurrence has two runs, each created run has one event, which has arrived, and there are no
/// other events. Returns the runs of each schedule.
pub(super) async fn expect_one_event_each(
    api: &mut Api,
    receiver: &Receiver,
    names: &[String],
) -> Vec<Vec<Run>> {
    let mut all = Vec::new();
    let mut expected = BTreeMap::new();
    for name in names {
        let runs = runs(api, name).await;
        let times: BTreeSet<Timestamp> = runs.iter().map(|run| run.scheduled_for).collect();
        assert_eq!(
            times.len(),
            runs.len(),
            "{name}: an occurrence ran twice: {runs:?}"
        );
        for run in &runs {
            assert_eq!(run.event.is_some(), run.status == "created", "{run:?}");
            if let Some(event) = &run.event {
                expected.insert((name.clone(), run.scheduled_for), event.clone());
            }
        }
        all.push(runs);
    }
    let arrivals = receiver
        .until(|arrivals| arrived(arrivals).len() >= expected.len())
        .await;
    for (occurrence, events) in arrived(&arrivals) {
        let event = expected.get(&occurrence);
        let event = event.unwrap_or_else(|| panic!("{occurrence:?} has an event and no run"));
        assert_eq!(events, BTreeSet::from([event.clone()]), "{occurrence:?}");
    }
    assert_eq!(
        count_events(api).await,
        expected.len(),
        "each event has a run"
    );
    all
}

/// Checks that every occurrence of a schedule that runs every second has a created run.
pub(super) fn expect_no_gap(runs: &[Run]) {
    for two in runs.windows(2) {
        let expected = two[0].scheduled_for.after(Span::from_secs(1));
        assert_eq!(two[1].scheduled_for, expected, "an occurrence is missing");
    }
    for run in runs {
        assert_eq!(run.status, "created", "{run:?}");
    }
}

/// Returns the number of events of the tenant.
async fn count_events(api: &mut Api) -> usize {
    let first = format!("/v1/tenants/{TENANT}/events?limit=250");
    let (mut count, mut path) = (0, first.clone());
    loop {
        let page = api.get(&path).await.expect(200);
        count += page["data"].as_array().expect("a list").len();
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("{first}&cursor={cursor}"),
            None => return count,
        }
    }
}

/// Waits until the last occurrences of these schedules have been decided about.
pub(super) async fn until_current(api: &mut Api, names: &[String]) {
    for name in names {
        let path = format!("/v1/tenants/{TENANT}/schedules/{name}");
        let is_current = |shown: &Value| {
            let next = shown["next_run_at"].as_str();
            let next: Option<Timestamp> = next.map(|next| next.parse().expect("a time"));
            next.is_none_or(|next| next.0 > real_ms())
        };
        api.until(&path, is_current).await;
    }
}

/// Returns the real time, in milliseconds.
pub(super) fn real_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("a clock after 1970").as_millis() as u64
}
