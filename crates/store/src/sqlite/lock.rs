//! Ensures that only one process uses the store.
//!
//! Counts, the routing table and the id generator are in memory and correct only while no other process writes. So a
//! lock file beside the store is locked for as long as the store is open. SQLite's own locks are not held all the
//! time.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::OpenError;

/// File mode: only the owner may read the store.
pub(super) const PRIVATE: u32 = 0o600;

/// The lock, held while a store is open.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of a store, or returns an error if another process holds it.
    pub(super) fn take(store: &Path) -> Result<Lock, OpenError> {
        let other = |error: std::io::Error| OpenError::Other {
            path: store.to_owned(),
            why: error.to_string(),
        };
        let file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .mode(PRIVATE)
            .open(beside(store, ".lock"))
            .map_err(other)?;
        match file.try_lock() {
            Ok(()) => Ok(Lock { _file: file }),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse {
                path: store.to_owned(),
            }),
            Err(TryLockError::Error(error)) => Err(other(error)),
        }
    }
}

/// Returns the path of the file beside a store that has the same name with `suffix` appended.
pub(super) fn beside(store: &Path, suffix: &str) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
