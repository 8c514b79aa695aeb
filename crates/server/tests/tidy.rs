//! Style that a machine can see. What needs taste is left to readers.

use std::fs;
use std::path::{Path, PathBuf};

/// A file longer than this wants splitting by noun.
const MAX_LINES: usize = 600;

fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").canonicalize().expect("the workspace")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn sources_below(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    sources(&workspace().join(folder), &mut found);
    assert!(!found.is_empty(), "no sources below {folder}");
    found
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).expect("UTF-8");
            (path, text)
        })
        .collect()
}

#[test]
fn every_file_fits_in_the_head() {
    for (path, text) in sources_below("crates") {
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES, "{} has {lines} lines", path.display());
    }
}

#[test]
fn every_module_opens_with_what_it_promises() {
    for (path, text) in sources_below("crates") {
        let is_test = path.components().any(|part| part.as_os_str() == "tests")
            || path
                .file_stem()
                .is_some_and(|stem| stem.to_string_lossy().ends_with("tests"));
        let opens = text.starts_with("//!");
        assert!(
            is_test || opens,
            "{} does not say what it is for",
            path.display()
        );
    }
}

/// The core matches every variant by name, so that a new one is a compile error where it matters.
#[test]
fn the_core_has_no_catch_all_arms() {
    for (path, text) in sources_below("crates/core/src") {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            let catches_all = line.trim_start().starts_with("_ =>");
            assert!(
                !catches_all,
                "{}:{} catches all",
                path.display(),
                number + 1
            );
        }
    }
}

/// The core is pure: what it depends on can neither wait nor speak to anything.
#[test]
fn the_core_depends_on_nothing_that_acts() {
    let manifest = workspace().join("crates/core/Cargo.toml");
    let manifest = fs::read_to_string(manifest).expect("the core's manifest");
    for actor in [
        "tokio", "hyper", "axum", "reqwest", "rusqlite", "mio", "async", "futures", "tracing",
    ] {
        assert!(!manifest.contains(actor), "the core depends on {actor}");
    }
}

/// One program in the workspace, so that `cargo run` needs no name.
#[test]
fn only_the_server_is_a_program() {
    let crates = workspace().join("crates");
    let mut programs = Vec::new();
    for entry in fs::read_dir(&crates).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap_or_default();
        let named = manifest.contains("[[bin]]") || path.join("src/bin").exists();
        if named || path.join("src/main.rs").exists() {
            programs.push(path);
        }
    }
    assert_eq!(programs, [crates.join("server")]);
}
