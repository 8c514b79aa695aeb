//! What people are to be told, until they have been.

use posthaste_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Answer, Scope};

/// A letter keeps so many lines, and counts the rest.
pub const MAX_LETTER_LINES: usize = 50;

/// Something people want to hear of, kept until somebody has told them.
#[derive(Clone, Debug, PartialEq)]
pub struct NoticeEntry {
    /// Counts up.
    pub number: u64,
    /// What it is about.
    pub scope: Scope,
    /// When.
    pub at: Timestamp,
    /// The operational event's name, such as `endpoint.breaker_tripped`.
    pub name: String,
    /// Why, how often, and the like.
    pub detail: Value,
}

/// What one recipient is told of one notice. Plain data, kept as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LetterLine {
    /// When it happened.
    pub at: Timestamp,
    /// The notice's name.
    pub name: String,
    /// Whose it is, if one tenant's.
    pub tenant: Option<String>,
    /// The endpoint, as the API writes its id.
    pub endpoint: Option<String>,
    /// Where that endpoint is.
    pub endpoint_url: Option<String>,
    /// Why, how often, and the like.
    pub detail: Value,
}

/// What one recipient will be told by mail.
#[derive(Clone, Debug, PartialEq)]
pub struct Letter {
    /// Whose it is: an address.
    pub recipient: String,
    /// Counts its changes, so that what came while it was being sent is not lost.
    pub revision: u64,
    /// When its first line came.
    pub first_at: Timestamp,
    /// How often it was tried.
    pub tries: u32,
    /// Its lines, the oldest first.
    pub lines: Vec<LetterLine>,
    /// How many more there were.
    pub omitted: u64,
}

/// What came of sending a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It is on its way. Its recipient hears no more until then.
    Sent {
        /// When the next letter may go.
        quiet_until: Timestamp,
    },
    /// It is to be tried again.
    Later {
        /// When.
        at: Timestamp,
    },
    /// It never will be: it was refused for good.
    Dropped,
}

/// Keeps what people are to be told.
///
/// The herald goes through the notices in order. Whatever it does about one can be repeated without harm; what it has
/// done with is told in one transaction with the letters that come of it. So a crash loses nothing, and tells nobody
/// twice.
pub trait Outbox {
    /// Notices with a number above `after`, the oldest first, at most `limit`.
    fn notices(&self, after: u64, limit: usize) -> Answer<Vec<NoticeEntry>>;

    /// Makes notices of deliveries that failed: of each endpoint whose first came before `before` one, with their
    /// count. At most `limit` endpoints; says how many.
    fn gather_failures(&self, now: Timestamp, before: Timestamp, limit: usize) -> Answer<usize>;

    /// The number up to which notices have been told.
    fn told(&self) -> Answer<u64>;

    /// Moves that number from `from` to `up_to`, adds lines to the letters of their recipients, and lets go of what has
    /// been told. A new letter is due at `due_at`. Says false, and does nothing, if somebody else has moved it.
    fn tell(
        &self,
        now: Timestamp,
        from: u64,
        up_to: u64,
        lines: Vec<(String, LetterLine)>,
        due_at: Timestamp,
    ) -> Answer<bool>;

    /// Takes letters that are due, the longest due first, at most `limit`: each is due again at `until`, should
    /// nobody say what came of it.
    fn claim_letters(&self, now: Timestamp, until: Timestamp, limit: usize) -> Answer<Vec<Letter>>;

    /// Writes down what came of sending a letter as it was at `revision`. Lines that have come since stay.
    fn settle_letter(&self, recipient: String, revision: u64, posted: Posted) -> Answer<bool>;
}
