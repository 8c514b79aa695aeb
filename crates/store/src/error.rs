//! Errors of stores.
//!
//! [`StoreError`] is a failed operation, and [`OpenError`] a store that cannot be opened. Both are made where the
//! database's error occurs; messages say what the operator can do.

use std::path::PathBuf;

/// An operation failed. Nothing was written, except possibly after [`StoreError::Unavailable`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The disk is full. A retry succeeds once there is space.
    #[error("the disk that holds the store is full")]
    Full,
    /// The write queue is full, or too many reads or searches wait. A retry shortly afterwards succeeds.
    #[error("the store cannot keep up with the writes")]
    Overloaded,
    /// The store cannot be used now, and possibly not until an operator intervenes. A write may have been committed: if
    /// the connection or the disk fails during the commit, its outcome is unknown.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// Stored data cannot be decoded. A retry fails again.
    #[error("cannot read stored data: {0}")]
    Unreadable(String),
    /// The database needs a newer version of this program, and this node cannot use it any more. The text says what to do.
    #[error("{0}")]
    DatabaseTooNew(String),
    /// The store is shutting down.
    #[error("the store is closing")]
    Closed,
}

/// The reason why a store cannot be opened, with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process uses it.
    #[error(
        "{path} is in use by another posthaste process; stop that process, or use another store"
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It was written by a newer version.
    #[error(
        "{path} was written by a newer posthaste (format {found}, this program supports {known}); run that version, or restore a backup"
    )]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its schema version.
        found: u32,
        /// The newest schema version that this program knows.
        known: u32,
    },
    /// It is not a posthaste store.
    #[error(
        "{path} is not a posthaste store: {why}; point --store at another file, or move this one away"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The reason for that conclusion.
        why: String,
    },
    /// It is damaged.
    #[error("{path} is damaged: {why}; restore a backup made by `posthaste backup`")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The damage that was found.
        why: String,
    },
    /// This build uses an SQLite version with a known data-loss bug.
    #[error(
        "this program was built with SQLite {found}, which can lose data; build it with 3.51.3 or later, but not 3.52.0"
    )]
    UnsafeEngine {
        /// The version.
        found: String,
    },
    /// The database server does not answer.
    #[error(
        "cannot reach the database {server}: {why}; check that it is running, that host and port are correct, and that no firewall blocks the connection"
    )]
    Unreachable {
        /// The server, without a password.
        server: String,
        /// The error.
        why: String,
    },
    /// The database server rejects the login.
    #[error("{server} rejects user {user}: {why}; set the password in the URL or in PGPASSWORD")]
    WrongPassword {
        /// The server, without a password.
        server: String,
        /// The database user.
        user: String,
        /// The server's message.
        why: String,
    },
    /// There is no such database.
    #[error(
        "{server} has no database {database}; create it with `CREATE DATABASE {database}`, or name another in the URL"
    )]
    NoSuchDatabase {
        /// The server, without a password.
        server: String,
        /// The database.
        database: String,
    },
    /// The database server is too old.
    #[error("{server} is PostgreSQL {found}; posthaste needs {needed} or later: upgrade it")]
    ServerTooOld {
        /// The server, without a password.
        server: String,
        /// Its version.
        found: u32,
        /// The oldest supported version.
        needed: u32,
    },
    /// The database was written by a newer version.
    #[error(
        "{server} is used by a newer posthaste: it needs schema version {found}, and this program (posthaste {}) knows versions up to {known}; start the newer version, or restore a backup that was made before the upgrade",
        env!("CARGO_PKG_VERSION")
    )]
    DatabaseTooNew {
        /// The server, without a password.
        server: String,
        /// The schema version that it needs.
        found: u32,
        /// The newest schema version that this program knows.
        known: u32,
    },
    /// The database was written by a version that is too old.
    #[error(
        "{server} was written by an older posthaste: it has schema version {found}, and this program (posthaste {}) migrates versions {oldest} to {known}; start a version in between first, then this one",
        env!("CARGO_PKG_VERSION")
    )]
    DatabaseTooOld {
        /// The server, without a password.
        server: String,
        /// Its schema version.
        found: u32,
        /// The oldest schema version that this program migrates.
        oldest: u32,
        /// The newest schema version that it knows.
        known: u32,
    },
    /// It is the target of a copy that was started and is not complete.
    #[error(
        "{server} contains an unfinished copy; run the same `posthaste store copy` again to continue it"
    )]
    HalfCopied {
        /// The server, without a password.
        server: String,
    },
    /// The database user lacks a privilege.
    #[error(
        "user {user} lacks privileges on {server}: {why}; make it the owner of the database, or `GRANT CREATE, USAGE ON SCHEMA public TO {user}`"
    )]
    LacksRights {
        /// The server, without a password.
        server: String,
        /// The database user.
        user: String,
        /// The server's message.
        why: String,
    },
    /// The database belongs to another program.
    #[error(
        "{server} contains tables of another program ({why}); use a separate database for posthaste"
    )]
    ForeignDatabase {
        /// The server, without a password.
        server: String,
        /// The server's message.
        why: String,
    },
    /// The database server refuses for another reason.
    #[error("cannot open {server}: {why}")]
    Server {
        /// The server, without a password.
        server: String,
        /// The server's message.
        why: String,
    },
    /// Any other cause: permissions, a missing directory, a failing disk.
    #[error("cannot open {path}: {why}")]
    Other {
        /// The file.
        path: PathBuf,
        /// The error.
        why: String,
    },
}
