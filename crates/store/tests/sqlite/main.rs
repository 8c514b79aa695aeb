//! Failures specific to SQLite: files, threads and disks.

#![allow(clippy::disallowed_methods, reason = "a test starts itself again")]

mod files;
mod fixture;
mod history;
mod keeping;
mod writer;
