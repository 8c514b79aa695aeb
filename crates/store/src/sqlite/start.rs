//! Starts a [`SqliteStore`]: locks and opens its file, loads the state that is kept in memory, and starts the threads.
//!
//! The file is created or migrated first. Large accepts that a crash interrupted continue before any other write, and the
//! payloads of those that were not accepted are deleted.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rusqlite::Connection;

use super::checkpoint::Checkpoints;
use super::counts::DeliveryCounts;
use super::fan_out;
use super::faults::Faults;
use super::group_commit::{WriterCache, number};
use super::history::History;
use super::lock::Lock;
use super::open::{explain, open_plain, open_writer};
use super::readers::Readers;
use super::routing_table::RoutingTable;
use super::row_keys::KeyGenerator;
use super::schema::meta;
use super::staged_payloads;
use super::store::SqliteStore;
use super::usage::UsageCounters;
use super::write_queue::WriteQueue;
use super::writer::{RetryQueue, Writer};
use crate::fair_queue::QueueClass;
use crate::thread_end::ThreadEnd;
use crate::{HandOver, OpenError, StoreSettings};

impl SqliteStore {
    /// Opens a store, and creates or migrates its file as needed.
    pub fn open(
        path: impl AsRef<Path>,
        settings: StoreSettings,
        hand_over: Arc<dyn HandOver>,
    ) -> Result<SqliteStore, OpenError> {
        SqliteStore::open_with(path, settings, hand_over, Arc::default())
    }

    /// Opens a store with injected faults, for tests.
    #[doc(hidden)]
    pub fn open_with(
        path: impl AsRef<Path>,
        settings: StoreSettings,
        hand_over: Arc<dyn HandOver>,
        faults: Arc<Faults>,
    ) -> Result<SqliteStore, OpenError> {
        let path = path.as_ref().to_owned();
        let lock = Lock::take(&path)?;
        let conn = open_writer(&path)?;
        start(&path, lock, conn, settings, hand_over, faults)
            .map_err(|error| explain(&path, &error))
    }
}

fn start(
    path: &Path,
    lock: Lock,
    mut conn: Connection,
    mut settings: StoreSettings,
    hand_over: Arc<dyn HandOver>,
    faults: Arc<Faults>,
) -> rusqlite::Result<SqliteStore> {
    let log_pages = Arc::new(AtomicU32::new(0));
    let seen = log_pages.clone();
    conn.wal_hook(Some(move |_: &mut _, pages: i32| {
        seen.store(pages.max(0) as u32, Ordering::Relaxed);
        Ok(())
    }))?;
    let last = last_key(&conn)?;
    let key_generator = KeyGenerator::resume(settings.rng.split(), last);
    let queue = Arc::new(WriteQueue::new(settings.max_waiting_writes));
    let readers = Arc::new(Readers::start(path)?);
    let delivery_counts = Arc::new(DeliveryCounts::load(&conn)?);
    let closed = Arc::new(ThreadEnd::default());
    let no_thread =
        |error: std::io::Error| rusqlite::Error::ToSqlConversionFailure(Box::new(error));
    let writer = Writer {
        queue: queue.clone(),
        hand_over,
        routes: RoutingTable::load(&conn, &settings)?,
        key_generator,
        settings,
        delivery_counts: delivery_counts.clone(),
        history: History::load(&conn)?,
        cache: WriterCache::default(),
        meters: UsageCounters::default(),
        checkpoints: Checkpoints::start(open_plain(path)?).map_err(no_thread)?,
        log_pages,
        faults,
        max_pages: 0,
        readers: readers.clone(),
        lock,
        closed: closed.clone(),
        to_retry: RetryQueue::default(),
        conn,
    };
    for (tenant, fan_out) in fan_out::resume(&writer.conn)? {
        queue.push_always(QueueClass::Tenant(tenant), Box::new(fan_out));
    }
    for discard in staged_payloads::resume(&writer.conn)? {
        queue.push_always(QueueClass::Internal, Box::new(discard));
    }
    let writer = writer.start().map_err(no_thread)?;
    Ok(SqliteStore {
        path: path.to_owned(),
        queue,
        readers,
        delivery_counts,
        schedule_changes: Arc::default(),
        closed,
        writer: Mutex::new(Some(writer)),
    })
}

/// Returns the greatest key that was ever used.
fn last_key(conn: &Connection) -> rusqlite::Result<i64> {
    let mut last = number(conn, meta::LAST_KEY)?;
    for (table, key) in [
        ("events", "key"),
        ("deliveries", "key"),
        ("replays", "key"),
        ("fan_outs", "last_key"),
    ] {
        let sql = format!("SELECT max({key}) FROM {table}");
        let key: Option<i64> = conn.query_row(&sql, [], |row| row.get(0))?;
        last = last.max(key.unwrap_or(0));
    }
    Ok(last)
}
