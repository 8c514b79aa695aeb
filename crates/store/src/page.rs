//! Pages of long lists, newest first.

/// The request for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest<K> {
    /// Maximum number of items.
    pub limit: usize,
    /// Only items older than this one, with which the last page ended.
    pub before: Option<K>,
}

/// One page.
///
/// A page can have fewer items than requested, even none, and not be the last one: a search examines a bounded number
/// of rows per page. Only the last page has no `next`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T, K> {
    /// The items, newest first.
    pub items: Vec<T>,
    /// The key to request the next page with, if there is one.
    pub next: Option<K>,
}

/// Returns the number of rows to read for a page: one more than fits shows whether there is another page.
pub(crate) fn one_more(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1)
}

/// Makes a page of rows that were read with [`one_more`].
pub(crate) fn cut<T, K>(mut items: Vec<T>, limit: usize, key: impl Fn(&T) -> K) -> Page<T, K> {
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(key);
    Page { items, next }
}
