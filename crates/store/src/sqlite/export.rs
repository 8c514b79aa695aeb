//! Reads a whole file in parts, to copy it to another store.
//!
//! [`Export`] locks the file while it is open, so no server runs on it and nothing changes. It writes nothing to the
//! file.

use std::path::Path;

use posthaste_core::id::EndpointId;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension};
use rustc_hash::FxHashMap;

use super::event_rows::{DeliveryList, Listed};
use super::lock::Lock;
use super::open::{explain, open_reader, recognise};
use super::row_keys::{Key, id_at};
use super::schema::SCHEMA_VERSION;
use crate::OpenError;

/// A file that is open for a copy.
pub(crate) struct Export {
    conn: Connection,
    _lock: Lock,
}

/// A range of rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Lower bound, exclusive.
    pub(crate) above: Key,
    /// Upper bound, inclusive.
    pub(crate) up_to: Key,
    /// Number of rows in the range.
    pub(crate) rows: u64,
}

impl Export {
    /// Opens and locks an existing file of the newest schema version.
    pub(crate) fn open(path: &Path) -> Result<Export, OpenError> {
        let other = |why: String| OpenError::Other {
            path: path.to_owned(),
            why,
        };
        if !path.exists() {
            return Err(other("no such file".to_owned()));
        }
        recognise(path)?;
        let lock = Lock::take(path)?;
        let explain = |error: rusqlite::Error| explain(path, &error);
        let conn = open_reader(path).map_err(explain)?;
        let format: u32 = conn
            .query_row("PRAGMA user_version", [], |row| row.get(0))
            .map_err(explain)?;
        if format > SCHEMA_VERSION {
            return Err(OpenError::TooNew {
                path: path.to_owned(),
                found: format,
                known: SCHEMA_VERSION,
            });
        }
        if format < SCHEMA_VERSION {
            let why = "it was written by an older posthaste; start this version with it once to upgrade it";
            return Err(other(why.to_owned()));
        }
        let export = Export { conn, _lock: lock };
        if export
            .number("SELECT count(*) FROM fan_outs")
            .map_err(explain)?
            > 0
        {
            let why = "it contains a partly stored large request; start posthaste with it once to complete it";
            return Err(other(why.to_owned()));
        }
        Ok(export)
    }

    /// Runs a query that returns one number.
    pub(crate) fn number(&self, sql: &str) -> rusqlite::Result<i64> {
        let mut statement = self.conn.prepare_cached(sql)?;
        let number = statement.query_row([], |row| row.get::<_, Option<i64>>(0));
        Ok(number.optional()?.flatten().unwrap_or(0))
    }

    /// Returns the next rows of a table above a key: limited by number of rows and by bytes, as measured by `weight`,
    /// but at least one row.
    pub(crate) fn next_piece(
        &self,
        (table, key, weight): (&str, &str, &str),
        above: Key,
        (most_rows, most_bytes): (usize, u64),
    ) -> rusqlite::Result<Option<Piece>> {
        let sql =
            format!("SELECT {key}, {weight} FROM {table} WHERE {key} > ?1 ORDER BY {key} LIMIT ?2");
        let mut statement = self.conn.prepare_cached(&sql)?;
        let mut rows = statement.query((above, most_rows as i64))?;
        let mut piece: Option<Piece> = None;
        let mut bytes = 0_u64;
        while let Some(row) = rows.next()? {
            bytes = bytes.saturating_add(row.get::<_, i64>(1)?.unsigned_abs());
            if piece.is_some() && bytes > most_bytes {
                break;
            }
            let rows = piece.map_or(0, |piece| piece.rows) + 1;
            let up_to = row.get(0)?;
            piece = Some(Piece { above, up_to, rows });
        }
        Ok(piece)
    }

    /// Returns the rows that a statement selects from a range, as stored.
    pub(crate) fn rows(&self, sql: &str, piece: Piece) -> rusqlite::Result<Vec<Vec<Value>>> {
        let mut statement = self.conn.prepare_cached(sql)?;
        let columns = statement.column_count();
        let rows = statement.query_map((piece.above, piece.up_to), |row| {
            (0..columns).map(|column| row.get(column)).collect()
        })?;
        rows.collect()
    }

    /// Returns the ids of all endpoints, including deleted ones, by number.
    pub(crate) fn endpoints(&self) -> rusqlite::Result<FxHashMap<i64, EndpointId>> {
        let mut statement = self.conn.prepare("SELECT no, id FROM endpoints")?;
        let rows = statement.query_map([], |row| {
            let id = super::delivery_rows::endpoint_id(row, 1)?;
            Ok((row.get(0)?, id))
        })?;
        rows.collect()
    }

    /// Returns a hash of the file's state. Every event, attempt and change gives another value.
    pub(crate) fn fingerprint(&self) -> rusqlite::Result<i64> {
        let mut hash = Fnv::default();
        for sql in FINGERPRINT {
            let mut statement = self.conn.prepare(sql)?;
            let columns = statement.column_count();
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                for column in 0..columns {
                    hash.add(&format!("{:?};", row.get::<_, Value>(column)?));
                }
            }
        }
        Ok(hash.finish())
    }
}

/// Returns the deliveries that are stored in the row of an event.
pub(crate) fn read_list(bytes: Vec<u8>) -> Vec<Listed> {
    DeliveryList::from_bytes(bytes).iter().collect()
}

/// Returns the id of a row with this key and tail.
pub(crate) fn id_of_row(key: Key, tail: i64) -> u128 {
    id_at(key, tail)
}

/// Queries whose results change with every change of the data. Uses `total` where an integer sum could overflow.
const FINGERPRINT: [&str; 11] = [
    "SELECT id, revision, created_at, deleted FROM tenants ORDER BY no",
    "SELECT id, revision, health_revision, standing FROM endpoints ORDER BY no",
    "SELECT count(*), max(created_at) FROM keys",
    "SELECT count(*), min(key), max(key), min(tail) FROM events",
    "SELECT count(*), min(key), max(key), sum(attempts), sum(spent), sum(status), total(due), total(ended_at) \
     FROM deliveries",
    "SELECT count(*), max(key), sum(status), sum(replayed) FROM replays",
    "SELECT count(*), max(no), max(at), count(outcome) FROM audit",
    "SELECT (SELECT value FROM meta WHERE name = 'told'), count(*), sum(count), total(last_at) FROM failures",
    "SELECT count(*), total(revision), total(due_at), sum(tries) FROM letters",
    "SELECT count(*), max(no), count(resolved_at) FROM alerts",
    "SELECT count(*), max(month), sum(events) FROM usage",
];

/// FNV-1a: a hash that is the same on every machine and in every version.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, text: &str) {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    /// Returns the hash; never 0, which means none.
    fn finish(&self) -> i64 {
        (self.0 >> 1) as i64 | 1
    }
}
