//! One process at a time.
//!
//! Counters, routes and the mint live in memory and are exact only while nobody else writes. So the
//! store is locked for as long as it is open, by a file beside it: SQLite's own locks come and go.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::OpenError;

/// Only the owner may read what is stored.
pub(super) const PRIVATE: u32 = 0o600;

/// Held while a store is open.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of a store, or says that another process has it.
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

/// The file beside a store whose name goes on with `suffix`.
pub(super) fn beside(store: &Path, suffix: &str) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
