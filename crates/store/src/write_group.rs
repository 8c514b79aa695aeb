//! The size of a group commit.

/// Maximum number of operations of one group.
const MAX_GROUP: usize = 1_024;
/// Maximum number of bytes of one group, unless a single operation is larger.
const MAX_GROUP_BYTES: usize = 8 * 1_024 * 1_024;

/// Returns the number of waiting operations that the next group takes, given their sizes in bytes in queue order.
pub(crate) fn group_len(sizes: impl Iterator<Item = usize>) -> usize {
    let mut bytes = 0;
    let mut count = 0;
    for size in sizes.take(MAX_GROUP) {
        bytes += size;
        if count > 0 && bytes > MAX_GROUP_BYTES {
            break;
        }
        count += 1;
    }
    count
}
