//! The format of what is stored.
//!
//! A format is a number; each step leads from one to the next. Steps that were published never change.

/// The newest format.
pub(super) const FORMAT: u32 = 3;

/// The steps, each from the format before it.
pub(super) const STEPS: [&str; FORMAT as usize] = [
    include_str!("first.sql"),
    include_str!("second.sql"),
    include_str!("third.sql"),
];

/// Returns the SQL that gives an empty database the newest format. Tests prepare a database with it, of which each test
/// gets a copy; a store migrates its database itself.
pub fn schema_sql() -> String {
    let set_format = format!(
        "UPDATE meta SET value = {FORMAT} WHERE name = '{}'",
        meta::FORMAT
    );
    format!("{};\n{set_format}", STEPS.join(";\n"))
}

/// Locks that belong to no row. Stored functions name the first too.
pub(super) mod lock {
    /// The directory: shared by whoever relies on it, exclusive to whoever changes it.
    pub(crate) const DIRECTORY: i64 = 70_530_001;
    /// The format, while somebody migrates.
    pub(crate) const FORMAT: i64 = 70_530_002;
    /// What nodes have of what a tenant may have under way, while one asks: with the tenant's number added.
    pub(crate) const ROOM: i64 = 70_530_004 << 32;
    /// The partitions, while somebody makes or drops some.
    pub(crate) const PARTITIONS: i64 = 70_530_003;
}

/// Numbers that are kept by name, in the table `meta`.
pub(crate) mod meta {
    /// The format.
    pub(crate) const FORMAT: &str = "format";
    /// By how many milliseconds the id of an event runs ahead of its time, at most.
    pub(crate) const EVENT_LEAD: &str = "event_lead";
    /// The same of deliveries.
    pub(crate) const DELIVERY_LEAD: &str = "delivery_lead";
    /// The greatest moment of an id that is not stored any more.
    pub(crate) const LAST_MOMENT: &str = "last_moment";
    /// Which file a copy was made of, by its fingerprint.
    pub(crate) const COPIED_FROM: &str = "copied_from";
    /// All of it was copied.
    pub(crate) const COPY_DONE: &str = "copy_done";
    /// The name of the master key that nodes seal with.
    pub(crate) const MASTER_KEY: &str = "master_key";
    /// When somebody last asked whether writing works.
    pub(crate) const PROBED_AT: &str = "probed_at";
}
