//! The clock of the only node, as it is stored: see [`StoredClock`].

use posthaste_core::time::{StoredClock, Timestamp};
use rusqlite::{Connection, OptionalExtension};

use super::schema::meta;
use super::store::SqliteStore;
use crate::Answer;
use crate::read_duration::ReadDuration;

impl SqliteStore {
    /// Returns what is stored about the clock.
    pub fn stored_clock(&self) -> Answer<StoredClock> {
        self.read(ReadDuration::Quick, |conn| {
            Ok(StoredClock {
                lead_until: read(conn, meta::CLOCK_LEAD_UNTIL)?,
                saved_at: read(conn, meta::CLOCK_SAVED_AT)?,
            })
        })
    }

    /// Stores the clock.
    pub fn store_clock(&self, clock: StoredClock) -> Answer<()> {
        self.write(move |context| {
            write(context.conn, meta::CLOCK_LEAD_UNTIL, clock.lead_until)?;
            write(context.conn, meta::CLOCK_SAVED_AT, clock.saved_at)
        })
    }
}

/// Reads a time, or zero if it was never stored.
fn read(conn: &Connection, name: &str) -> rusqlite::Result<Timestamp> {
    let value: Option<i64> = conn
        .prepare_cached("SELECT value FROM meta WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()?;
    let ms = value.and_then(|ms| u64::try_from(ms).ok());
    Ok(Timestamp(ms.unwrap_or_default()))
}

fn write(conn: &Connection, name: &str, at: Timestamp) -> rusqlite::Result<()> {
    let sql = "INSERT INTO meta (name, value) VALUES (?1, ?2) \
               ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    let ms = i64::try_from(at.0).unwrap_or(i64::MAX);
    conn.prepare_cached(sql)?.execute((name, ms))?;
    Ok(())
}
