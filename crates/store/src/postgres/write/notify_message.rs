//! The payloads that nodes send each other by `NOTIFY`.
//!
//! A [`NotifyMessage`] is only a hint: a node that receives it looks immediately, and a node that does not looks a
//! little later. So a message may be lost, duplicated or truncated, and one that cannot be parsed is ignored.
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
pub(in crate::postgres) const CLUSTER_CHANNEL: &str = "posthaste";
/// The payload on [`CLUSTER_CHANNEL`] for new entries of the change log.
pub(super) const CHANGES: &str = "changes";
/// The payload for a node that has questions or answers to read.
pub(super) const MAIL: &str = "mail";
/// Maximum number of endpoints in a payload. PostgreSQL allows less than 8,000 bytes; an endpoint takes at most 57.
const MAX_LISTED_ENDPOINTS: usize = 128;

/// The payload that notifies an owner of work, as an SQL aggregate over rows with an endpoint's `id` and the `due`
/// time of its earliest work.
pub(super) const WORK_PAYLOAD_SQL: &str = "CASE WHEN count(*) <= 128 \
     THEN 'work ' || string_agg(id::text || '=' || due::text, ' ') ELSE 'work' END";

/// Returns the channel of one node.
pub(in crate::postgres) fn channel_of(node: NodeNo) -> String {
    format!("{CLUSTER_CHANNEL}_{}", node.0)
}

/// A parsed `NOTIFY` message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::postgres) enum NotifyMessage {
    /// The change log has new entries.
    Changes,
    /// The node with this number saw or made a change of ownership.
    Members(NodeNo),
    /// The node with this number tests whether it receives its own `NOTIFY` messages.
    Test(NodeNo),
    /// These endpoints of the receiving node have work.
    Work(Vec<(EndpointId, Timestamp)>),
    /// Too many endpoints of the receiving node have work to list them.
    UnlistedWork,
    /// The receiving node has questions or answers to read.
    NodeRpc,
}

impl NotifyMessage {
    /// Returns the payload. For work it is the same text that [`WORK_PAYLOAD_SQL`] produces in SQL.
    pub(in crate::postgres) fn encode(&self) -> String {
        match self {
            NotifyMessage::Changes => CHANGES.to_owned(),
            NotifyMessage::Members(node) => format!("members {}", node.0),
            NotifyMessage::Test(node) => format!("test {}", node.0),
            NotifyMessage::Work(work) if work.len() > MAX_LISTED_ENDPOINTS => {
                NotifyMessage::UnlistedWork.encode()
            }
            NotifyMessage::Work(work) => {
                let listed = work
                    .iter()
                    .map(|(endpoint, due)| format!(" {}={}", hyphenated(endpoint.0), due.0));
                format!("work{}", listed.collect::<String>())
            }
            NotifyMessage::UnlistedWork => "work".to_owned(),
            NotifyMessage::NodeRpc => MAIL.to_owned(),
        }
    }

    /// Parses a payload. Returns `None` for an unknown one, which a later version may send.
    pub(in crate::postgres) fn decode(payload: &str) -> Option<NotifyMessage> {
        let (word, rest) = payload.split_once(' ').unwrap_or((payload, ""));
        let node = || rest.parse().ok().map(NodeNo);
        match word {
            CHANGES if rest.is_empty() => Some(NotifyMessage::Changes),
            MAIL if rest.is_empty() => Some(NotifyMessage::NodeRpc),
            "members" => node().map(NotifyMessage::Members),
            "test" => node().map(NotifyMessage::Test),
            "work" if rest.is_empty() => Some(NotifyMessage::UnlistedWork),
            "work" => {
                let mut listed = rest.split(' ').take(MAX_LISTED_ENDPOINTS + 1);
                let work: Option<Vec<_>> = listed.by_ref().map(read_work).collect();
                // A list that cannot be parsed still means that there is work.
                Some(
                    work.filter(|work| work.len() <= MAX_LISTED_ENDPOINTS)
                        .map_or(NotifyMessage::UnlistedWork, NotifyMessage::Work),
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
    fn encoded_messages_match_the_sql_statements() {
        let endpoint = EndpointId(0x0192_4567_89ab_7cde_8f01_2345_6789_abcd);
        let work = NotifyMessage::Work(vec![(endpoint, Timestamp(1_800_000_000_000))]);
        assert_eq!(
            work.encode(),
            "work 01924567-89ab-7cde-8f01-23456789abcd=1800000000000"
        );
        assert_eq!(
            NotifyMessage::decode("changes"),
            Some(NotifyMessage::Changes)
        );
        assert_eq!(
            NotifyMessage::decode("members 7"),
            Some(NotifyMessage::Members(NodeNo(7)))
        );
        assert_eq!(
            NotifyMessage::decode("test 8"),
            Some(NotifyMessage::Test(NodeNo(8)))
        );
        assert_eq!(NotifyMessage::decode("mail"), Some(NotifyMessage::NodeRpc));
        assert_eq!(
            NotifyMessage::decode("work"),
            Some(NotifyMessage::UnlistedWork)
        );
        assert!(WORK_PAYLOAD_SQL.contains(&format!("<= {MAX_LISTED_ENDPOINTS} ")));
    }

    #[test]
    fn unknown_messages_are_ignored_and_work_is_decoded() {
        for unknown in ["", "members", "members x", "party 3", "mail 3"] {
            assert_eq!(NotifyMessage::decode(unknown), None, "{unknown}");
        }
        for work in [
            "work x",
            "work 1=2",
            "work 01924567-89ab-7cde-8f01-23456789abcd=-1",
        ] {
            assert_eq!(
                NotifyMessage::decode(work),
                Some(NotifyMessage::UnlistedWork),
                "{work}"
            );
        }
    }

    proptest! {
        #[test]
        fn work_reads_back_and_fits(ids in proptest::collection::vec((any::<u128>(), any::<i64>()), 1..300)) {
            let work: Vec<_> = ids
                .into_iter()
                .map(|(id, due)| (EndpointId(id), Timestamp(due.unsigned_abs())))
                .collect();
            let payload = NotifyMessage::Work(work.clone()).encode();
            prop_assert!(payload.len() < 8_000, "{} bytes", payload.len());
            let expected = if work.len() > 128 { NotifyMessage::UnlistedWork } else { NotifyMessage::Work(work) };
            prop_assert_eq!(NotifyMessage::decode(&payload), Some(expected));
        }

        #[test]
        fn no_payload_panics(payload in ".*") {
            let _ = NotifyMessage::decode(&payload);
        }
    }
}
