//! What only the SQLite engine can do wrong: files, threads, disks.

#![allow(clippy::disallowed_methods, reason = "a test starts itself again")]

mod files;
mod given;
mod history;
mod keeping;
mod writer;
