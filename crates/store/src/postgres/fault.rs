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
    /// The server does not know our statements any more, or not as they were: nothing was done, and another
    /// connection prepares them anew.
    Unprepared,
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
        follows(state)
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

/// What follows from what the server says.
fn follows(state: &SqlState) -> Verdict {
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
    } else if is_loss(state, class) {
        Verdict::Lost
    } else if class == "40" || *state == SqlState::LOCK_NOT_AVAILABLE {
        Verdict::InTheWay
    } else if is_unprepared(state) {
        Verdict::Unprepared
    } else {
        Verdict::Guilty
    }
}

/// Whether a connection is of no use after this: it is being closed, the server became a standby, or it does
/// not know itself what became of a commit.
fn is_loss(state: &SqlState, class: &str) -> bool {
    class == "08"
        || class == "57" && *state != SqlState::QUERY_CANCELED
        || *state == SqlState::READ_ONLY_SQL_TRANSACTION
        || *state == SqlState::TOO_MANY_CONNECTIONS
        || *state == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
        || *state == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
}

/// Whether a proxy has lost our statements, or confused them, or what they answer has another form since
/// somebody migrated.
fn is_unprepared(state: &SqlState) -> bool {
    *state == SqlState::INVALID_SQL_STATEMENT_NAME
        || *state == SqlState::DUPLICATE_PSTATEMENT
        || *state == SqlState::FEATURE_NOT_SUPPORTED
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_says_is_judged_by_what_can_still_be_known() {
        for (codes, verdict) in [
            // Whether it was committed, nobody knows, or the connection is over.
            (
                &[
                    "08006", "08007", "57P01", "57P02", "57P03", "25006", "25P03",
                ][..],
                Verdict::Lost,
            ),
            (&["40003", "53300"], Verdict::Lost),
            (&["40001", "40P01", "55P03"], Verdict::InTheWay),
            (&["26000", "42P05", "0A000"], Verdict::Unprepared),
            (&["23505"], Verdict::Duplicate),
            (&["23514"], Verdict::NoPartition),
            (
                &["53100", "53200", "57014", "22021", "XX000"],
                Verdict::Guilty,
            ),
            (&["PH001"], Verdict::Outdated),
            (&["PH002"], Verdict::Fenced),
            (&["PH003"], Verdict::Superseded),
        ] {
            for code in codes {
                assert_eq!(follows(&SqlState::from_code(code)), verdict, "{code}");
            }
        }
    }
}
