//! The examples of the documents, executed as they are written.
//!
//! [`private_network::quickstart`](crate::private_network) executes the two tours that start a server. The configuration
//! examples are tested in `tests/api/config/documents.rs`.

mod commands;
mod events;
mod policies;
mod verifying;

use std::fs;
use std::path::{Path, PathBuf};

use crate::policy::fixture as program;

/// Returns a document, by its path in the repository.
pub(crate) fn document(path: &str) -> String {
    let path = repository().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the section below a heading of the second level.
pub(crate) fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let start = format!("\n## {heading}\n");
    let (_, rest) = text
        .split_once(&start)
        .unwrap_or_else(|| panic!("no section {heading:?}"));
    rest.split("\n## ").next().unwrap_or_default()
}

/// Returns the code blocks in this language.
pub(crate) fn blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let started = text.split(&fence).skip(1);
    started
        .map(|block| block.split("```").next().unwrap_or_default().to_owned())
        .collect()
}
