//! The stored format: migrations, partitions, and how rows and columns are read.
//!
//! [`MIGRATIONS`] lead from each schema version to the next, [`migrate`] runs them, and [`lock_wait`] waits for backups. [`partitions`] creates the
//! partitions of a day. [`columns`] converts values, [`delivery_rows`] and [`event_rows`] convert rows. [`lock`] and
//! [`meta`] name the advisory locks and the rows of the table `meta`. The names of tables and columns are contracts;
//! some are older than the names in the code. `docs/internals/stored-names.md` explains them.
//!
//! Guarantees: published migrations never change. A migration only adds, so that nodes of the version before keep working
//! while they are replaced. Two nodes never migrate at the same time, and a database of a newer version is refused.

pub(in crate::postgres) mod clock_skew;
pub(in crate::postgres) mod columns;
pub(in crate::postgres) mod delivery_rows;
pub(in crate::postgres) mod event_rows;
mod lock_wait;
pub(in crate::postgres) mod migrate;
pub(in crate::postgres) mod partitions;

/// The oldest schema version that this program migrates. No released version is older.
pub(in crate::postgres) const OLDEST_FORMAT: u32 = 1;

/// The newest schema version.
pub(in crate::postgres) const FORMAT: u32 = 10;

/// The migrations, each from the version before it.
pub(in crate::postgres) const MIGRATIONS: [&str; FORMAT as usize] = [
    include_str!("first.sql"),
    include_str!("second.sql"),
    include_str!("third.sql"),
    include_str!("fourth.sql"),
    include_str!("owner_emails.sql"),
    include_str!("one_off_requests.sql"),
    include_str!("nodes.sql"),
    include_str!("stats.sql"),
    include_str!("rolling_upgrade.sql"),
    include_str!("schedules.sql"),
];

/// Returns the SQL that brings an empty database to the newest schema version. Tests prepare a database with it and
/// give each test a copy; a store migrates its database itself.
pub fn schema_sql() -> String {
    let set_format = format!(
        "UPDATE meta SET value = {FORMAT} WHERE name = '{}'; INSERT INTO meta VALUES ('{}', {FORMAT})",
        meta::FORMAT,
        meta::SCHEMA
    );
    format!("{};\n{set_format}", MIGRATIONS.join(";\n"))
}

/// The endpoint number in the table `counters` for all endpoints together.
pub(in crate::postgres) const ALL_ENDPOINTS: i64 = 0;

/// Keys of PostgreSQL advisory locks. The stored functions use the first one too.
pub(in crate::postgres) mod lock {
    /// The directory: taken shared by transactions that rely on it, exclusively by transactions that change it.
    pub(crate) const DIRECTORY: i64 = 70_530_001;
    /// The schema version, held during a migration.
    pub(crate) const FORMAT: i64 = 70_530_002;
    /// The concurrency shares of one tenant, held while a node asks for its share. The tenant's number is added.
    pub(crate) const CONCURRENCY_SHARES: i64 = 70_530_004 << 32;
    /// The partitions, held while some are created or dropped.
    pub(crate) const PARTITIONS: i64 = 70_530_003;
}

/// Names of the numbers in the table `meta`.
pub(crate) mod meta {
    /// The schema version that a node must know to use the database.
    pub(crate) const FORMAT: &str = "format";
    /// The schema version that the migrations have reached. Absent if it is the other one.
    pub(crate) const SCHEMA: &str = "schema";
    /// Maximum number of milliseconds by which an event id is ahead of the time at which the event was accepted.
    pub(crate) const EVENT_CLOCK_SKEW: &str = "event_lead";
    /// The same for delivery ids.
    pub(crate) const DELIVERY_CLOCK_SKEW: &str = "delivery_lead";
    /// The greatest time part of an id that is no longer stored.
    pub(crate) const LAST_ID_TIME: &str = "last_moment";
    /// Fingerprint of the file that this database is a copy of.
    pub(crate) const COPIED_FROM: &str = "copied_from";
    /// Set when the copy is complete.
    pub(crate) const COPY_DONE: &str = "copy_done";
    /// Name of the master key that nodes encrypt with.
    pub(crate) const MASTER_KEY: &str = "master_key";
    /// Time of the database's clock at which the nodes' time meets it again after it was set back.
    pub(crate) const CLOCK_LEAD_UNTIL: &str = "clock_lead_until";
    /// A recent time of the nodes, behind which their time does not go back.
    pub(crate) const CLOCK_SAVED_AT: &str = "clock_saved_at";
    /// Time of the last write probe.
    pub(crate) const PROBED_AT: &str = "probed_at";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The migrations of version 0.1.0.
    const RELEASED: usize = 3;

    /// A migration holds its locks until it ends, and running nodes wait for them. So it must not take time for each row.
    #[test]
    fn migrations_change_no_rows() {
        for (number, migration) in MIGRATIONS.iter().enumerate().skip(RELEASED) {
            let changes = migration.lines().filter(|line| {
                ["UPDATE ", "DELETE ", "INSERT "]
                    .iter()
                    .any(|verb| line.starts_with(verb))
            });
            let changes: Vec<&str> = changes.collect();
            assert!(changes.is_empty(), "migration {}: {changes:?}", number + 1);
        }
    }
}
