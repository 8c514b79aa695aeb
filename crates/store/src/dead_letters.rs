//! Dead letters, grouped by endpoint and failure kind.
//!
//! [`DeadLetterGroup`] is one group. Counting stops at [`MAX_GROUP_COUNT`], and a page at a maximum number of
//! endpoints, so that the time of a page does not depend on the number of dead letters.

use posthaste_core::classify::FailureKind;
use posthaste_core::id::EndpointId;
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::Timestamp;

use crate::StoredDelivery;
use crate::codes::Coded;

/// Maximum number of dead letters counted per group.
pub const MAX_GROUP_COUNT: usize = 1_000;
/// Maximum number of endpoints that one page visits. Then the page ends, with the groups found so far.
pub(crate) const MAX_ENDPOINTS_SCANNED: usize = 5_000;

/// Identifies a group: the endpoint and the failure kind. Dead letters without a kind form a group of their own.
pub type DeadLetterGroupKey = (EndpointId, Option<FailureKind>);

/// The dead letters of one endpoint with the same failure kind.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetterGroup {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// Its current URL.
    pub url: String,
    /// Its status. Dead letters of a disabled or deleted endpoint cannot be replayed.
    pub status: EndpointStatus,
    /// The last failure kind of all of them: their [`StoredDelivery::error_kind`].
    pub error_kind: Option<FailureKind>,
    /// Number of dead letters in the group.
    pub count: BoundedCount,
    /// The dead letter with the greatest id.
    pub newest: StoredDelivery,
    /// The time at which the event of the dead letter with the smallest id was accepted.
    pub oldest_at: Timestamp,
}

/// A count that stops at a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundedCount {
    /// The exact number.
    Exactly(usize),
    /// More than this number.
    MoreThan(usize),
}

impl BoundedCount {
    /// Converts a count that was taken up to [`MAX_GROUP_COUNT`] + 1.
    pub fn of(counted: usize) -> BoundedCount {
        if counted > MAX_GROUP_COUNT {
            BoundedCount::MoreThan(MAX_GROUP_COUNT)
        } else {
            BoundedCount::Exactly(counted)
        }
    }
}

/// Sorts before every failure kind.
pub(crate) const FIRST_RANK: i16 = -1;
/// The rank of dead letters without a kind: they come last.
pub(crate) const LAST_RANK: i16 = i16::MAX;

/// Returns the sort position of a kind within its endpoint.
pub fn rank(kind: Option<FailureKind>) -> i16 {
    kind.map_or(LAST_RANK, |kind| kind.code() as i16)
}

/// The position where a page of groups starts: the remaining groups of `first`, then the endpoints below `below`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// The endpoint that the last page ended in, and the rank of the last group returned.
    pub(crate) first: Option<(EndpointId, i16)>,
    /// Continue with endpoints below this id; `None` if only one endpoint is requested.
    pub(crate) below: Option<EndpointId>,
}

impl Start {
    /// Returns the start of the page that follows the group `before`, for one endpoint or for all.
    pub(crate) fn after(before: Option<DeadLetterGroupKey>, only: Option<EndpointId>) -> Start {
        let last_group = before.map(|(endpoint, kind)| (endpoint, rank(kind)));
        match only {
            None => Start {
                first: last_group,
                below: Some(last_group.map_or(EndpointId(u128::MAX), |(endpoint, _)| endpoint)),
            },
            Some(only) => {
                let rank = match last_group {
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
    fn a_page_starts_after_the_last_one() {
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
    fn a_bounded_count_shows_that_there_are_more() {
        assert_eq!(BoundedCount::of(0), BoundedCount::Exactly(0));
        assert_eq!(BoundedCount::of(1_000), BoundedCount::Exactly(1_000));
        assert_eq!(BoundedCount::of(1_001), BoundedCount::MoreThan(1_000));
    }
}
