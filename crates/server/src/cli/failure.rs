//! What keeps a command from being done.

use std::fmt;
use std::io;
use std::path::PathBuf;

use posthaste_core::mistakes::Mistakes;
use posthaste_store::OpenError;
use posthaste_store::copy::CopyError;

use super::remote::Trouble;
use super::source::{Format, MAX_POLICY_BYTES};
use crate::bench;
use crate::config::ConfigError;
use crate::node::{Breakdown, StartError};
use crate::picture::terminal::printable;
use crate::vault::VaultError;

/// What keeps a command from being done. What the person can put right is told as usage.
#[derive(Debug)]
pub enum Failure {
    /// The policy cannot be read at all.
    Unreadable {
        /// What it was to be read from.
        source: String,
        /// Why it cannot be.
        error: io::Error,
    },
    /// The policy is larger than any policy needs to be.
    TooLarge {
        /// What it was read from.
        source: String,
    },
    /// The policy is not text in UTF-8.
    NotText {
        /// What it was read from.
        source: String,
    },
    /// The policy is not in the format it was taken for.
    Malformed {
        /// What it was read from.
        source: String,
        /// What it was taken for.
        format: Format,
        /// What is wrong, and where.
        message: String,
    },
    /// The document is well formed, and not a policy.
    Mistaken {
        /// What it was read from.
        source: String,
        /// Everything that is wrong with it.
        mistakes: Mistakes,
    },
    /// A picture cannot be written.
    Unwritable {
        /// Where it was to be written.
        path: PathBuf,
        /// Why it cannot be.
        error: io::Error,
    },
    /// The answer cannot be printed.
    Unprintable(io::Error),
    /// A benchmark came to no figures.
    Bench(bench::failure::Failure),
    /// The server did not do what was asked.
    Remote(Trouble),
    /// The configuration is not right.
    Misconfigured(ConfigError),
    /// The certificates that the operator names cannot be used.
    Roots(String),
    /// The machine does not let us begin.
    Unprepared(io::Error),
    /// The server cannot start.
    NotStarted(StartError),
    /// The store is no file: it is a database at this URL.
    NoFile(String),
    /// The store cannot be copied.
    NotCopied(OpenError),
    /// One of the two stores is not of the kind that can be copied so.
    Uncopied(String),
    /// A store cannot be carried to another.
    CopyFailed(CopyError),
    /// A copy does not hold what its original does.
    CountsDiffer,
    /// The master keys cannot be changed.
    NotRotated(VaultError),
    /// No letter can be sent, because nobody said through whom or to whom.
    NoMail(&'static str),
    /// The mail server did not take a letter.
    LetterRefused {
        /// The server.
        server: String,
        /// Who was to get it.
        recipient: String,
        /// Why it did not.
        why: String,
    },
    /// Told to stop twice, the server did not wait.
    Hurried,
    /// The server ran, and can do so no more.
    BrokenDown(Breakdown),
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Failure {
        Failure::Remote(trouble)
    }
}

impl Failure {
    /// 2 for what the person who asked can put right by asking differently, else 1.
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

fn write_mistakes(f: &mut fmt::Formatter<'_>, source: &str, mistakes: &Mistakes) -> fmt::Result {
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
        let mut mistakes = Mistakes::default();
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
