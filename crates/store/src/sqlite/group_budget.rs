//! The budget of a group commit: how many operations, bytes and rows it may still take.
//!
//! The writer ends a group when its [`GroupBudget`] is used up, so that no operation waits long for those before it.

/// Maximum number of operations of one group.
const MAX_GROUP: usize = 1_024;
/// Maximum number of bytes of one group, unless a single operation is larger.
const MAX_GROUP_BYTES: usize = 2 * 1_024 * 1_024;
/// Number of payload bytes that a request with several events stores in one transaction.
pub(super) const MAX_BYTES_AT_ONCE: usize = 1_024 * 1_024;
/// Number of bytes that take at least as long to write as a row without them.
pub(super) const BYTES_PER_ROW: usize = 4_096;
/// Number of rows after which a group ends, about 20 ms. The operation that reaches it is complete, so a transaction writes
/// at most this number of rows and those of one operation.
const MAX_GROUP_ROWS: u64 = 2_048;

/// The remaining size of one group commit.
pub(super) struct GroupBudget {
    is_empty: bool,
    operations: usize,
    bytes: usize,
    rows: u64,
}

impl GroupBudget {
    /// Creates the budget of a new group, for at most this number of operations.
    pub(super) fn new(operations: usize) -> GroupBudget {
        GroupBudget {
            is_empty: true,
            operations: operations.min(MAX_GROUP),
            bytes: MAX_GROUP_BYTES,
            rows: MAX_GROUP_ROWS,
        }
    }

    /// Takes an operation of this size, or returns false if the group must end before it. The first one always fits.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let fits = self.operations > 0 && self.rows > 0 && bytes <= self.bytes;
        let is_taken = self.is_empty || fits;
        if is_taken {
            self.is_empty = false;
            self.operations = self.operations.saturating_sub(1);
            self.bytes = self.bytes.saturating_sub(bytes);
        }
        is_taken
    }

    /// Subtracts rows that an operation has written.
    pub(super) fn spend(&mut self, rows: u64) {
        self.rows = self.rows.saturating_sub(rows);
    }

    /// Returns whether no further operation can be taken.
    pub(super) fn is_used_up(&self) -> bool {
        self.operations == 0 || self.rows == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_ends_at_its_first_limit() {
        let mut budget = GroupBudget::new(3);
        assert!(budget.take(MAX_GROUP_BYTES + 1), "the first always fits");
        assert!(!budget.take(1));
        let mut budget = GroupBudget::new(3);
        assert!((0..3).all(|_| budget.take(1)));
        assert!(budget.is_used_up() && !budget.take(0));
        let mut budget = GroupBudget::new(9);
        assert!(budget.take(0));
        budget.spend(MAX_GROUP_ROWS - 1);
        assert!(budget.take(0) && !budget.is_used_up());
        budget.spend(9);
        assert!(budget.is_used_up() && !budget.take(0));
        let mut budget = GroupBudget::new(usize::MAX);
        assert_eq!(
            (0..2 * MAX_GROUP).filter(|_| budget.take(1)).count(),
            MAX_GROUP
        );
    }
}
