//! What nodes call out to each other by `NOTIFY`.
//!
//! A notice is a hint and nothing more: whoever hears it looks, and whoever does not looks a little later.
//! So it may be lost, come twice, or be cut short, and one that cannot be read is none.
//!
//! | channel | payload | |
//! |---|---|---|
//! | `posthaste` | `changes` | something of what nodes keep in mind was changed |
//! | | `members N` | node N saw or made a change of who owns what |
//! | | `test N` | node N tries whether it can hear itself |
//! | `posthaste_N` | `work E=T E=T …` | there is work for these endpoints of node N, due at these times |
//! | | `work` | there is work, for too many to list |
//! | | `mail` | somebody asks or answers |

use posthaste_core::cluster::NodeNo;
use posthaste_core::id::EndpointId;
use posthaste_core::time::Timestamp;

/// What concerns everybody.
pub(super) const EVERYBODY: &str = "posthaste";
/// What is called out on [`EVERYBODY`] with every change of what nodes keep in mind.
pub(super) const CHANGES: &str = "changes";
/// What is called out to a node that has mail.
pub(super) const MAIL: &str = "mail";
/// How many endpoints a notice lists. PostgreSQL takes less than 8,000 bytes; each is 57 at most.
const MAX_LISTED: usize = 128;

/// The payload that tells an owner of work, as an aggregate over rows with an endpoint's `id` and the `due`
/// of its earliest work.
pub(super) const WORK_AGGREGATE: &str = "CASE WHEN count(*) <= 128 \
     THEN 'work ' || string_agg(id::text || '=' || due::text, ' ') ELSE 'work' END";

/// The channel of one node.
pub(super) fn channel_of(node: NodeNo) -> String {
    format!("{EVERYBODY}_{}", node.0)
}

/// What was called out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// Something of what nodes keep in mind was changed.
    Changes,
    /// Who owns what has changed, as this node saw.
    Members(NodeNo),
    /// A node tries whether it hears itself.
    Test(NodeNo),
    /// There is work for these endpoints of ours.
    Work(Vec<(EndpointId, Timestamp)>),
    /// There is work of ours, for too many to list.
    MuchWork,
    /// There is mail for us.
    Mail,
}

impl Notice {
    /// What the payload says. Work is what the node itself is told by [`WORK_AGGREGATE`].
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

    /// Reads a payload. Nothing if it cannot be read: a later version may call out more.
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
                // What is listed wrongly is work all the same.
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

/// An id as PostgreSQL writes a `uuid`.
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
