//! Errors of commands, with their messages and exit codes.
//!
//! [`CommandError`] is what every command returns. Errors that the user can fix with other arguments have exit code 2,
//! all others 1.

use std::io;
use std::path::PathBuf;

use posthaste_bench as bench;
use posthaste_charts::terminal::printable;
use posthaste_engine::vault::VaultError;
use posthaste_store::OpenError;
use posthaste_store::copy::CopyError;

use crate::client::ClientError;
use crate::config::ConfigError;
use crate::demo::DemoError;
use crate::node::{NodeFailure, StartError};

/// An error that ends a command. Errors that the user can fix have exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// A file cannot be written.
    #[error("cannot write {}: {error}", printable(&path.display().to_string()))]
    WriteFile {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// Standard output cannot be written.
    #[error("cannot print the response: {0}")]
    Print(io::Error),
    /// A benchmark failed.
    #[error(transparent)]
    Bench(bench::error::BenchError),
    /// A request to the server failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The command needs a tenant, and none was given.
    #[error(
        "no tenant: set --tenant or POSTHASTE_TENANT; `posthaste tenants list` lists tenants, `posthaste tenants create` creates one"
    )]
    NoTenant,
    /// The input of the command is invalid.
    #[error("{0}")]
    Input(String),
    /// The command did its work, but the outcome is a failure.
    #[error("{0}")]
    OutcomeFailed(String),
    /// The configuration is invalid.
    #[error(transparent)]
    Config(ConfigError),
    /// The configured CA certificates cannot be used.
    #[error("{0}")]
    Roots(String),
    /// A system call failed before the start.
    #[error("cannot start the runtime: {0}")]
    System(io::Error),
    /// The server cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The store to back up is not a file but a database at this URL.
    #[error("{0} is a PostgreSQL database: back it up with pg_dump or another PostgreSQL tool")]
    BackupOfDatabase(String),
    /// The backup failed.
    #[error(transparent)]
    Backup(OpenError),
    /// One of the two stores is of the wrong kind for a copy.
    #[error("{0}")]
    WrongStoreKind(&'static str),
    /// Copying to another store failed.
    #[error(transparent)]
    Copy(CopyError),
    /// A copy does not contain the same data as its original.
    #[error("the two stores differ: do not use the copy")]
    CountsDiffer,
    /// The file of master keys cannot be read or changed.
    #[error(transparent)]
    MasterKeyFile(VaultError),
    /// No email can be sent, because the mail server or the recipient is not configured.
    #[error("{0}")]
    NoMail(&'static str),
    /// The mail server did not accept an email.
    #[error("{server} rejected the email to {}: {reason}", printable(recipient))]
    EmailRefused {
        /// The mail server.
        server: String,
        /// The recipient.
        recipient: String,
        /// The reason.
        reason: String,
    },
    /// A second stop signal ended the server without waiting.
    #[error(
        "stopped immediately by a second signal: attempts in flight are repeated at the next start"
    )]
    SecondSignal,
    /// The server failed while it was running.
    #[error(transparent)]
    NodeFailed(NodeFailure),
}

impl From<DemoError> for CommandError {
    fn from(error: DemoError) -> CommandError {
        match error {
            DemoError::System(error) => CommandError::System(error),
            DemoError::Start(error) => CommandError::Start(error),
            DemoError::Client(error) => CommandError::Client(error),
        }
    }
}

impl CommandError {
    /// Returns 2 for errors that the user can fix with other arguments, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            CommandError::NoTenant
            | CommandError::Input(_)
            | CommandError::Config(_)
            | CommandError::BackupOfDatabase(_)
            | CommandError::WrongStoreKind(_)
            | CommandError::NoMail(_)
            | CommandError::Roots(_) => 2,
            CommandError::WriteFile { .. }
            | CommandError::Print(_)
            | CommandError::OutcomeFailed(_)
            | CommandError::System(_)
            | CommandError::Backup(_)
            | CommandError::MasterKeyFile(_)
            | CommandError::Copy(_)
            | CommandError::CountsDiffer
            | CommandError::EmailRefused { .. }
            | CommandError::SecondSignal
            | CommandError::NodeFailed(_) => 1,
            CommandError::Client(error) => error.exit_code(),
            CommandError::Start(error) => error.exit_code(),
            CommandError::Bench(failure) => failure.exit_code(),
        }
    }
}
