//! Why a store cannot do what was asked.

use std::path::PathBuf;

/// An operating error. What was asked for has not been done, unless the variant says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no room. Asking again works once there is.
    #[error("the disk that holds the store is full")]
    Full,
    /// More is waiting to be written than may wait. Asking again shortly works.
    #[error("the store has more to write than it can keep up with")]
    Overloaded,
    /// The store cannot be used now, and perhaps not without help.
    #[error("the store cannot be used: {0}")]
    Unavailable(String),
    /// The store is shutting down.
    #[error("the store is being closed")]
    Closed,
}

/// Why a store cannot be opened, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error(
        "{path} is in use by another posthaste process; stop that one, or give this one a store of its own"
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It was written by a later version.
    #[error(
        "{path} was written by a newer posthaste (format {found}, this program knows {known}); run that version, or restore a backup"
    )]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format this program knows.
        known: u32,
    },
    /// It is something else.
    #[error(
        "{path} is not a posthaste store: {why}; point --store at another file, or move this one away"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it looks like.
        why: String,
    },
    /// It is damaged.
    #[error("{path} is damaged: {why}; restore a backup made by `posthaste backup`")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// The engine's own library must not be used.
    #[error(
        "this program was built with SQLite {found}, which can lose data; build it with 3.51.3 or later, but not 3.52.0"
    )]
    UnsafeEngine {
        /// The version.
        found: String,
    },
    /// The database server does not answer.
    #[error(
        "cannot reach the database {server}: {why}; check that it runs, that host and port are right and that nothing between here and there refuses"
    )]
    Unreachable {
        /// The server, without a password.
        server: String,
        /// What happened.
        why: String,
    },
    /// The database server does not let us in.
    #[error(
        "{server} refuses user {user}: {why}; put the right password into the URL or into PGPASSWORD"
    )]
    WrongPassword {
        /// The server, without a password.
        server: String,
        /// As whom.
        user: String,
        /// What it said.
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
        /// The oldest that will do.
        needed: u32,
    },
    /// The database was written by a later version.
    #[error(
        "{server} was written by a newer posthaste (format {found}, this program knows {known}); run that version, or restore a backup"
    )]
    DatabaseTooNew {
        /// The server, without a password.
        server: String,
        /// Its format.
        found: u32,
        /// The newest format this program knows.
        known: u32,
    },
    /// A copy into it was begun and is not finished.
    #[error(
        "{server} holds a copy that was not finished; run the same `posthaste store copy` again, which goes on where it was"
    )]
    HalfCopied {
        /// The server, without a password.
        server: String,
    },
    /// The user may not do what is needed.
    #[error(
        "user {user} lacks rights on {server}: {why}; make it the owner of the database, or `GRANT CREATE, USAGE ON SCHEMA public TO {user}`"
    )]
    LacksRights {
        /// The server, without a password.
        server: String,
        /// As whom.
        user: String,
        /// What the server said.
        why: String,
    },
    /// The database is somebody else's.
    #[error(
        "{server} holds tables of another program ({why}); give posthaste a database of its own"
    )]
    ForeignDatabase {
        /// The server, without a password.
        server: String,
        /// What the server said.
        why: String,
    },
    /// The database server refuses for another reason.
    #[error("cannot open {server}: {why}")]
    Server {
        /// The server, without a password.
        server: String,
        /// What it said.
        why: String,
    },
    /// Anything else: permissions, a missing directory, a failing disk.
    #[error("cannot open {path}: {why}")]
    Other {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        why: String,
    },
}
