//! Fixtures for the stores on disk.

#[allow(dead_code, reason = "not every test that has engines uses all of them")]
mod postgres;

use std::path::Path;
use std::sync::Arc;

use posthaste_store::sqlite::SqliteStore;
use posthaste_store::{HandOver, Store, StoreSettings};
use posthaste_store_testing::contract::Harness;

#[allow(
    unused_imports,
    reason = "not every test that has engines uses all of them"
)]
pub(crate) use postgres::{
    Database, Held, IgnoreClusterEvents, PlainDial, PostgresHarness, settings,
};

/// A file that is deleted when the test ends.
pub(crate) struct SqliteHarness {
    directory: tempfile::TempDir,
}

impl SqliteHarness {
    /// Creates one on disk.
    #[allow(dead_code, reason = "not every test that has engines uses all of them")]
    pub(crate) fn on_disk() -> SqliteHarness {
        let directory = tempfile::tempdir().expect("a directory");
        SqliteHarness { directory }
    }

    /// Creates one in memory, if the machine has a directory for that. For comparing thousands of answers, none of
    /// which depends on the speed of a disk.
    #[allow(dead_code, reason = "not every test that has engines uses all of them")]
    pub(crate) fn in_memory() -> SqliteHarness {
        let memory = Path::new("/dev/shm");
        if !memory.is_dir() {
            return SqliteHarness::on_disk();
        }
        let directory = tempfile::tempdir_in(memory).expect("a directory");
        SqliteHarness { directory }
    }
}

impl Harness for SqliteHarness {
    fn open(&self, settings: StoreSettings, hand_over: Arc<dyn HandOver>) -> Arc<dyn Store> {
        let path = self.directory.path().join("posthaste.db");
        Arc::new(SqliteStore::open(path, settings, hand_over).expect("it opens"))
    }
}
