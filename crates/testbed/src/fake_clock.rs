//! A wall clock that a test sets, for one process: Debian's `faketime` library, loaded before the program.
//!
//! The monotonic clock stays the real one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

/// The library for programs with threads.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";
/// Directory that has a subdirectory for each architecture.
const LIBRARIES: &str = "/usr/lib";

/// The wall clock of the processes that are started with it. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct FakeClock {
    directory: Arc<TempDir>,
    library: PathBuf,
}

impl FakeClock {
    /// Creates a clock that differs from the real one by this number of seconds. Panics if the package `faketime` is not
    /// installed.
    pub fn new(offset_secs: i64) -> FakeClock {
        let clock = FakeClock {
            directory: Arc::new(tempfile::tempdir().expect("a directory")),
            library: library().expect("the package faketime is installed"),
        };
        clock.set(offset_secs);
        clock
    }

    /// Sets the difference from the real clock, also for processes that run already.
    pub fn set(&self, offset_secs: i64) {
        let next = self.directory.path().join("next");
        std::fs::write(&next, format!("{offset_secs:+}\n")).expect("a writable directory");
        std::fs::rename(next, self.file()).expect("a writable directory");
    }

    /// Lets a process use this clock.
    pub fn apply(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", self.file())
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("DONT_FAKE_MONOTONIC", "1");
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("offset")
    }
}

fn library() -> Option<PathBuf> {
    let directories = std::fs::read_dir(LIBRARIES).ok()?;
    let files = directories
        .flatten()
        .map(|entry| entry.path().join(LIBRARY));
    files.into_iter().find(|file: &PathBuf| Path::exists(file))
}
