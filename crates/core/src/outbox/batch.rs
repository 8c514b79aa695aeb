//! Groups a batch of rows by tenant, and keeps the order within an ordering key.
//!
//! [`batch_by_tenant`] returns a [`TenantBatch`] for each tenant. A row whose ordering key has an earlier row that is
//! locked ([`SkippedKeys`]) is left out, because that one must be accepted first.

use std::collections::{BTreeMap, BTreeSet};

/// The part of a row that decides about its place in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowHead<'a> {
    /// The row's tenant, as it is written in the table.
    pub tenant: &'a str,
    /// Its ordering key.
    pub ordering_key: Option<&'a str>,
}

/// Ordering keys of waiting rows that come before the end of the batch and are not in it, because another transaction
/// has locked them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkippedKeys {
    keys: BTreeSet<(String, String)>,
    is_complete: bool,
}

impl SkippedKeys {
    /// No row was skipped.
    pub fn none() -> SkippedKeys {
        SkippedKeys {
            keys: BTreeSet::new(),
            is_complete: true,
        }
    }

    /// The rows with these tenants and keys were skipped. If `is_complete` is false there are more of them, and no row
    /// with an ordering key can be accepted.
    pub fn of(keys: impl IntoIterator<Item = (String, String)>, is_complete: bool) -> SkippedKeys {
        SkippedKeys {
            keys: keys.into_iter().collect(),
            is_complete,
        }
    }

    /// Returns true if no row was skipped.
    pub fn is_empty(&self) -> bool {
        self.is_complete && self.keys.is_empty()
    }

    fn hold(&self, row: &RowHead<'_>) -> bool {
        row.ordering_key.is_some_and(|key| {
            let named = (row.tenant.to_owned(), key.to_owned());
            !self.is_complete || self.keys.contains(&named)
        })
    }
}

/// Rows of one tenant, by their positions in the batch, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantBatch<'a> {
    /// The tenant, as it is written in the table.
    pub tenant: &'a str,
    /// Positions of its rows.
    pub rows: Vec<usize>,
}

/// Groups the rows of a batch by tenant. A row is left out if a row with the same ordering key that was skipped must be
/// accepted first.
pub fn batch_by_tenant<'a>(rows: &[RowHead<'a>], skipped: &SkippedKeys) -> Vec<TenantBatch<'a>> {
    let mut tenants: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (position, row) in rows.iter().enumerate() {
        if !skipped.hold(row) {
            tenants.entry(row.tenant).or_default().push(position);
        }
    }
    let batches = tenants.into_iter();
    batches
        .map(|(tenant, rows)| TenantBatch { tenant, rows })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: [RowHead<'static>; 5] = [
        row("acme", Some("a")),
        row("globex", Some("a")),
        row("acme", None),
        row("acme", Some("b")),
        row("acme", Some("a")),
    ];

    const fn row(tenant: &'static str, ordering_key: Option<&'static str>) -> RowHead<'static> {
        RowHead {
            tenant,
            ordering_key,
        }
    }

    fn batches(skipped: &SkippedKeys) -> Vec<(&'static str, Vec<usize>)> {
        let batches = batch_by_tenant(&ROWS, skipped).into_iter();
        batches.map(|batch| (batch.tenant, batch.rows)).collect()
    }

    fn key(tenant: &str, key: &str) -> (String, String) {
        (tenant.to_owned(), key.to_owned())
    }

    #[test]
    fn rows_stay_in_order_within_their_tenant() {
        let all = batches(&SkippedKeys::none());
        assert_eq!(all, [("acme", vec![0, 2, 3, 4]), ("globex", vec![1])]);
    }

    #[test]
    fn rows_behind_a_skipped_row_of_their_ordering_key_are_left_out() {
        let skipped = SkippedKeys::of([key("acme", "a")], true);
        assert_eq!(
            batches(&skipped),
            [("acme", vec![2, 3]), ("globex", vec![1])]
        );
        let all_unknown = SkippedKeys::of([key("initech", "z")], false);
        assert_eq!(batches(&all_unknown), [("acme", vec![2])]);
        assert!(!all_unknown.is_empty() && SkippedKeys::none().is_empty());
    }
}
