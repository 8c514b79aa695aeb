//! What nodes tell each other about work: one notice for each owner and commit.

use posthaste_core::cluster::Shard;
use posthaste_core::id::EndpointId;
use posthaste_core::time::Timestamp;
use rustc_hash::FxHashMap;

use super::columns::ms;

/// A node hears of its own things on this channel, followed by its number.
pub(super) const OWN_CHANNEL: &str = "posthaste_";
/// How many endpoints one notice names; a notice holds less than 8,000 bytes. Past that, its owner is told
/// to look for itself.
pub(super) const MAX_NAMED: i64 = 150;
/// How a notice of work begins.
const WORK: &str = "work";

/// Tells the owners of these shards, but for one. The statement takes shards, entries of [`entry`], this
/// node and [`MAX_NAMED`].
pub(super) const TELL: &str = "SELECT pg_notify('posthaste_' || s.owner, CASE WHEN count(*) > $4 \
    THEN 'work' ELSE 'work ' || string_agg(g.entry, ' ') END) \
    FROM unnest($1::smallint[], $2::text[]) AS g (shard, entry) JOIN shards s ON s.no = g.shard \
    WHERE s.owner <> $3 GROUP BY s.owner";

/// What is told of an endpoint.
fn entry(endpoint: EndpointId, due: Timestamp) -> String {
    format!("{endpoint}@{}", ms(due))
}

/// Work for endpoints that may be somebody else's, the earliest of each.
#[derive(Debug, Default)]
pub(super) struct Work {
    earliest: FxHashMap<EndpointId, Timestamp>,
}

impl Work {
    /// Something is due.
    pub(super) fn add(&mut self, endpoint: EndpointId, due: Timestamp) {
        let earliest = self.earliest.entry(endpoint).or_insert(due);
        *earliest = due.min(*earliest);
    }

    /// What is due where.
    pub(super) fn iter(&self) -> impl Iterator<Item = (EndpointId, Timestamp)> {
        self.earliest
            .iter()
            .map(|(endpoint, due)| (*endpoint, *due))
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.earliest.is_empty()
    }

    /// As [`TELL`] takes it.
    pub(super) fn columns(&self) -> (Vec<i16>, Vec<String>) {
        let told = self.earliest.iter();
        told.map(|(endpoint, due)| (Shard::of(*endpoint).number() as i16, entry(*endpoint, *due)))
            .unzip()
    }
}

/// What a notice says about work: which endpoints, or nothing particular. Nothing if it is about something
/// else.
pub(super) fn read_work(notice: &str) -> Option<Vec<(EndpointId, Timestamp)>> {
    let rest = notice.strip_prefix(WORK)?;
    if !rest.is_empty() && !rest.starts_with(' ') {
        return None;
    }
    let read = |entry: &str| {
        let (endpoint, due) = entry.split_once('@')?;
        Some((endpoint.parse().ok()?, Timestamp(due.parse().ok()?)))
    };
    Some(rest.split_ascii_whitespace().filter_map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_reads_as_it_was_told() {
        let (endpoint, due) = (EndpointId(7 << 80), Timestamp(1_800_000_000_000));
        let notice = format!(
            "work {} {}",
            entry(endpoint, due),
            entry(EndpointId(9), due)
        );
        assert_eq!(
            read_work(&notice),
            Some(vec![(endpoint, due), (EndpointId(9), due)])
        );
        assert_eq!(read_work("work"), Some(Vec::new()));
        assert_eq!(read_work("mail"), None);
        assert_eq!(read_work("workers"), None);
    }

    #[test]
    fn a_notice_stays_below_its_limit() {
        let longest = entry(EndpointId(u128::MAX), Timestamp(u64::MAX)).len() + 1;
        assert!(WORK.len() + longest * (MAX_NAMED as usize) < 8_000);
    }
}
