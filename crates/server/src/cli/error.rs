//! Errors of commands, with their messages and exit codes.

use std::fmt;
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
use crate::node::{NodeFailure, SettingsError, StartError};

/// An error that ends a command. Errors that the user can fix have exit code 2.
#[derive(Debug)]
pub enum CommandError {
    /// A file cannot be written.
    WriteFile {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// Standard output cannot be written.
    Print(io::Error),
    /// A benchmark failed.
    Bench(bench::failure::Failure),
    /// A request to the server failed.
    Client(ClientError),
    /// The command needs a tenant, and none was given.
    NoTenant,
    /// The input of the command is invalid.
    Input(String),
    /// The command did its work, but the outcome is a failure.
    OutcomeFailed(String),
    /// The configuration is invalid.
    Config(ConfigError),
    /// The configured CA certificates cannot be used.
    Roots(String),
    /// A system call failed before the start.
    System(io::Error),
    /// The server cannot start.
    Start(StartError),
    /// The store to back up is not a file but a database at this URL.
    BackupOfDatabase(String),
    /// The backup failed.
    Backup(OpenError),
    /// One of the two stores is of the wrong kind for a copy.
    WrongStoreKind(&'static str),
    /// Copying to another store failed.
    Copy(CopyError),
    /// A copy does not contain the same data as its original.
    CountsDiffer,
    /// The file of master keys cannot be read or changed.
    MasterKeyFile(VaultError),
    /// No email can be sent, because the mail server or the recipient is not configured.
    NoMail(&'static str),
    /// The mail server did not accept an email.
    EmailRefused {
        /// The mail server.
        server: String,
        /// The recipient.
        recipient: String,
        /// The reason.
        reason: String,
    },
    /// A second stop signal ended the server without waiting.
    SecondSignal,
    /// The server failed while it was running.
    NodeFailed(NodeFailure),
}

impl From<ClientError> for CommandError {
    fn from(error: ClientError) -> CommandError {
        CommandError::Client(error)
    }
}

impl From<SettingsError> for CommandError {
    fn from(error: SettingsError) -> CommandError {
        match error {
            SettingsError::Config(error) => CommandError::Config(error),
            SettingsError::Roots(error) => CommandError::Roots(error),
        }
    }
}

impl From<DemoError> for CommandError {
    fn from(error: DemoError) -> CommandError {
        match error {
            DemoError::System(error) => CommandError::System(error),
            DemoError::Settings(error) => error.into(),
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
            | CommandError::Start(_)
            | CommandError::Backup(_)
            | CommandError::MasterKeyFile(_)
            | CommandError::Copy(_)
            | CommandError::CountsDiffer
            | CommandError::EmailRefused { .. }
            | CommandError::SecondSignal
            | CommandError::NodeFailed(_) => 1,
            CommandError::Client(error) => error.exit_code(),
            CommandError::Bench(failure) => failure.exit_code(),
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::WriteFile { path, error } => {
                let path = printable(&path.display().to_string());
                write!(f, "cannot write {path}: {error}")
            }
            CommandError::Print(error) => write!(f, "cannot print the answer: {error}"),
            CommandError::Bench(failure) => failure.fmt(f),
            CommandError::Client(error) => error.fmt(f),
            CommandError::NoTenant => f.write_str(
                "no tenant: name one with --tenant or in POSTHASTE_TENANT; `posthaste tenants list` \
                 lists them, `posthaste tenants create` makes one",
            ),
            CommandError::Input(message)
            | CommandError::OutcomeFailed(message)
            | CommandError::Roots(message) => f.write_str(message),
            CommandError::Config(error) => error.fmt(f),
            CommandError::System(error) => {
                write!(f, "this machine does not let us begin: {error}")
            }
            CommandError::Start(error) => error.fmt(f),
            CommandError::BackupOfDatabase(url) => write!(
                f,
                "{url} is a PostgreSQL database and no file: copy it with pg_dump, or as its operator does"
            ),
            CommandError::Backup(error) => error.fmt(f),
            CommandError::WrongStoreKind(message) | CommandError::NoMail(message) => {
                f.write_str(message)
            }
            CommandError::Copy(error) => error.fmt(f),
            CommandError::CountsDiffer => {
                f.write_str("the two stores do not hold the same: do not use the copy")
            }
            CommandError::MasterKeyFile(error) => error.fmt(f),
            CommandError::EmailRefused {
                server,
                recipient,
                reason,
            } => {
                let recipient = printable(recipient);
                write!(f, "{server} did not take the letter to {recipient}: {reason}")
            }
            CommandError::SecondSignal => f.write_str(
                "told to stop twice: what was in flight will be sent again at the next start",
            ),
            CommandError::NodeFailed(failure) => failure.fmt(f),
        }
    }
}
