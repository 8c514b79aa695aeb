//! Errors of the connection to PostgreSQL, and how the caller must react to each.
//!
//! [`DbError`] is the error; [`DbError::kind`] classifies it once into an [`ErrorKind`].

use std::fmt;
use std::time::Duration;

use tokio_postgres::error::SqlState;

use crate::StoreError;

/// SQLSTATE raised when the directory has changed since this node read it.
pub(super) const OUTDATED: &str = "PH001";
/// SQLSTATE raised when this node is not registered or does not own the shard.
pub(super) const FENCED: &str = "PH002";
/// SQLSTATE raised when a recorded delivery has changed since its attempt started.
pub(super) const SUPERSEDED: &str = "PH003";

/// The reason why a database operation failed.
#[derive(Debug)]
pub(crate) enum DbError {
    /// The server returned an error, or the connection failed.
    Server(tokio_postgres::Error),
    /// The server did not answer within this time.
    TimedOut(Duration),
    /// Stored data cannot be decoded.
    Corrupt(String),
}

/// The consequence of a [`DbError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorKind {
    /// The connection is lost or unusable. If a commit was in progress, its outcome is unknown.
    Lost,
    /// A lock conflict or serialisation failure. The same operation may succeed when it is repeated.
    Blocked,
    /// The routing table is out of date.
    Outdated,
    /// This node does not own the shard any more.
    Fenced,
    /// The delivery of a record has changed in the meantime.
    Superseded,
    /// A unique value exists already.
    Duplicate,
    /// A partition is missing.
    NoPartition,
    /// The server does not know our prepared statements any more, or they have changed. Nothing was done; a new
    /// connection prepares them again.
    Unprepared,
    /// The operation itself is at fault and would fail again.
    Refused,
}

impl DbError {
    /// Classifies this fault.
    pub(super) fn kind(&self) -> ErrorKind {
        let error = match self {
            DbError::Server(error) => error,
            DbError::TimedOut(_) => return ErrorKind::Lost,
            DbError::Corrupt(_) => return ErrorKind::Refused,
        };
        let Some(state) = error.code() else {
            // An error without an SQLSTATE is not from the server: the connection failed.
            return ErrorKind::Lost;
        };
        classify(state)
    }

    /// Converts this fault to the error for the caller.
    pub(super) fn into_store_error(self) -> StoreError {
        match self {
            DbError::Server(ref error) if error.code() == Some(&SqlState::DISK_FULL) => {
                StoreError::Full
            }
            DbError::Corrupt(why) => StoreError::Unreadable(why),
            DbError::Server(_) | DbError::TimedOut(_) => StoreError::Unavailable(self.to_string()),
        }
    }
}

/// Classifies an SQLSTATE.
fn classify(state: &SqlState) -> ErrorKind {
    let class = state.code().get(..2).unwrap_or_default();
    if state.code() == OUTDATED {
        ErrorKind::Outdated
    } else if state.code() == FENCED {
        ErrorKind::Fenced
    } else if state.code() == SUPERSEDED {
        ErrorKind::Superseded
    } else if *state == SqlState::UNIQUE_VIOLATION {
        ErrorKind::Duplicate
    } else if *state == SqlState::CHECK_VIOLATION {
        ErrorKind::NoPartition
    } else if is_loss(state, class) {
        ErrorKind::Lost
    } else if class == "40" || *state == SqlState::LOCK_NOT_AVAILABLE {
        ErrorKind::Blocked
    } else if is_unprepared(state) {
        ErrorKind::Unprepared
    } else {
        ErrorKind::Refused
    }
}

/// Returns whether the connection is unusable after this error: the server closes it, has become a standby, or does
/// not know the outcome of a commit itself.
fn is_loss(state: &SqlState, class: &str) -> bool {
    class == "08"
        || class == "57" && *state != SqlState::QUERY_CANCELED
        || *state == SqlState::READ_ONLY_SQL_TRANSACTION
        || *state == SqlState::TOO_MANY_CONNECTIONS
        || *state == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
        || *state == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
}

/// Returns whether a proxy lost or mixed up our prepared statements, or a migration changed their result type.
fn is_unprepared(state: &SqlState) -> bool {
    *state == SqlState::INVALID_SQL_STATEMENT_NAME
        || *state == SqlState::DUPLICATE_PSTATEMENT
        || *state == SqlState::FEATURE_NOT_SUPPORTED
}

/// Shows only the server's main message: its details may contain stored data.
impl fmt::Display for DbError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DbError::Server(error) => match error.as_db_error() {
                Some(said) => write!(formatter, "{} ({})", said.message(), said.code().code()),
                None => {
                    let source = std::error::Error::source(error);
                    match source {
                        Some(source) => write!(formatter, "{error}: {source}"),
                        None => write!(formatter, "{error}"),
                    }
                }
            },
            DbError::TimedOut(limit) => {
                write!(formatter, "no response within {} s", limit.as_secs())
            }
            DbError::Corrupt(why) => write!(formatter, "cannot read stored data: {why}"),
        }
    }
}

impl From<tokio_postgres::Error> for DbError {
    fn from(error: tokio_postgres::Error) -> DbError {
        DbError::Server(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_are_classified_by_commit_certainty() {
        for (codes, kind) in [
            // The outcome of the commit is unknown, or the connection is closed.
            (
                &[
                    "08006", "08007", "57P01", "57P02", "57P03", "25006", "25P03",
                ][..],
                ErrorKind::Lost,
            ),
            (&["40003", "53300"], ErrorKind::Lost),
            (&["40001", "40P01", "55P03"], ErrorKind::Blocked),
            (&["26000", "42P05", "0A000"], ErrorKind::Unprepared),
            (&["23505"], ErrorKind::Duplicate),
            (&["23514"], ErrorKind::NoPartition),
            (
                &["53100", "53200", "57014", "22021", "XX000"],
                ErrorKind::Refused,
            ),
            (&["PH001"], ErrorKind::Outdated),
            (&["PH002"], ErrorKind::Fenced),
            (&["PH003"], ErrorKind::Superseded),
        ] {
            for code in codes {
                assert_eq!(classify(&SqlState::from_code(code)), kind, "{code}");
            }
        }
    }
}
