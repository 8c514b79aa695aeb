//! The size of a batch: how many rows and bytes it writes, and when it is large enough.
//!
//! [`AcceptCost`] is known before events are planned, from the routing table, so that a batch ends before it lasts too
//! long and a request that makes many deliveries goes to a writer of its own.

use std::time::Duration;

use rustc_hash::FxHashMap;

use super::operation::AcceptOperation;
use super::routing_table::RoutingTable;

/// Number of rows after which a batch ends. One takes about 13 µs, so a batch takes about 30 ms.
const MAX_BATCH_ROWS: u64 = 2_048;
/// Number of payload bytes after which a batch ends.
const MAX_BATCH_BYTES: usize = 2 << 20;
/// Maximum number of operations in a batch.
const MAX_BATCH_OPERATIONS: usize = 1_024;
/// Number of deliveries above which a request is written by the writer for large accepts.
const LARGE_DELIVERIES: u64 = 1_000;
/// Number of payload bytes above which a request is written by the writer for large accepts.
const LARGE_BYTES: usize = MAX_BATCH_BYTES;
/// Rows that one record writes: the delivery moves from one table to another.
pub(super) const ROWS_PER_RECORD: u64 = 2;
/// The typical duration of one row, to charge an operation whose rows are not counted.
const ROW_TIME: Duration = Duration::from_micros(13);

/// Returns the number of rows that are written in this time.
pub(super) fn rows_in(time: Duration) -> u64 {
    u64::try_from(time.as_micros() / ROW_TIME.as_micros()).unwrap_or(u64::MAX)
}

/// The size of a batch so far.
#[derive(Debug, Default)]
pub(super) struct BatchWeight {
    rows: u64,
    bytes: usize,
    operations: usize,
}

impl BatchWeight {
    /// Adds an operation.
    pub(super) fn add(&mut self, rows: u64, bytes: usize) {
        self.rows = self.rows.saturating_add(rows);
        self.bytes = self.bytes.saturating_add(bytes);
        self.operations += 1;
    }

    /// Returns whether the batch would become too large with an operation of this size.
    pub(super) fn exceeds(&self, rows: u64, bytes: usize) -> bool {
        self.rows.saturating_add(rows) > MAX_BATCH_ROWS
            || self.bytes.saturating_add(bytes) > MAX_BATCH_BYTES
    }

    /// Returns whether the batch should get no more operations.
    pub(super) fn is_full(&self) -> bool {
        self.rows >= MAX_BATCH_ROWS
            || self.bytes >= MAX_BATCH_BYTES
            || self.operations >= MAX_BATCH_OPERATIONS
    }
}

/// The events and deliveries of a request if none of its events is stored already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AcceptCost {
    events: u64,
    deliveries: u64,
}

impl AcceptCost {
    /// Computes the cost of a request by a routing table.
    pub(super) fn of(routes: &RoutingTable, accepting: &AcceptOperation) -> AcceptCost {
        let tenant = accepting.tenant().and_then(|id| routes.tenant(id));
        // The row of a schedule and those of its runs.
        let advance = accepting.advance.as_ref();
        let runs = advance.map_or(0, |it| it.advance.runs.len() + 1);
        let mut by_type = FxHashMap::default();
        let mut deliveries = 0;
        for event in &accepting.events {
            deliveries += match (&event.only, tenant) {
                (_, None) => 0,
                (Some(_), Some(_)) => 1,
                (None, Some(tenant)) if tenant.endpoints.len() <= 1 => {
                    tenant.endpoints.len() as u64
                }
                (None, Some(tenant)) => *by_type
                    .entry(&event.content.event_type)
                    .or_insert_with_key(|event_type| tenant.count_routes(event_type)),
            };
        }
        AcceptCost {
            events: accepting.events.len() as u64 + runs as u64,
            deliveries,
        }
    }

    /// Returns the number of rows. A request that is refused because it makes more than `most` deliveries costs as
    /// much as its events, which are looked up.
    pub(super) fn rows(self, most: u64) -> u64 {
        match self.deliveries > most {
            true => self.events,
            false => self.events.saturating_add(self.deliveries),
        }
    }

    /// Returns whether the request is for the writer for large accepts. One that is refused for its size, because it
    /// makes more than `most` deliveries and none of them can be stored already, writes nothing.
    pub(super) fn is_large(self, accepting: &AcceptOperation, most: u64) -> bool {
        let has_keys = || accepting.events.iter().any(|it| it.idempotency.is_some());
        if self.deliveries > most {
            return has_keys();
        }
        self.deliveries > LARGE_DELIVERIES || accepting.bytes > LARGE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_ends_at_each_of_its_bounds() {
        for (rows, bytes, operations) in [
            (2, 0, 1_024),
            (100, 0, 21),
            (2_048, 0, 1),
            (1, 1 << 20, 2),
            (1, 0, 1_024),
        ] {
            let mut weight = BatchWeight::default();
            let mut added = 0;
            while !weight.is_full() {
                weight.add(rows, bytes);
                added += 1;
            }
            assert_eq!(added, operations, "{rows} rows, {bytes} bytes");
        }
    }

    #[test]
    fn a_batch_does_not_exceed_its_bounds() {
        let mut weight = BatchWeight::default();
        weight.add(1_000, 1 << 20);
        assert!(!weight.exceeds(1_048, 1 << 20));
        assert!(weight.exceeds(1_049, 0));
        assert!(weight.exceeds(1, (1 << 20) + 1));
    }

    #[test]
    fn time_is_charged_as_rows() {
        assert_eq!(rows_in(Duration::ZERO), 0);
        assert_eq!(rows_in(Duration::from_millis(26)), 2_000);
    }
}
