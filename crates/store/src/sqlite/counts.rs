//! Counts of waiting and dead-lettered deliveries, in memory.
//!
//! [`DeliveryCounts`] is loaded once when the file is opened, from indexes that contain only waiting or failed
//! deliveries. After that, each committed transaction applies its [`CountChanges`].

use std::sync::{Mutex, PoisonError};

use posthaste_core::id::EndpointId;
use rusqlite::Connection;
use rustc_hash::FxHashMap;

use super::codes::RowStatus;
use super::delivery_rows::endpoint_id;
use crate::Counts;

/// The changes of one transaction.
#[derive(Debug, Default)]
pub(super) struct CountChanges {
    waiting: FxHashMap<EndpointId, i64>,
    dead: i64,
}

impl CountChanges {
    /// Counts a delivery that now has this status.
    pub(super) fn add(&mut self, endpoint: EndpointId, status: RowStatus) {
        self.count(endpoint, status, 1);
    }

    /// Counts a delivery that no longer has this status.
    pub(super) fn subtract(&mut self, endpoint: EndpointId, status: RowStatus) {
        self.count(endpoint, status, -1);
    }

    fn count(&mut self, endpoint: EndpointId, status: RowStatus, by: i64) {
        match status {
            RowStatus::Pending | RowStatus::Retrying => {
                *self.waiting.entry(endpoint).or_default() += by;
            }
            RowStatus::Failed => self.dead += by,
            RowStatus::Succeeded | RowStatus::Cancelled => {}
        }
    }
}

/// The counts.
#[derive(Debug, Default)]
pub(super) struct DeliveryCounts {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: FxHashMap<EndpointId, i64>,
    total: i64,
    dead: i64,
}

impl DeliveryCounts {
    /// Counts the stored deliveries.
    pub(super) fn load(conn: &Connection) -> rusqlite::Result<DeliveryCounts> {
        let mut inner = Inner::default();
        let mut statement = conn.prepare(
            "SELECT (SELECT id FROM endpoints WHERE no = endpoint_no), n FROM \
             (SELECT endpoint_no, count(*) AS n FROM deliveries INDEXED BY due \
              WHERE due IS NOT NULL GROUP BY endpoint_no)",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let waiting: i64 = row.get(1)?;
            inner.total += waiting;
            inner.waiting.insert(endpoint_id(row, 0)?, waiting);
        }
        inner.dead = conn.query_row(
            "SELECT count(*) FROM deliveries INDEXED BY dead WHERE status = 3",
            [],
            |row| row.get(0),
        )?;
        Ok(DeliveryCounts {
            inner: Mutex::new(inner),
        })
    }

    /// Applies the changes of a committed transaction.
    pub(super) fn apply(&self, changes: &CountChanges) {
        if changes.waiting.is_empty() && changes.dead == 0 {
            return;
        }
        let mut inner = self.lock();
        inner.dead += changes.dead;
        for (endpoint, by) in &changes.waiting {
            inner.total += by;
            let waiting = inner.waiting.entry(*endpoint).or_default();
            *waiting += by;
            if *waiting == 0 {
                inner.waiting.remove(endpoint);
            }
        }
    }

    /// Returns the totals.
    pub(super) fn counts(&self) -> Counts {
        let inner = self.lock();
        Counts {
            pending: inner.total.max(0) as u64,
            dead_letters: inner.dead.max(0) as u64,
        }
    }

    /// Returns the number of deliveries that wait for an endpoint.
    pub(super) fn pending(&self, endpoint: EndpointId) -> u64 {
        let inner = self.lock();
        inner
            .waiting
            .get(&endpoint)
            .map_or(0, |n| (*n).max(0) as u64)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
