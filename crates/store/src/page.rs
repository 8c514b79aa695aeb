//! Long lists, a page at a time, newest first.

/// Which page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest<K> {
    /// At most so many.
    pub limit: usize,
    /// Only what is older than this, which the last page ended with.
    pub before: Option<K>,
}

/// One page.
///
/// A page may hold fewer than were asked for, even none, and yet not be the last: a search looks at a
/// bounded number of rows at a time. The last page is the one that says no `next`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T, K> {
    /// What was found, newest first.
    pub items: Vec<T>,
    /// Where the next page begins, if there is one.
    pub next: Option<K>,
}
