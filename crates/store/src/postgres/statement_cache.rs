//! Cache of a connection's prepared statements, by SQL text.
//!
//! [`StatementCache`] is bounded: when it is full, all statements are dropped. That is rare, because only statements
//! that name a partition vary.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

/// Maximum number of cached statements. Only statements that name a day's partition vary, so this limit is rarely
/// reached.
const MAX_STATEMENTS: usize = 512;

/// Prepared statements by SQL text.
#[derive(Debug)]
pub(super) struct StatementCache<S> {
    known: Mutex<FxHashMap<String, S>>,
}

impl<S> Default for StatementCache<S> {
    fn default() -> StatementCache<S> {
        StatementCache {
            known: Mutex::default(),
        }
    }
}

impl<S: Clone> StatementCache<S> {
    /// Returns the statement with this text.
    pub(super) fn get(&self, sql: &str) -> Option<S> {
        self.known().get(sql).cloned()
    }

    /// Caches a statement. If the cache is full, all other statements are evicted first.
    pub(super) fn keep(&self, sql: &str, statement: S) {
        self.make_room(1);
        self.known().insert(sql.to_owned(), statement);
    }

    /// Makes sure that this number of statements can be added without evicting any of them.
    pub(super) fn make_room(&self, count: usize) {
        let mut known = self.known();
        if known.len() + count > MAX_STATEMENTS {
            known.clear();
        }
    }

    fn known(&self) -> MutexGuard<'_, FxHashMap<String, S>> {
        // No operation panics before it is complete.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_added_after_eviction_stay_together() {
        for before in MAX_STATEMENTS - 12..=MAX_STATEMENTS {
            let statements = StatementCache::default();
            for number in 0..before {
                statements.keep(&format!("day {number}"), number);
            }
            let together: Vec<String> = (0..12).map(|number| format!("hot {number}")).collect();
            statements.make_room(together.len());
            for sql in &together {
                statements.keep(sql, 7);
            }
            let there = together.iter().all(|sql| statements.get(sql) == Some(7));
            assert!(there, "{before}");
            assert!(statements.known().len() <= MAX_STATEMENTS);
        }
    }
}
