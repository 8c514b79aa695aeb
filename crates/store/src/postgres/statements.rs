//! The statements that a connection has prepared, by their text.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

/// So many are kept. Few statements name a day, and none anything else that is stored, so this is seldom
/// reached.
const MAX_STATEMENTS: usize = 512;

/// The statements.
#[derive(Debug)]
pub(super) struct Statements<S> {
    known: RefCell<FxHashMap<String, S>>,
}

impl<S> Default for Statements<S> {
    fn default() -> Statements<S> {
        Statements {
            known: RefCell::default(),
        }
    }
}

impl<S: Clone> Statements<S> {
    /// The statement with this text.
    pub(super) fn get(&self, sql: &str) -> Option<S> {
        self.known.borrow().get(sql).cloned()
    }

    /// Keeps one. If there is no room, all others are forgotten.
    pub(super) fn keep(&self, sql: &str, statement: S) {
        self.make_room(1);
        self.known.borrow_mut().insert(sql.to_owned(), statement);
    }

    /// Keeping so many more will forget none of them.
    pub(super) fn make_room(&self, count: usize) {
        let mut known = self.known.borrow_mut();
        if known.len() + count > MAX_STATEMENTS {
            known.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_after_room_was_made_is_there_together() {
        for before in MAX_STATEMENTS - 12..=MAX_STATEMENTS {
            let statements = Statements::default();
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
            assert!(statements.known.borrow().len() <= MAX_STATEMENTS);
        }
    }
}
