//! Errors of commands.

use std::fmt;
use std::io;
use std::path::PathBuf;

use posthaste_bench as bench;
use posthaste_charts::terminal::printable;
use posthaste_core::mistakes::ValidationErrors;
use posthaste_engine::vault::VaultError;
use posthaste_store::OpenError;
use posthaste_store::copy::CopyError;

use super::remote::ApiCommandError;
use super::source::{Format, MAX_POLICY_BYTES};
use crate::config::ConfigError;
use crate::node::{NodeFailure, StartError};

/// An error that ends a command. Errors that the user can fix have exit code 2.
#[derive(Debug)]
pub enum Failure {
    /// The policy file cannot be read.
    Unreadable {
        /// Name of the source.
        source: String,
        /// The cause.
        error: io::Error,
    },
    /// The policy file is too large.
    TooLarge {
        /// Name of the source.
        source: String,
    },
    /// The policy is not UTF-8 text.
    NotText {
        /// Name of the source.
        source: String,
    },
    /// The policy is not valid in its format.
    Malformed {
        /// Name of the source.
        source: String,
        /// The assumed format.
        format: Format,
        /// The error, with its position.
        message: String,
    },
    /// The document is valid, but not a policy.
    Mistaken {
        /// Name of the source.
        source: String,
        /// All errors in it.
        mistakes: ValidationErrors,
    },
    /// A chart cannot be written.
    Unwritable {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// Standard output cannot be written.
    Unprintable(io::Error),
    /// A benchmark failed.
    Bench(bench::failure::Failure),
    /// A request to the server failed.
    Remote(ApiCommandError),
    /// The configuration is invalid.
    Misconfigured(ConfigError),
    /// The configured CA certificates cannot be used.
    Roots(String),
    /// A system call failed before the start.
    Unprepared(io::Error),
    /// The server cannot start.
    NotStarted(StartError),
    /// The store is not a file but a database at this URL.
    NoFile(String),
    /// The backup failed.
    NotCopied(OpenError),
    /// One of the two stores is of the wrong kind for a copy.
    Uncopied(String),
    /// Copying to another store failed.
    CopyFailed(CopyError),
    /// A copy does not contain the same data as its original.
    CountsDiffer,
    /// The master keys cannot be changed.
    NotRotated(VaultError),
    /// No email can be sent, because the mail server or the recipient is not configured.
    NoMail(&'static str),
    /// The mail server did not accept an email.
    LetterRefused {
        /// The mail server.
        server: String,
        /// The recipient.
        recipient: String,
        /// The reason.
        why: String,
    },
    /// A second stop signal ended the server without waiting.
    Hurried,
    /// The server failed while it was running.
    BrokenDown(NodeFailure),
}

impl From<ApiCommandError> for Failure {
    fn from(trouble: ApiCommandError) -> Failure {
        Failure::Remote(trouble)
    }
}

impl Failure {
    /// Returns 2 for errors that the user can fix with other arguments, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Unreadable { .. }
            | Failure::TooLarge { .. }
            | Failure::NotText { .. }
            | Failure::Malformed { .. }
            | Failure::Mistaken { .. }
            | Failure::Misconfigured(_)
            | Failure::NoFile(_)
            | Failure::Uncopied(_)
            | Failure::NoMail(_)
            | Failure::Roots(_) => 2,
            Failure::Unwritable { .. }
            | Failure::Unprintable(_)
            | Failure::Unprepared(_)
            | Failure::NotStarted(_)
            | Failure::NotCopied(_)
            | Failure::NotRotated(_)
            | Failure::CopyFailed(_)
            | Failure::CountsDiffer
            | Failure::LetterRefused { .. }
            | Failure::Hurried
            | Failure::BrokenDown(_) => 1,
            Failure::Remote(trouble) => trouble.exit_code(),
            Failure::Bench(failure) => failure.exit_code(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Unreadable { source, error } => write!(f, "cannot read {source}: {error}"),
            Failure::TooLarge { source } => write!(
                f,
                "{source} is too large: a policy has at most {} MiB",
                MAX_POLICY_BYTES >> 20
            ),
            Failure::NotText { source } => {
                write!(f, "{source} is not text in UTF-8, as JSON and TOML are")
            }
            Failure::Malformed {
                source,
                format,
                message,
            } => {
                let message = printable(message);
                write!(f, "{source} is not valid {format}: {message}")
            }
            Failure::Mistaken { source, mistakes } => write_mistakes(f, source, mistakes),
            Failure::Unwritable { path, error } => {
                let path = printable(&path.display().to_string());
                write!(f, "cannot write {path}: {error}")
            }
            Failure::Unprintable(error) => write!(f, "cannot print the answer: {error}"),
            Failure::Bench(failure) => failure.fmt(f),
            Failure::Remote(trouble) => trouble.fmt(f),
            Failure::Misconfigured(error) => error.fmt(f),
            Failure::Roots(why) => f.write_str(why),
            Failure::Unprepared(error) => write!(f, "this machine does not let us begin: {error}"),
            Failure::NotStarted(error) => error.fmt(f),
            Failure::NoFile(url) => write!(
                f,
                "{url} is a PostgreSQL database and no file: copy it with pg_dump, or as its operator does"
            ),
            Failure::NotCopied(error) => error.fmt(f),
            Failure::Uncopied(why) => f.write_str(why),
            Failure::CopyFailed(error) => error.fmt(f),
            Failure::CountsDiffer => {
                f.write_str("the two stores do not hold the same: do not use the copy")
            }
            Failure::NotRotated(error) => error.fmt(f),
            Failure::NoMail(why) => f.write_str(why),
            Failure::LetterRefused {
                server,
                recipient,
                why,
            } => {
                let recipient = printable(recipient);
                write!(f, "{server} did not take the letter to {recipient}: {why}")
            }
            Failure::Hurried => f.write_str(
                "told to stop twice: what was in flight will be sent again at the next start",
            ),
            Failure::BrokenDown(why) => why.fmt(f),
        }
    }
}

fn write_mistakes(
    f: &mut fmt::Formatter<'_>,
    source: &str,
    mistakes: &ValidationErrors,
) -> fmt::Result {
    write!(f, "{source} is not a retry policy")?;
    for mistake in mistakes.iter() {
        let field = match mistake.field.as_str() {
            "" => "policy",
            field => field,
        };
        let (field, message) = (printable(field), printable(&mistake.message));
        write!(f, "\n{field}: {message}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_has_a_line_of_its_own() {
        let mut mistakes = ValidationErrors::default();
        mistakes.note("", "must be an object");
        mistakes.note("a\nb\u{1b}", "is not known");
        let failure = Failure::Mistaken {
            source: "p.json".to_owned(),
            mistakes,
        };
        assert_eq!(
            failure.to_string(),
            "p.json is not a retry policy\npolicy: must be an object\na\u{fffd}b\u{fffd}: is not known"
        );
        assert_eq!(failure.exit_code(), 2);
    }
}
