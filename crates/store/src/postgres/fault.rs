//! What goes wrong between here and the server, and what follows from it.

use std::fmt;
use std::time::Duration;

use tokio_postgres::error::SqlState;

use crate::StoreError;

/// Raised where what this node keeps in mind of the directory is out of date.
pub(super) const OUTDATED: &str = "PH001";
/// Raised where this node is no owner any more.
pub(super) const FENCED: &str = "PH002";
/// Raised where a record finds its delivery elsewhere than it stood.
pub(super) const SUPERSEDED: &str = "PH003";

/// Why something was not done.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The server said so, or cannot be heard.
    Server(tokio_postgres::Error),
    /// The server did not answer for so long.
    Silent(Duration),
    /// What is stored cannot be understood.
    Unreadable(String),
}

/// What follows from a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The connection is gone, or of no use any more; whether what was being committed is, nobody can say.
    Lost,
    /// Somebody was in the way: the same may succeed when it is done again.
    InTheWay,
    /// What was known of the directory is out of date.
    Outdated,
    /// This node is no owner any more.
    Fenced,
    /// A record came too late.
    Superseded,
    /// Something of the kind is there already.
    Duplicate,
    /// A partition is missing.
    NoPartition,
    /// It would fail again.
    Guilty,
}

impl Fault {
    /// What follows.
    pub(super) fn verdict(&self) -> Verdict {
        let error = match self {
            Fault::Server(error) => error,
            Fault::Silent(_) => return Verdict::Lost,
            Fault::Unreadable(_) => return Verdict::Guilty,
        };
        let Some(state) = error.code() else {
            // Whatever the server did not say itself happened on the way.
            return Verdict::Lost;
        };
        let class = state.code().get(..2).unwrap_or_default();
        if state.code() == OUTDATED {
            Verdict::Outdated
        } else if state.code() == FENCED {
            Verdict::Fenced
        } else if state.code() == SUPERSEDED {
            Verdict::Superseded
        } else if *state == SqlState::UNIQUE_VIOLATION {
            Verdict::Duplicate
        } else if *state == SqlState::CHECK_VIOLATION {
            Verdict::NoPartition
        } else if class == "40" || *state == SqlState::LOCK_NOT_AVAILABLE {
            Verdict::InTheWay
        } else if is_loss(state, class) {
            Verdict::Lost
        } else {
            Verdict::Guilty
        }
    }

    /// What whoever asked is told.
    pub(super) fn into_store_error(self) -> StoreError {
        match self {
            Fault::Server(ref error) if error.code() == Some(&SqlState::DISK_FULL) => {
                StoreError::Full
            }
            Fault::Server(_) | Fault::Silent(_) | Fault::Unreadable(_) => {
                StoreError::Unavailable(self.to_string())
            }
        }
    }
}

/// Whether a connection is of no use after this: it is being closed, the server became a standby, or a
/// proxy has lost our statements.
fn is_loss(state: &SqlState, class: &str) -> bool {
    class == "08"
        || class == "57" && *state != SqlState::QUERY_CANCELED
        || *state == SqlState::READ_ONLY_SQL_TRANSACTION
        || *state == SqlState::INVALID_SQL_STATEMENT_NAME
        || *state == SqlState::FEATURE_NOT_SUPPORTED
        || *state == SqlState::TOO_MANY_CONNECTIONS
}

/// Only the server's own words: what it adds in detail may be what somebody stored.
impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Server(error) => match error.as_db_error() {
                Some(said) => write!(formatter, "{} ({})", said.message(), said.code().code()),
                None => {
                    let source = std::error::Error::source(error);
                    match source {
                        Some(source) => write!(formatter, "{error}: {source}"),
                        None => write!(formatter, "{error}"),
                    }
                }
            },
            Fault::Silent(patience) => {
                write!(formatter, "no answer within {} s", patience.as_secs())
            }
            Fault::Unreadable(why) => write!(formatter, "what is stored cannot be read: {why}"),
        }
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Fault {
        Fault::Server(error)
    }
}

/// The thread that does everything is gone.
pub(super) fn stopped() -> StoreError {
    StoreError::Unavailable("the store's thread has stopped".to_owned())
}
