//! Dead letters, by where they were to go and by what was wrong.

use posthaste_core::classify::FailureKind;
use posthaste_core::id::EndpointId;
use posthaste_core::lane::Standing;
use posthaste_core::time::Timestamp;

use crate::StoredDelivery;
use crate::codes::Coded;

/// How far the dead letters of one group are counted.
pub const MAX_COUNTED: usize = 1_000;
/// At how many endpoints one page of groups looks. After that it ends, with what it found.
pub(crate) const MAX_ENDPOINTS_LOOKED_AT: usize = 5_000;

/// Which group: that of an endpoint and a kind of failure. Of those without a kind there is one too.
pub type DeadGroupKey = (EndpointId, Option<FailureKind>);

/// The dead letters to one endpoint that failed in the same way.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadGroup {
    /// Where they were to go.
    pub endpoint: EndpointId,
    /// The URL it has now.
    pub url: String,
    /// Whether it takes part. To one that is disabled or deleted nothing can be sent again.
    pub standing: Standing,
    /// What all of them failed with last: their [`StoredDelivery::error_kind`].
    pub error_kind: Option<FailureKind>,
    /// How many there are.
    pub count: BoundedCount,
    /// The one with the greatest id.
    pub newest: StoredDelivery,
    /// When the event of the one with the least id was accepted.
    pub oldest_at: Timestamp,
}

/// A number of things that are counted only so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundedCount {
    /// So many.
    Exactly(usize),
    /// So many, and more.
    MoreThan(usize),
}

impl BoundedCount {
    /// What a count says that went on to one past [`MAX_COUNTED`].
    pub fn of(counted: usize) -> BoundedCount {
        if counted > MAX_COUNTED {
            BoundedCount::MoreThan(MAX_COUNTED)
        } else {
            BoundedCount::Exactly(counted)
        }
    }
}

/// Before every kind.
pub(crate) const FIRST_RANK: i16 = -1;
/// Where those without a kind come: last.
pub(crate) const LAST_RANK: i16 = i16::MAX;

/// Where a kind comes among those of its endpoint.
pub fn rank(kind: Option<FailureKind>) -> i16 {
    kind.map_or(LAST_RANK, |kind| kind.code() as i16)
}

/// Where a page of groups begins: at endpoints below `below`, after what is left of `first`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// The endpoint whose causes the last page has not all told, and the rank of the last one it told.
    pub(crate) first: Option<(EndpointId, i16)>,
    /// Every endpoint below this id; nothing if only the first is asked for.
    pub(crate) below: Option<EndpointId>,
}

impl Start {
    /// Where the page after `before` begins, of one endpoint or of all.
    pub(crate) fn after(before: Option<DeadGroupKey>, only: Option<EndpointId>) -> Start {
        let told = before.map(|(endpoint, kind)| (endpoint, rank(kind)));
        match only {
            None => Start {
                first: told,
                below: Some(told.map_or(EndpointId(u128::MAX), |(endpoint, _)| endpoint)),
            },
            Some(only) => {
                let rank = match told {
                    None => FIRST_RANK,
                    Some((endpoint, _)) if only < endpoint => FIRST_RANK,
                    Some((endpoint, rank)) if only == endpoint => rank,
                    Some(_) => LAST_RANK,
                };
                Start {
                    first: Some((only, rank)),
                    below: None,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_begins_where_the_last_one_ended() {
        let (seven, nine) = (EndpointId(7), EndpointId(9));
        let all = |before| Start::after(before, None);
        let everything = EndpointId(u128::MAX);
        assert_eq!((all(None).first, all(None).below), (None, Some(everything)));
        let timeout = Some(FailureKind::Timeout);
        let on = all(Some((nine, timeout)));
        assert_eq!(on.first, Some((nine, 1)));
        assert_eq!(on.below, Some(nine));
        let only = |before| Start::after(before, Some(seven)).first;
        assert_eq!(only(None), Some((seven, FIRST_RANK)));
        assert_eq!(only(Some((nine, None))), Some((seven, FIRST_RANK)));
        assert_eq!(only(Some((seven, timeout))), Some((seven, 1)));
        assert_eq!(
            only(Some((EndpointId(3), timeout))),
            Some((seven, LAST_RANK))
        );
    }

    #[test]
    fn a_count_says_when_there_is_more() {
        assert_eq!(BoundedCount::of(0), BoundedCount::Exactly(0));
        assert_eq!(BoundedCount::of(1_000), BoundedCount::Exactly(1_000));
        assert_eq!(BoundedCount::of(1_001), BoundedCount::MoreThan(1_000));
    }
}
