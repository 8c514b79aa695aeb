//! Counts of waiting and failed deliveries, by endpoint.
//!
//! Each transaction adds its differences to the table `counters`; a delivery that is accepted and delivered within one
//! batch causes no write. Each writer of a node has its own slot, so that none waits for another. The count is the
//! sum over the slots. Endpoint 0 stands for all endpoints together.

use std::collections::BTreeMap;

use crate::codes::RowStatus;
use crate::postgres::schema::ALL_ENDPOINTS;

/// Adds differences, sorted by endpoint. Takes endpoints, waiting counts, failed counts, and the slot.
pub(super) const COUNT: &str = "INSERT INTO tally AS t (endpoint_no, slot, waiting, dead) \
    SELECT endpoint_no, $4, waiting, dead \
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS d (endpoint_no, waiting, dead) \
    ON CONFLICT (endpoint_no, slot) \
    DO UPDATE SET waiting = t.waiting + excluded.waiting, dead = t.dead + excluded.dead";

/// The differences that one transaction makes, by endpoint: waiting and failed deliveries.
#[derive(Debug, Default)]
pub(in crate::postgres) struct CountChanges {
    changes: BTreeMap<i64, (i64, i64)>,
}

impl CountChanges {
    /// Adds the change of a delivery from one status to another.
    pub(in crate::postgres) fn count(
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

    /// Adds to the numbers of waiting and of failed deliveries of an endpoint.
    pub(in crate::postgres) fn add(&mut self, endpoint_no: i64, waiting: i64, dead: i64) {
        if (waiting, dead) == (0, 0) {
            return;
        }
        for no in [endpoint_no, ALL_ENDPOINTS] {
            let change = self.changes.entry(no).or_default();
            change.0 += waiting;
            change.1 += dead;
        }
    }

    /// Returns the parameters of [`COUNT`], or `None` if nothing has changed.
    pub(in crate::postgres) fn columns(&self) -> Option<(Vec<i64>, Vec<i64>, Vec<i64>)> {
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
    fn changes_that_cancel_out_write_nothing() {
        let mut count_changes = CountChanges::default();
        count_changes.count(7, None, Some(RowStatus::Pending));
        count_changes.count(7, Some(RowStatus::Pending), Some(RowStatus::Succeeded));
        assert_eq!(count_changes.columns(), None);
        count_changes.count(9, Some(RowStatus::Retrying), Some(RowStatus::Failed));
        count_changes.count(3, None, Some(RowStatus::Pending));
        let sorted = (vec![0, 3, 9], vec![0, 1, -1], vec![1, 0, 1]);
        assert_eq!(count_changes.columns(), Some(sorted));
    }
}
