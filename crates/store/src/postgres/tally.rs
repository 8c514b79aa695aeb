//! How much waits and how much has failed.
//!
//! Counted in the transaction that changes it, as the difference it makes for each endpoint; what comes
//! and goes within one batch costs nothing. Each node counts in a slot of its own, so that none waits for
//! another, and the sum over the slots is the figure. Endpoint 0 is all of them together.

use std::collections::BTreeMap;

use crate::codes::RowStatus;

/// Adds differences, sorted by endpoint. Takes endpoints, what waits, what has failed, and the slot.
pub(super) const COUNT: &str = "INSERT INTO tally AS t (endpoint_no, slot, waiting, dead) \
    SELECT endpoint_no, $4, waiting, dead \
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS d (endpoint_no, waiting, dead) \
    ON CONFLICT (endpoint_no, slot) \
    DO UPDATE SET waiting = t.waiting + excluded.waiting, dead = t.dead + excluded.dead";

/// All endpoints together.
pub(super) const EVERYWHERE: i64 = 0;

/// What one transaction changes, by endpoint: what waits, and what has failed.
#[derive(Debug, Default)]
pub(super) struct Tally {
    changes: BTreeMap<i64, (i64, i64)>,
}

impl Tally {
    /// A delivery to an endpoint is no longer of the one status, and is of the other.
    pub(super) fn count(
        &mut self,
        endpoint_no: i64,
        before: Option<RowStatus>,
        after: Option<RowStatus>,
    ) {
        let mut by = (0, 0);
        for (status, difference) in [(before, -1), (after, 1)] {
            match status {
                Some(RowStatus::Pending | RowStatus::Retrying) => by.0 += difference,
                Some(RowStatus::Failed) => by.1 += difference,
                Some(RowStatus::Succeeded | RowStatus::Cancelled) | None => {}
            }
        }
        self.add(endpoint_no, by.0, by.1);
    }

    /// So many more wait for an endpoint, and so many more have failed.
    pub(super) fn add(&mut self, endpoint_no: i64, waiting: i64, dead: i64) {
        if (waiting, dead) == (0, 0) {
            return;
        }
        for no in [endpoint_no, EVERYWHERE] {
            let change = self.changes.entry(no).or_default();
            change.0 += waiting;
            change.1 += dead;
        }
    }

    /// As [`COUNT`] takes it; nothing if nothing has changed.
    pub(super) fn columns(&self) -> Option<(Vec<i64>, Vec<i64>, Vec<i64>)> {
        let changed = self.changes.iter().filter(|(_, by)| **by != (0, 0));
        let mut columns = (Vec::new(), Vec::new(), Vec::new());
        for (no, (waiting, dead)) in changed {
            columns.0.push(*no);
            columns.1.push(*waiting);
            columns.2.push(*dead);
        }
        (!columns.0.is_empty()).then_some(columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_and_goes_costs_nothing() {
        let mut tally = Tally::default();
        tally.count(7, None, Some(RowStatus::Pending));
        tally.count(7, Some(RowStatus::Pending), Some(RowStatus::Succeeded));
        assert_eq!(tally.columns(), None);
        tally.count(9, Some(RowStatus::Retrying), Some(RowStatus::Failed));
        tally.count(3, None, Some(RowStatus::Pending));
        let sorted = (vec![0, 3, 9], vec![0, 1, -1], vec![1, 0, 1]);
        assert_eq!(tally.columns(), Some(sorted));
    }
}
