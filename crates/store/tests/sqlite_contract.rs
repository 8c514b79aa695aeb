//! The SQLite engine keeps every promise.

use std::sync::Arc;

use posthaste_store::contract::Harness;
use posthaste_store::sqlite::SqliteStore;
use posthaste_store::{HandOver, Store, StoreSettings, contract_tests};

/// A file that goes when the test is over.
struct SqliteHarness {
    directory: tempfile::TempDir,
}

impl Default for SqliteHarness {
    fn default() -> SqliteHarness {
        SqliteHarness {
            directory: tempfile::tempdir().expect("a directory"),
        }
    }
}

impl Harness for SqliteHarness {
    fn open(&self, settings: StoreSettings, hand_over: Arc<dyn HandOver>) -> Arc<dyn Store> {
        let path = self.directory.path().join("posthaste.db");
        Arc::new(SqliteStore::open(path, settings, hand_over).expect("it opens"))
    }
}

contract_tests!(sqlite, SqliteHarness::default());
