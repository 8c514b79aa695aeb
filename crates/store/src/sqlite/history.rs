//! The history: an index of all deliveries and events by tenant and endpoint, filled with a delay.
//!
//! Updating such an index with every delivery would cost four times as much as the delivery itself, because each
//! entry changes a different page. So [`History`] fills it later, in sorted parts. Each table has a mark: reads find
//! rows up to the mark in the history, and examine the rows after it one by one.
//!
//! A part is read and sorted at once but written in several steps, so that no transaction takes long. The mark moves
//! with the last step. Entries after the mark are ignored.

use std::ops::RangeInclusive;

use rusqlite::Connection;

use super::group_commit::{number, set_number};
use super::row_keys::Key;
use super::schema::meta;
use crate::codes::sql_limit;

/// Number of rows after the mark that make a part.
const PIECE: usize = 16_384;
/// Maximum number of entries written in one step.
const STEP: usize = 4_096;

/// An entry: the number of a tenant or endpoint, and a key.
type Entry = (i64, Key);

/// The progress of the history, and the part in progress.
#[derive(Debug)]
pub(super) struct History {
    /// Number of rows after the marks, events and deliveries together.
    waiting: usize,
    /// Number of rows that the current transaction has already subtracted from `waiting`.
    counted_off: usize,
    /// Do nothing while fewer rows than this wait.
    threshold: usize,
    piece: Option<HistoryBatch>,
}

#[derive(Debug)]
struct HistoryBatch {
    events: Vec<Entry>,
    deliveries: Vec<Entry>,
    events_up_to: Key,
    deliveries_up_to: Key,
    rows: usize,
}

impl History {
    /// Counts the rows after the marks.
    pub(super) fn load(conn: &Connection) -> rusqlite::Result<History> {
        let past = |table: &str, mark: &str| -> rusqlite::Result<i64> {
            let mark = number(conn, mark)?;
            let sql = format!("SELECT count(*) FROM {table} WHERE key > ?1");
            conn.query_row(&sql, [mark], |row| row.get(0))
        };
        let waiting =
            past("events", meta::EVENTS_UP_TO)? + past("deliveries", meta::DELIVERIES_UP_TO)?;
        Ok(History {
            waiting: waiting as usize,
            counted_off: 0,
            threshold: 2 * PIECE,
            piece: None,
        })
    }

    /// Adds new rows to the count.
    pub(super) fn note_new(&mut self, rows: usize) {
        self.waiting += rows;
    }

    /// Returns whether there is enough work for a step.
    pub(super) fn is_behind(&self) -> bool {
        self.piece.is_some() || self.waiting >= self.threshold
    }

    /// Keeps the changes of a committed transaction.
    pub(super) fn keep(&mut self) {
        self.counted_off = 0;
    }

    /// Undoes the changes of a transaction that was rolled back. Drops the part in progress; its entries are written
    /// again.
    pub(super) fn start_over(&mut self) {
        self.waiting += std::mem::take(&mut self.counted_off);
        self.piece = None;
    }

    /// Pauses until many more rows wait.
    pub(super) fn rest(&mut self) {
        self.threshold = self.waiting + PIECE;
    }

    /// Returns the key up to which deliveries are in the history, or in the part in progress. A delivery that is stored
    /// with a key up to it must be added to the history by the caller.
    pub(super) fn covers_up_to(&self, conn: &Connection) -> rusqlite::Result<Key> {
        match &self.piece {
            Some(piece) => Ok(piece.deliveries_up_to),
            None => number(conn, meta::DELIVERIES_UP_TO),
        }
    }

    /// Writes one step, within a transaction.
    pub(super) fn step(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        let mut piece = match self.piece.take() {
            Some(piece) => piece,
            None => HistoryBatch::gather(conn)?,
        };
        if piece.write(conn)? {
            // If no rows were found, the counted ones have been deleted.
            let done = match piece.rows {
                0 => self.waiting,
                rows => rows.min(self.waiting),
            };
            self.waiting -= done;
            self.counted_off += done;
            self.threshold = 2 * PIECE;
        } else {
            self.piece = Some(piece);
        }
        Ok(())
    }

    /// Removes rows that are being deleted from the part in progress.
    pub(super) fn forget_deliveries(&mut self, keys: RangeInclusive<Key>) {
        if let Some(piece) = &mut self.piece {
            piece.deliveries.retain(|(_, key)| !keys.contains(key));
        }
    }

    /// Removes rows that are being deleted from the part in progress.
    pub(super) fn forget_events(&mut self, keys: RangeInclusive<Key>) {
        if let Some(piece) = &mut self.piece {
            piece.events.retain(|(_, key)| !keys.contains(key));
        }
    }
}

impl HistoryBatch {
    fn gather(conn: &Connection) -> rusqlite::Result<HistoryBatch> {
        let mut piece = HistoryBatch {
            events: Vec::with_capacity(PIECE),
            deliveries: Vec::with_capacity(2 * PIECE),
            events_up_to: number(conn, meta::EVENTS_UP_TO)?,
            deliveries_up_to: number(conn, meta::DELIVERIES_UP_TO)?,
            rows: 0,
        };
        let mut events = conn.prepare_cached(
            "SELECT key, tenant_no FROM events WHERE key > ?1 ORDER BY key LIMIT ?2",
        )?;
        let mut rows = events.query((piece.events_up_to, sql_limit(PIECE)))?;
        while let Some(row) = rows.next()? {
            piece.events_up_to = row.get(0)?;
            piece.events.push((row.get(1)?, piece.events_up_to));
            piece.rows += 1;
        }
        let mut deliveries = conn.prepare_cached(
            "SELECT d.key, d.endpoint_no, e.tenant_no FROM deliveries d \
             JOIN endpoints e ON e.no = d.endpoint_no WHERE d.key > ?1 ORDER BY d.key LIMIT ?2",
        )?;
        let mut rows = deliveries.query((piece.deliveries_up_to, sql_limit(PIECE)))?;
        while let Some(row) = rows.next()? {
            let key = row.get(0)?;
            piece.deliveries_up_to = key;
            piece.deliveries.push((row.get(1)?, key));
            piece.deliveries.push((row.get(2)?, key));
            piece.rows += 1;
        }
        // In descending order, because entries are taken from the end.
        piece.events.sort_unstable_by(|a, b| b.cmp(a));
        piece.deliveries.sort_unstable_by(|a, b| b.cmp(a));
        Ok(piece)
    }

    /// Writes up to one step. Returns whether the part is complete.
    fn write(&mut self, conn: &Connection) -> rusqlite::Result<bool> {
        let mut remaining = STEP;
        for (entries, sql) in [
            (
                &mut self.events,
                "INSERT OR IGNORE INTO event_history (scope, key) VALUES (?1, ?2)",
            ),
            (
                &mut self.deliveries,
                "INSERT OR IGNORE INTO delivery_history (scope, key) VALUES (?1, ?2)",
            ),
        ] {
            let mut insert = conn.prepare_cached(sql)?;
            let kept = entries.len().saturating_sub(remaining);
            remaining -= entries.len() - kept;
            for entry in entries.drain(kept..).rev() {
                insert.execute(entry)?;
            }
        }
        let complete = self.events.is_empty() && self.deliveries.is_empty();
        if complete {
            set_number(conn, meta::EVENTS_UP_TO, self.events_up_to)?;
            set_number(conn, meta::DELIVERIES_UP_TO, self.deliveries_up_to)?;
        }
        Ok(complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::open::open_writer;

    #[test]
    fn rolled_back_changes_are_not_applied() {
        let directory = tempfile::tempdir().unwrap();
        let conn = open_writer(&directory.path().join("store.db")).unwrap();
        let mut history = History::load(&conn).unwrap();
        history.note_new(2 * PIECE);
        assert!(history.is_behind());
        history.step(&conn).unwrap();
        assert!(!history.is_behind(), "it was all removed before");
        history.start_over();
        assert!(history.is_behind(), "or was not");
        history.step(&conn).unwrap();
        history.keep();
        history.start_over();
        assert!(!history.is_behind());
    }
}
