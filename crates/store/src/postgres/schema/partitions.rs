//! Daily partitions, so that an old day is deleted by dropping its tables.
//!
//! Events, ended deliveries and attempts are partitioned by the UTC day of their ids. A writer creates the partitions
//! of the day of its rows and of the next day. Several nodes may do so at once.

use posthaste_core::id::first_sequence;
use posthaste_core::time::{Span, Timestamp};
use rustc_hash::FxHashSet;

use super::lock;
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;

/// The partitioned tables.
pub(in crate::postgres) const PARTITIONED: [&str; 3] = ["events", "ended", "attempts"];
/// Length of a day.
const DAY: Span = Span::from_days(1);

/// A day, counted from 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::postgres) struct Day(u64);

impl Day {
    /// Returns the day of an id.
    pub(in crate::postgres) fn of(id: u128) -> Day {
        Day::at(Timestamp((id >> 80) as u64))
    }

    /// Returns the day of a time.
    pub(in crate::postgres) fn at(at: Timestamp) -> Day {
        Day(at.0 / DAY.as_millis())
    }

    /// Returns the next day.
    pub(in crate::postgres) fn next(self) -> Day {
        Day(self.0 + 1)
    }

    /// Returns the start of the day.
    pub(in crate::postgres) fn begins(self) -> Timestamp {
        Timestamp(self.0.saturating_mul(DAY.as_millis()))
    }

    /// Returns a lower bound of the day's ids.
    pub(in crate::postgres) fn first_id(self) -> u128 {
        // Without version and variant bits, so that it is less than all of them.
        u128::from(first_sequence(self.begins()) >> 12) << 80
    }

    /// Returns the name of a table's partition.
    pub(in crate::postgres) fn partition(self, table: &str) -> String {
        let date = self.begins().to_string();
        let digits = date.bytes().take_while(|byte| *byte != b'T');
        let digits = digits.filter(u8::is_ascii_digit).map(char::from);
        format!("{table}_{}", digits.collect::<String>())
    }
}

/// The partitions that are known to exist.
#[derive(Debug, Default)]
pub(in crate::postgres) struct Partitions {
    known: FxHashSet<Day>,
    /// The days whose partitions the present transaction has created.
    made: Vec<Day>,
}

impl Partitions {
    /// Returns whether a day and the next are known to have partitions.
    pub(in crate::postgres) fn has(&self, day: Day) -> bool {
        self.known.contains(&day) && self.known.contains(&day.next())
    }

    /// Creates the partitions of a day and of the next, within a transaction.
    pub(in crate::postgres) async fn make(
        &mut self,
        conn: &PgConnection,
        day: Day,
    ) -> Result<(), DbError> {
        if self.has(day) {
            return Ok(());
        }
        conn.execute("SELECT pg_advisory_xact_lock($1)", &[&lock::PARTITIONS])
            .await?;
        for day in [day, day.next()] {
            if self.known.contains(&day) {
                continue;
            }
            for table in PARTITIONED {
                make_one(conn, table, day).await?;
            }
            self.known.insert(day);
            self.made.push(day);
        }
        Ok(())
    }

    /// Notes that the transaction was committed.
    pub(in crate::postgres) fn settle(&mut self) {
        self.made.clear();
    }

    /// Notes that the transaction was rolled back.
    pub(in crate::postgres) fn rolled_back(&mut self) {
        for day in self.made.drain(..) {
            self.known.remove(&day);
        }
    }

    /// Forgets all partitions, because some may have been dropped.
    pub(in crate::postgres) fn forget(&mut self) {
        self.known.clear();
        self.made.clear();
    }
}

/// Creates one partition, if it does not exist. It is created as a table and then attached, so that no other
/// transaction has to wait.
async fn make_one(conn: &PgConnection, table: &str, day: Day) -> Result<(), DbError> {
    let name = day.partition(table);
    let row = conn
        .query_one("SELECT to_regclass($1) IS NOT NULL", &[&name])
        .await?;
    if row.get(0) {
        return Ok(());
    }
    let (from, to) = (uuid(day.first_id()), uuid(day.next().first_id()));
    conn.batch(&format!(
        "CREATE TABLE {name} (LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES \
         INCLUDING STORAGE); \
         ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ('{from}') TO ('{to}')"
    ))
    .await
}

/// Formats an id as an SQL `uuid`.
fn uuid(id: u128) -> String {
    let hex = format!("{id:032x}");
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::id::id_of;

    #[test]
    fn a_day_holds_its_ids_and_no_others() {
        let noon = Timestamp(1_794_744_000_250);
        let day = Day::at(noon);
        assert_eq!(day.partition("events"), "events_20261115");
        let id = id_of(first_sequence(noon), 77);
        assert_eq!(Day::of(id), day);
        assert!(day.first_id() < id && id < day.next().first_id());
        let least = id_of(first_sequence(day.begins()), 0);
        assert!(day.first_id() < least);
        let last = Timestamp(day.next().begins().0 - 1);
        assert!(id_of(first_sequence(last) | 0xfff, u64::MAX) < day.next().first_id());
        assert_eq!(uuid(1), "00000000-0000-0000-0000-000000000001");
    }
}
