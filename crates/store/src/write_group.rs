//! The size of a group commit.

/// Maximum number of operations of one group.
const MAX_GROUP: usize = 1_024;
/// Maximum number of bytes of one group, unless a single operation is larger.
const MAX_GROUP_BYTES: usize = 8 * 1_024 * 1_024;

/// The rest of what one group commit may take, in operations and bytes.
pub(crate) struct GroupBudget {
    operations: usize,
    bytes: usize,
}

impl GroupBudget {
    /// Creates the budget of a new group.
    pub(crate) fn new() -> GroupBudget {
        GroupBudget {
            operations: MAX_GROUP,
            bytes: MAX_GROUP_BYTES,
        }
    }

    /// Takes an operation of this size, or returns false if the group must end before it. The first one always fits.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let is_first = self.operations == MAX_GROUP;
        let fits = is_first || (self.operations > 0 && bytes <= self.bytes);
        if fits {
            self.operations -= 1;
            self.bytes = self.bytes.saturating_sub(bytes);
        }
        fits
    }
}
