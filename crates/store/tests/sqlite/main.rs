//! What only the SQLite engine can do wrong: files, threads, disks.

mod files;
mod given;
mod history;
mod writer;
