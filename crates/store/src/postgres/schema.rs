//! The schema version and its migrations, and the names of locks and `meta` rows.
//!
//! Each migration leads from one schema version to the next. Published migrations never change.

/// The newest schema version.
pub(super) const FORMAT: u32 = 3;

/// The migrations, each from the version before it.
pub(super) const MIGRATIONS: [&str; FORMAT as usize] = [
    include_str!("first.sql"),
    include_str!("second.sql"),
    include_str!("third.sql"),
];

/// Returns the SQL that brings an empty database to the newest schema version. Tests prepare a database with it and
/// give each test a copy; a store migrates its database itself.
pub fn schema_sql() -> String {
    let set_format = format!(
        "UPDATE meta SET value = {FORMAT} WHERE name = '{}'",
        meta::FORMAT
    );
    format!("{};\n{set_format}", MIGRATIONS.join(";\n"))
}

/// Keys of PostgreSQL advisory locks. The stored functions use the first one too.
pub(super) mod lock {
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
    /// The schema version.
    pub(crate) const FORMAT: &str = "format";
    /// Maximum number of milliseconds by which an event id is ahead of the time at which the event was accepted.
    pub(crate) const EVENT_LEAD: &str = "event_lead";
    /// The same for delivery ids.
    pub(crate) const DELIVERY_LEAD: &str = "delivery_lead";
    /// The greatest time part of an id that is no longer stored.
    pub(crate) const LAST_ID_TIME: &str = "last_moment";
    /// Fingerprint of the file that this database is a copy of.
    pub(crate) const COPIED_FROM: &str = "copied_from";
    /// Set when the copy is complete.
    pub(crate) const COPY_DONE: &str = "copy_done";
    /// Name of the master key that nodes encrypt with.
    pub(crate) const MASTER_KEY: &str = "master_key";
    /// Time of the last write probe.
    pub(crate) const PROBED_AT: &str = "probed_at";
}
