//! The thread that runs the whole PostgreSQL store.
//!
//! [`start`] opens the database and runs the writers, the readers and the membership on one single-threaded runtime.
//! Callers on other threads use [`Shared`].

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use posthaste_core::cluster::{NodeNo, Timings};
use posthaste_core::id::{IdGenerator, id_of, sequence_of};
use posthaste_core::rng::Rng;
use rustc_hash::FxHashMap;
use tokio::runtime::Builder;
use tokio::task::LocalSet;

use super::cluster::database_clock::DatabaseClock;
use super::cluster::membership::Membership;
use super::connection::{Connector, PgConnection};
use super::db_error::DbError;
use super::schema::columns::Id;
use super::schema::meta;
use super::schema::migrate::{explain, explain_not_connected, migrate, refuse_half_copied};
use super::schema::partitions::Partitions;
use super::settings::PostgresSettings;
use super::shared::Shared;
use super::write::commit::LastStatements;
use super::write::owned_shards::OwnedShards;
use super::write::routing_table::RoutingTable;
use super::write::write_context::{SideEffects, WriteContext, WriterCache};
use super::write::write_queue::WriteQueue;
use super::write::writer::Writer;
use super::write::writer_role::WriterRole;
use crate::reply::stopped;
use crate::{OpenError, StoreSettings};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste_store::postgres::thread";

/// Time limit for reads that are in progress when the store is closed.
const LAST_READS: Duration = Duration::from_secs(5);

/// Starts the thread, and waits until the store is open or opening has failed.
pub(super) fn start(
    settings: PostgresSettings,
    store: StoreSettings,
    shared: Shared,
) -> Result<(JoinHandle<()>, Arc<Membership>), OpenError> {
    let server = settings.server.to_string();
    let (opened, open) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name("store-postgres".to_owned())
        .spawn(move || run(settings, store, &shared, &opened));
    let no_thread = |why: String| OpenError::Server { server, why };
    let thread = match thread {
        Ok(thread) => thread,
        Err(error) => return Err(no_thread(error.to_string())),
    };
    match open.recv() {
        Ok(Ok(membership)) => Ok((thread, membership)),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(no_thread("its thread stopped".to_owned())),
    }
}

/// Marks the end of the thread, also if it panics.
struct EndGuard<'a>(&'a Shared);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        let EndGuard(shared) = self;
        shared.readers.close();
        shared.readers.refuse_all();
        if std::thread::panicking() {
            let why = stopped();
            shared.fail_queues(&why);
            if shared.closed.broke(why.clone()) {
                shared.hand_over.broken(&why);
            }
        }
        shared.closed.end();
    }
}

type Opened = mpsc::Sender<Result<Arc<Membership>, OpenError>>;

fn run(settings: PostgresSettings, store: StoreSettings, shared: &Shared, opened: &Opened) {
    let _ending = EndGuard(shared);
    let runtime = match Builder::new_current_thread()
        .enable_time()
        .enable_io()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            let server = settings.server.to_string();
            let why = error.to_string();
            let _ = opened.send(Err(OpenError::Server { server, why }));
            return;
        }
    };
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let settings = Rc::new(settings);
        match open(&settings, store, shared).await {
            Err(error) => {
                let _ = opened.send(Err(error));
            }
            Ok((writers, timings, database_clock)) => {
                let owned_shards = &writers.owned_shards;
                let begun =
                    Membership::begin(shared, owned_shards, &settings, timings, database_clock)
                        .await;
                match begun {
                    Err(error) => {
                        let _ = opened.send(Err(error));
                    }
                    Ok((membership, tasks)) => {
                        if opened.send(Ok(membership.clone())).is_ok() {
                            run_until_closed(writers, &settings, shared, &membership, tasks).await;
                        }
                    }
                }
            }
        }
    });
}

/// The writers, one for each role.
struct Writers {
    first: Writer,
    metered: Writer,
    large: Writer,
    background: Writer,
    owned_shards: Arc<OwnedShards>,
}

impl Writers {
    /// Writes until all queues are closed and empty.
    async fn work(&mut self) {
        let large_queue = self.large.queue.clone();
        let (first, metered) = (&mut self.first, &mut self.metered);
        let passing_on = async move {
            tokio::join!(first.work(), metered.work());
            large_queue.close();
        };
        tokio::join!(passing_on, self.large.work(), self.background.work());
    }
}

/// Runs the store from opening to closing.
async fn run_until_closed(
    mut writers: Writers,
    settings: &Rc<PostgresSettings>,
    shared: &Shared,
    membership: &Membership,
    tasks: Vec<tokio::task::JoinHandle<()>>,
) {
    let readers = shared.readers.start(settings);
    let mut tasks = tasks.into_iter();
    let mut member = tasks.next().expect("the membership has a task");
    tokio::select! {
        biased;
        () = writers.work() => {}
        ended = &mut member => panic!("the membership has ended: {ended:?}"),
    }
    membership.close();
    if member.await.is_err() {
        tracing::error!(target: LOG_TARGET, "the membership task panicked");
    }
    for task in tasks {
        task.abort();
    }
    shared.readers.close();
    let until = tokio::time::Instant::now() + LAST_READS;
    for mut reader in readers {
        match tokio::time::timeout_at(until, &mut reader).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => tracing::error!(target: LOG_TARGET, "a reader panicked"),
            // The database does not answer, and closing does not wait longer for these reads.
            Err(_) => reader.abort(),
        }
    }
    shared.readers.refuse_all();
}

async fn open(
    settings: &Rc<PostgresSettings>,
    mut store: StoreSettings,
    shared: &Shared,
) -> Result<(Writers, Timings, DatabaseClock), OpenError> {
    let url = &settings.server;
    let timings = Timings::of(settings.lease).map_err(|error| OpenError::Server {
        server: url.to_string(),
        why: error.to_string(),
    })?;
    let mut connector = Connector::new(settings.clone());
    let conn = connector
        .open()
        .await
        .map_err(|not_connected| explain_not_connected(url, &not_connected))?;
    shared.required_schema.raise(migrate(&conn, url).await?);
    refuse_half_copied(&conn, url).await?;
    let explain = |fault: DbError| explain(url, &fault);
    let database_clock = DatabaseClock::open(&conn, settings.clone()).await;
    let database_clock = database_clock.map_err(explain)?;
    let rng = store.rng.split();
    let id_generator = resume(&conn, rng).await.map_err(explain)?;
    let id_generator = Rc::new(RefCell::new(id_generator));
    // The membership sets the node number later.
    let owned_shards = Arc::new(OwnedShards::new(NodeNo(0)));
    let mut routes = RoutingTable::default();
    routes.refresh(&conn, &store).await.map_err(explain)?;
    // The other writers connect, and read their routing tables, when their first operation arrives.
    let context = |role: WriterRole, routes: RoutingTable| WriteContext {
        conn: conn.clone(),
        routes,
        id_generator: id_generator.clone(),
        settings: store.clone(),
        owned_shards: owned_shards.clone(),
        required_schema: shared.required_schema.clone(),
        due_watermarks: shared.due_watermarks.clone(),
        partitions: Partitions::default(),
        counted_scopes: FxHashMap::default(),
        clock_skews: (0, 0),
        effects: SideEffects::default(),
        cache: WriterCache::default(),
        large_day_bytes: settings.large_day_bytes,
        round_trips: shared.round_trips.clone(),
        last: LastStatements::default(),
        role,
    };
    let writer = |queue: &Arc<WriteQueue>, connector: Connector, context: WriteContext| Writer {
        queue: queue.clone(),
        large_accepts: shared.large.clone(),
        connector,
        context,
        hand_over: shared.hand_over.clone(),
        key_lookups: 0,
    };
    let later = |queue: &Arc<WriteQueue>, role: WriterRole| {
        let connector = Connector::new(settings.clone());
        writer(queue, connector, context(role, RoutingTable::default()))
    };
    let writers = Writers {
        metered: later(&shared.metered, WriterRole::Metered),
        large: later(&shared.large, WriterRole::Large),
        background: later(&shared.background, WriterRole::Background),
        first: writer(&shared.queue, connector, context(WriterRole::First, routes)),
        owned_shards,
    };
    Ok((writers, timings, database_clock))
}

/// Creates an id generator that continues after the greatest id that is or was stored.
async fn resume(conn: &PgConnection, rng: Rng) -> Result<IdGenerator, DbError> {
    let sql = "SELECT value FROM meta WHERE name = $1";
    let row = conn.query_one(sql, &[&meta::LAST_ID_TIME]).await?;
    let mut last = row.get::<_, i64>(0) as u64;
    for table in ["events", "waiting", "ended", "replays"] {
        let sql = format!("SELECT id FROM {table} ORDER BY id DESC LIMIT 1");
        if let Some(row) = conn.query_opt(&sql, &[]).await? {
            last = last.max(sequence_of(row.get::<_, Id>(0).0));
        }
    }
    Ok(IdGenerator::resume(rng, id_of(last, 0)))
}
