//! What people are to be told, until they have been.

use posthaste_core::time::{Span, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Answer, AuditEntry, Insertion, Scope};

/// A letter keeps so many lines, and counts the rest.
pub const MAX_LETTER_LINES: usize = 50;

/// So many notices wait to be told.
pub const MAX_NOTICES: u64 = 100_000;

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
    /// Counts the lines it was ever given, so that what came while it was being sent is not lost.
    pub revision: u64,
    /// When its first line came.
    pub first_at: Timestamp,
    /// How often it was tried.
    pub tries: u32,
    /// Its lines, the oldest first.
    pub lines: Vec<LetterLine>,
    /// How many more there were. There may be nothing else, if many came while the last one was being sent.
    pub omitted: u64,
}

/// How long letters wait at the most before they are sent. So a clock that is put back keeps nobody in the dark for
/// longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Longest {
    /// One that was not tried: while it gathers lines, its recipient is left alone, or somebody is sending it.
    pub untried: Span,
    /// One that was: until it is tried again.
    pub tried: Span,
}

impl Longest {
    /// As long as anybody could want them to.
    pub const ANY: Longest = Longest {
        untried: Span::from_days(36_500),
        tried: Span::from_days(36_500),
    };

    /// Letters that are due later than this are due now: those that were not tried, and those that were.
    pub(crate) fn latest(self, now: Timestamp) -> (Timestamp, Timestamp) {
        (now.after(self.untried), now.after(self.tried))
    }
}

/// Failures from here on are of a clock that has been put back since.
pub fn too_far_ahead(now: Timestamp, before: Timestamp) -> Timestamp {
    now.after(now.since(before))
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
///
/// Numbers have no gaps and grow in the order of the commits. At most [`MAX_NOTICES`] wait to be told: past that the
/// oldest go, which shows as a gap.
pub trait Outbox {
    /// Notices with a number above `after`, the oldest first, at most `limit`.
    fn notices(&self, after: u64, limit: usize) -> Answer<Vec<NoticeEntry>>;

    /// Writes an act into the audit of which a notice tells, as its own whom the notice is about: a tenant that has got
    /// the same id since reads nothing of it. A notice that has been told has been seen to, and nothing is written:
    /// [`Insertion::Taken`].
    fn keep_act(&self, notice: u64, act: AuditEntry) -> Answer<Insertion>;

    /// Makes notices of deliveries that failed: of each endpoint whose first came before `before` one,
    /// `delivery.failed`, with their count, their causes and an example. At most `limit` endpoints, those first that
    /// have failed for longest; says how many. What failed because its endpoint was deleted is nobody's news. Failures
    /// that lie as far ahead of `now` as `before` lies behind it are of a clock that has been put back since, and do not
    /// wait for it to come round.
    fn gather_failures(&self, now: Timestamp, before: Timestamp, limit: usize) -> Answer<usize>;

    /// The number up to which notices have been told.
    fn told(&self) -> Answer<u64>;

    /// Moves that number from `from` to `up_to`, adds lines to the letters of their recipients, and lets go of what has
    /// been told. A new letter is due at `due_at`, or when its recipient may hear more. Says false, and does nothing, if
    /// somebody else has moved it.
    fn tell(
        &self,
        now: Timestamp,
        from: u64,
        up_to: u64,
        lines: Vec<(String, LetterLine)>,
        due_at: Timestamp,
    ) -> Answer<bool>;

    /// Takes letters that are due, the longest due first, at most `limit`: each is due again at `until`, should
    /// nobody say what came of it. One that is due later than any letter waits was put off by a clock that has been put
    /// back since, and is due.
    fn claim_letters(
        &self,
        now: Timestamp,
        until: Timestamp,
        longest: Longest,
        limit: usize,
    ) -> Answer<Vec<Letter>>;

    /// Writes down what came of sending a letter as it was at `revision`. Lines that have come since stay. Says false,
    /// and does nothing, if there is no such letter any more.
    fn settle_letter(&self, recipient: String, revision: u64, posted: Posted) -> Answer<bool>;
}

/// A line as an engine keeps it: with the revision of its letter that it made, so that it is known whether it was
/// there when the letter was sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptLine {
    /// The revision of the letter that the line came with.
    #[serde(default)]
    pub came: u64,
    /// The line.
    #[serde(flatten)]
    pub line: LetterLine,
}

/// A letter as an engine keeps it: with when it is due. One without lines says that its recipient is to be left alone
/// until then.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptLetter {
    /// All but its lines.
    pub letter: Letter,
    /// Its lines, oldest first.
    pub lines: Vec<KeptLine>,
    /// The time at which it is to be sent.
    pub due_at: Timestamp,
}

/// What becomes of a kept letter.
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// It is kept like this.
    Kept(KeptLetter),
    /// Nothing of it is left.
    Gone,
    /// It is not the letter that was meant.
    Another,
}

impl KeptLetter {
    /// A letter to somebody who has none.
    pub fn new(recipient: String, now: Timestamp) -> KeptLetter {
        KeptLetter {
            letter: Letter {
                recipient,
                revision: 0,
                first_at: now,
                tries: 0,
                lines: Vec::new(),
                omitted: 0,
            },
            lines: Vec::new(),
            due_at: Timestamp(0),
        }
    }

    /// The letter as it is sent.
    pub fn into_letter(self) -> Letter {
        let lines = self.lines.into_iter().map(|kept| kept.line);
        Letter {
            lines: lines.collect(),
            ..self.letter
        }
    }

    /// Whether its time has come, or was put off by a clock that has been put back since.
    pub fn is_due(&self, now: Timestamp, longest: Longest) -> bool {
        let (untried, tried) = longest.latest(now);
        let latest = match self.letter.tries {
            0 => untried,
            1.. => tried,
        };
        self.due_at <= now || self.due_at > latest
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.letter.omitted == 0
    }

    /// Adds a line, or counts it if there is no room.
    pub fn add(&mut self, now: Timestamp, due_at: Timestamp, line: LetterLine) {
        if self.is_empty() {
            self.letter.first_at = now;
            self.letter.tries = 0;
            self.due_at = self.due_at.max(due_at);
        }
        let letter = &mut self.letter;
        letter.revision += 1;
        if self.lines.len() < MAX_LETTER_LINES {
            let came = letter.revision;
            self.lines.push(KeptLine { came, line });
        } else {
            letter.omitted += 1;
        }
    }

    /// What is left of it once it was sent as it was at `revision`, or was not.
    pub fn settle(mut self, revision: u64, posted: &Posted) -> Settled {
        if self.is_empty() || revision > self.letter.revision {
            return Settled::Another;
        }
        match posted {
            Posted::Sent { quiet_until } => {
                self.leave_out_what_came_by(revision);
                self.letter.tries = 0;
                self.due_at = *quiet_until;
                Settled::Kept(self)
            }
            Posted::Later { at } => {
                self.letter.tries = self.letter.tries.saturating_add(1);
                self.due_at = *at;
                Settled::Kept(self)
            }
            Posted::Dropped => {
                self.leave_out_what_came_by(revision);
                self.letter.tries = 0;
                match self.is_empty() {
                    true => Settled::Gone,
                    false => Settled::Kept(self),
                }
            }
        }
    }

    /// Each line knows when it came. Of whatever else came later there was no room for the rest: those that did not
    /// fit may have come before lines that did, if some were sent in between.
    fn leave_out_what_came_by(&mut self, revision: u64) {
        let letter = &mut self.letter;
        self.lines.retain(|line| line.came > revision);
        let later = (letter.revision - revision).saturating_sub(self.lines.len() as u64);
        letter.omitted = letter.omitted.min(later);
        if let Some(first) = self.lines.first() {
            letter.first_at = first.line.at;
        }
    }
}

/// Lines by recipient, in the order of the recipients.
pub fn by_recipient(
    lines: Vec<(String, LetterLine)>,
) -> std::collections::BTreeMap<String, Vec<LetterLine>> {
    let mut sorted: std::collections::BTreeMap<String, Vec<LetterLine>> = Default::default();
    for (recipient, line) in lines {
        sorted.entry(recipient).or_default().push(line);
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: u64) -> LetterLine {
        LetterLine {
            at: Timestamp(number),
            name: "endpoint.recovered".to_owned(),
            tenant: None,
            endpoint: None,
            endpoint_url: None,
            detail: Value::Null,
        }
    }

    fn with(lines: std::ops::Range<u64>) -> KeptLetter {
        let mut kept = KeptLetter::new("ops@example.com".to_owned(), Timestamp(1));
        for number in lines {
            kept.add(Timestamp(5), Timestamp(9), line(number));
        }
        kept
    }

    fn sent() -> Posted {
        Posted::Sent {
            quiet_until: Timestamp(77),
        }
    }

    #[test]
    fn what_came_while_it_was_being_sent_stays_however_full_it_is() {
        let most = MAX_LETTER_LINES as u64;
        for (before, during) in [(1, 0), (1, 3), (most - 1, 5), (most, 2), (most + 9, 7)] {
            let mut kept = with(0..before);
            let revision = kept.letter.revision;
            for number in before..before + during {
                kept.add(Timestamp(5), Timestamp(9), line(number));
            }
            let Settled::Kept(left) = kept.settle(revision, &sent()) else {
                panic!("it stays");
            };
            assert_eq!(left.due_at, Timestamp(77));
            let letter = left.into_letter();
            assert_eq!(letter.lines.len() as u64 + letter.omitted, during);
            for (index, line) in letter.lines.iter().enumerate() {
                assert_eq!(line.at, Timestamp(before + index as u64));
            }
        }
    }

    #[test]
    fn what_comes_after_a_storm_is_told_however_often_letters_were_sent() {
        let most = MAX_LETTER_LINES as u64;
        let mut kept = with(0..most);
        // Seven more come while it is sent, and find no room.
        for number in most..most + 7 {
            kept.add(Timestamp(5), Timestamp(9), line(number));
        }
        let Settled::Kept(mut kept) = kept.settle(most, &sent()) else {
            panic!("it stays");
        };
        assert_eq!((kept.lines.len(), kept.letter.omitted), (0, 7));
        // Two find room, of which one comes while the next is sent.
        kept.add(Timestamp(80), Timestamp(90), line(100));
        let revision = kept.letter.revision;
        kept.add(Timestamp(81), Timestamp(90), line(101));
        // Whoever took the first one for lost says so too late.
        for revision in [revision, most] {
            let Settled::Kept(left) = kept.settle(revision, &sent()) else {
                panic!("it stays");
            };
            let letter = left.clone().into_letter();
            assert_eq!((letter.lines, letter.omitted), (vec![line(101)], 0));
            kept = left;
        }
    }

    #[test]
    fn a_line_is_read_as_it_was_written_and_without_its_revision_too() {
        let kept = KeptLine {
            came: 3,
            line: line(1),
        };
        let written = serde_json::to_string(&kept).expect("plain data");
        let read: KeptLine = serde_json::from_str(&written).expect("it reads");
        assert_eq!(read, kept);
        let bare = serde_json::to_string(&kept.line).expect("plain data");
        let read: KeptLine = serde_json::from_str(&bare).expect("it reads");
        assert_eq!(read, KeptLine { came: 0, ..kept });
    }

    #[test]
    fn a_line_waits_until_its_recipient_may_hear_more() {
        let mut kept = with(0..1);
        assert_eq!(kept.due_at, Timestamp(9));
        kept.add(Timestamp(6), Timestamp(10), line(1));
        assert_eq!(kept.due_at, Timestamp(9), "with the one that waits");
        let Settled::Kept(mut quiet) = kept.settle(2, &sent()) else {
            panic!("it stays");
        };
        assert_eq!(quiet.lines, []);
        quiet.add(Timestamp(20), Timestamp(50), line(2));
        assert_eq!(quiet.due_at, Timestamp(77));
        assert_eq!(quiet.letter.first_at, Timestamp(20));
    }

    #[test]
    fn a_clock_that_is_put_back_silences_nobody_for_longer_than_was_said() {
        let minute = |minutes: u64| Timestamp(100 * 86_400_000 + minutes * 60_000);
        let longest = Longest {
            untried: Span::from_mins(10),
            tried: Span::from_mins(60),
        };
        // It was sent: its recipient is left alone for ten minutes, and another line comes.
        let posted = Posted::Sent {
            quiet_until: minute(10),
        };
        let Settled::Kept(mut quiet) = with(0..1).settle(1, &posted) else {
            panic!("it stays");
        };
        quiet.add(minute(1), minute(2), line(1));
        // It was not taken: it is tried again within the hour.
        let again = Posted::Later { at: minute(60) };
        let Settled::Kept(tried) = with(0..1).settle(1, &again) else {
            panic!("it stays");
        };
        for back_mins in [0, 1, 5, 30, 24 * 60, 90 * 24 * 60] {
            for (kept, due, said) in [(&quiet, 10, 10), (&tried, 60, 60)] {
                let now = |passed: u64| Timestamp(minute(passed).0 - back_mins * 60_000);
                let waits = (0..=said).find(|passed| kept.is_due(now(*passed), longest));
                let waits = waits.expect("it is due in the time that was said");
                assert!(back_mins > 0 || waits == due, "and not sooner, by itself");
            }
        }
    }

    #[test]
    fn what_is_tried_again_is_whole_and_what_is_refused_is_gone() {
        let again = Posted::Later { at: Timestamp(30) };
        let Settled::Kept(kept) = with(0..3).settle(3, &again) else {
            panic!("it stays");
        };
        assert_eq!((kept.lines.len(), kept.letter.tries), (3, 1));
        assert_eq!(kept.due_at, Timestamp(30));
        assert_eq!(kept.settle(3, &Posted::Dropped), Settled::Gone);
        assert_eq!(with(0..3).settle(4, &sent()), Settled::Another);
        let Settled::Kept(quiet) = with(0..1).settle(1, &sent()) else {
            panic!("it stays");
        };
        assert_eq!(quiet.settle(1, &sent()), Settled::Another);
    }
}
