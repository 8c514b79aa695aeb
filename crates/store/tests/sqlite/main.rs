//! Failures specific to SQLite: files, threads and disks.

#![allow(clippy::disallowed_methods, reason = "a test starts itself again")]

mod fan_out;
mod file_size;
mod files;
mod fixture;
mod history;
mod owner_emails_migration;
mod replays;
mod staged_payloads;
mod stats_migration;
mod unreadable_rows;
mod writer;
