//! The payloads that nodes send each other by `NOTIFY`.
//!
//! A [`Notice`] is only a hint: a node that receives it looks immediately, and a node that does not looks a little
//! later. So a notice may be lost, duplicated or truncated, and one that cannot be parsed is ignored.
//!
//! | channel | payload | |
//! |---|---|---|
//! | `posthaste` | `changes` | the change log has new entries |
//! | | `members N` | node N saw or made a change of ownership |
//! | | `test N` | node N tests whether it receives its own `NOTIFY` messages |
//! | `posthaste_N` | `work E=T E=T …` | these endpoints of node N have work, due at these times |
//! | | `work` | too many endpoints of node N have work to list them |
//! | | `mail` | node N has a question or an answer to read |

use posthaste_core::cluster::NodeNo;
use posthaste_core::id::EndpointId;
use posthaste_core::time::Timestamp;

/// The channel for all nodes.
pub(super) const EVERYBODY: &str = "posthaste";
/// The payload on [`EVERYBODY`] for new entries of the change log.
pub(super) const CHANGES: &str = "changes";
/// The payload for a node that has questions or answers to read.
pub(super) const MAIL: &str = "mail";
/// Maximum number of endpoints in a payload. PostgreSQL allows less than 8,000 bytes; an endpoint takes at most 57.
const MAX_LISTED: usize = 128;

/// The payload that notifies an owner of work, as an SQL aggregate over rows with an endpoint's `id` and the `due`
/// time of its earliest work.
pub(super) const WORK_AGGREGATE: &str = "CASE WHEN count(*) <= 128 \
     THEN 'work ' || string_agg(id::text || '=' || due::text, ' ') ELSE 'work' END";

/// Returns the channel of one node.
pub(super) fn channel_of(node: NodeNo) -> String {
    format!("{EVERYBODY}_{}", node.0)
}

/// A parsed `NOTIFY` message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// The change log has new entries.
    Changes,
    /// This node saw or made a change of ownership.
    Members(NodeNo),
    /// This node tests whether it receives its own `NOTIFY` messages.
    Test(NodeNo),
    /// These endpoints of the receiving node have work.
    Work(Vec<(EndpointId, Timestamp)>),
    /// Too many endpoints of the receiving node have work to list them.
    MuchWork,
    /// The receiving node has questions or answers to read.
    Mail,
}

impl Notice {
    /// Returns the payload. For work it is the same text that [`WORK_AGGREGATE`] produces in SQL.
    pub(super) fn encode(&self) -> String {
        match self {
            Notice::Changes => CHANGES.to_owned(),
            Notice::Members(node) => format!("members {}", node.0),
            Notice::Test(node) => format!("test {}", node.0),
            Notice::Work(work) if work.len() > MAX_LISTED => Notice::MuchWork.encode(),
            Notice::Work(work) => {
                let listed = work
                    .iter()
                    .map(|(endpoint, due)| format!(" {}={}", hyphenated(endpoint.0), due.0));
                format!("work{}", listed.collect::<String>())
            }
            Notice::MuchWork => "work".to_owned(),
            Notice::Mail => MAIL.to_owned(),
        }
    }

    /// Parses a payload. Returns `None` for an unknown one, which a later version may send.
    pub(super) fn decode(payload: &str) -> Option<Notice> {
        let (word, rest) = payload.split_once(' ').unwrap_or((payload, ""));
        let node = || rest.parse().ok().map(NodeNo);
        match word {
            CHANGES if rest.is_empty() => Some(Notice::Changes),
            MAIL if rest.is_empty() => Some(Notice::Mail),
            "members" => node().map(Notice::Members),
            "test" => node().map(Notice::Test),
            "work" if rest.is_empty() => Some(Notice::MuchWork),
            "work" => {
                let mut listed = rest.split(' ').take(MAX_LISTED + 1);
                let work: Option<Vec<_>> = listed.by_ref().map(read_work).collect();
                // A list that cannot be parsed still means that there is work.
                Some(
                    work.filter(|work| work.len() <= MAX_LISTED)
                        .map_or(Notice::MuchWork, Notice::Work),
                )
            }
            _ => None,
        }
    }
}

fn read_work(item: &str) -> Option<(EndpointId, Timestamp)> {
    let (endpoint, due) = item.split_once('=')?;
    let hex: String = endpoint.split('-').collect();
    let id = (hex.len() == 32).then(|| u128::from_str_radix(&hex, 16).ok())??;
    Some((EndpointId(id), Timestamp(due.parse().ok()?)))
}

/// Formats an id as PostgreSQL formats a `uuid`.
fn hyphenated(id: u128) -> String {
    let hex = format!("{id:032x}");
    let (a, rest) = hex.split_at(8);
    let (b, rest) = rest.split_at(4);
    let (c, rest) = rest.split_at(4);
    let (d, e) = rest.split_at(4);
    format!("{a}-{b}-{c}-{d}-{e}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn payloads_are_what_the_statements_write() {
        let endpoint = EndpointId(0x0192_4567_89ab_7cde_8f01_2345_6789_abcd);
        let work = Notice::Work(vec![(endpoint, Timestamp(1_800_000_000_000))]);
        assert_eq!(
            work.encode(),
            "work 01924567-89ab-7cde-8f01-23456789abcd=1800000000000"
        );
        assert_eq!(Notice::decode("changes"), Some(Notice::Changes));
        assert_eq!(
            Notice::decode("members 7"),
            Some(Notice::Members(NodeNo(7)))
        );
        assert_eq!(Notice::decode("test 8"), Some(Notice::Test(NodeNo(8))));
        assert_eq!(Notice::decode("mail"), Some(Notice::Mail));
        assert_eq!(Notice::decode("work"), Some(Notice::MuchWork));
        assert!(WORK_AGGREGATE.contains(&format!("<= {MAX_LISTED} ")));
    }

    #[test]
    fn what_cannot_be_read_is_none_and_work_is_work() {
        for unknown in ["", "members", "members x", "party 3", "mail 3"] {
            assert_eq!(Notice::decode(unknown), None, "{unknown}");
        }
        for work in [
            "work x",
            "work 1=2",
            "work 01924567-89ab-7cde-8f01-23456789abcd=-1",
        ] {
            assert_eq!(Notice::decode(work), Some(Notice::MuchWork), "{work}");
        }
    }

    proptest! {
        #[test]
        fn work_reads_back_and_fits(ids in proptest::collection::vec((any::<u128>(), any::<i64>()), 1..300)) {
            let work: Vec<_> = ids
                .into_iter()
                .map(|(id, due)| (EndpointId(id), Timestamp(due.unsigned_abs())))
                .collect();
            let payload = Notice::Work(work.clone()).encode();
            prop_assert!(payload.len() < 8_000, "{} bytes", payload.len());
            let expected = if work.len() > 128 { Notice::MuchWork } else { Notice::Work(work) };
            prop_assert_eq!(Notice::decode(&payload), Some(expected));
        }

        #[test]
        fn no_payload_panics(payload in ".*") {
            let _ = Notice::decode(&payload);
        }
    }
}
