//! Checks of style and of the rules of dependency: the parts of STYLE.md and ARCHITECTURE.md that a program can check.

mod english;

use std::fs;
use std::path::{Path, PathBuf};

/// Maximum length of a source file. A longer one is split by noun.
const MAX_LINES: usize = 600;

pub(crate) fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").canonicalize().expect("the workspace")
}

/// Folders that contain no text of ours.
const OTHER_FOLDERS: [&str; 5] = [".git", "corpus", "node_modules", "target", "venv"];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_symlink() || OTHER_FOLDERS.contains(&&*name) {
            continue;
        }
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Returns all text files of the repository with their paths below it.
fn text_files() -> Vec<(PathBuf, String)> {
    let root = workspace();
    let mut found = Vec::new();
    files(&root, &mut found);
    let texts = found.into_iter().filter_map(|path| {
        let text = fs::read_to_string(&path).ok()?;
        Some((path.strip_prefix(&root).ok()?.to_owned(), text))
    });
    texts.collect()
}

pub(crate) fn sources_below(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    files(&workspace().join(folder), &mut found);
    found.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    assert!(!found.is_empty(), "no sources below {folder}");
    found
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).expect("UTF-8");
            (path, text)
        })
        .collect()
}

/// Extensions of source files besides Rust.
const OTHER_SOURCES: [&str; 7] = ["css", "js", "mjs", "py", "sh", "sql", "ts"];

#[test]
fn no_source_file_has_more_than_600_lines() {
    let is_source = |path: &Path| {
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        extension == "rs" || OTHER_SOURCES.contains(&&*extension)
    };
    let files = text_files();
    let sources: Vec<_> = files.iter().filter(|(path, _)| is_source(path)).collect();
    assert!(sources.len() > 1_000, "only {} files", sources.len());
    for (path, text) in sources {
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES, "{} has {lines} lines", path.display());
    }
}

/// Returns true if a module begins with a comment that says what it is for.
fn has_head(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    first
        .strip_prefix("//! ")
        .is_some_and(|head| head.contains(' '))
}

#[test]
fn every_module_has_a_head_comment() {
    for (path, text) in sources_below("crates") {
        assert!(
            has_head(&text),
            "{} does not say what it is for",
            path.display()
        );
    }
    assert!(has_head("//! Caches payloads.\n"));
    for none in [
        "",
        "//!\n",
        "//! Payloads\n",
        "// Caches payloads.\n",
        "use std::fs;\n",
    ] {
        assert!(!has_head(none), "{none}");
    }
}

/// Maximum length of ARCHITECTURE.md. Details belong in docs/internals.
const MAX_ARCHITECTURE_LINES: usize = 150;

#[test]
fn the_architecture_document_is_short() {
    let text = fs::read_to_string(workspace().join("ARCHITECTURE.md")).expect("the document");
    assert!(text.lines().count() <= MAX_ARCHITECTURE_LINES);
}

/// Returns the words that a glossary explains: the first column of its tables.
fn glossary_words(text: &str) -> Vec<&str> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
    let terms = rows.filter_map(|row| row.split(" | ").next());
    terms.flat_map(|term| term.split(", ")).collect()
}

#[test]
fn the_glossary_explains_each_word_once() {
    let path = workspace().join("docs/internals/glossary.md");
    let text = fs::read_to_string(path).expect("the glossary");
    let mut words = glossary_words(&text);
    words.retain(|word| *word != "Word");
    assert!(words.len() > 100, "only {} words", words.len());
    words.sort_unstable();
    for pair in words.windows(2) {
        assert_ne!(pair[0], pair[1], "explained twice");
    }
    let twice = "| Word | Meaning |\n|---|---|\n| peer, node | A. |\n| peer | B. |";
    assert_eq!(glossary_words(twice), ["Word", "peer", "node", "peer"]);
}

/// Maximum length of README.md. Details belong in docs.
const MAX_README_LINES: usize = 150;

#[test]
fn the_readme_is_short() {
    let text = fs::read_to_string(workspace().join("README.md")).expect("the document");
    assert!(text.lines().count() <= MAX_README_LINES);
}

/// Returns the relative targets of the links in a Markdown text: a path, an anchor, or both.
fn relative_links(text: &str) -> Vec<(&str, Option<&str>)> {
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split([')', ' ']).next());
    targets
        .filter(|target| !target.is_empty() && !target.contains(':'))
        .map(|target| match target.split_once('#') {
            Some((path, anchor)) => (path, Some(anchor)),
            None => (target, None),
        })
        .collect()
}

/// Returns the anchors of the headings in a Markdown text.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|heading| {
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter_map(|character| match character {
                ' ' => Some('-'),
                '-' | '_' => Some(character),
                _ => character.is_alphanumeric().then_some(character),
            });
            kept.collect()
        })
        .collect()
}

#[test]
fn links_between_documents_lead_to_files_and_headings() {
    let mut documents = text_files();
    documents.retain(|(path, _)| path.extension().is_some_and(|extension| extension == "md"));
    assert!(documents.len() > 20, "only {} documents", documents.len());
    for (path, text) in documents {
        let document = workspace().join(path);
        let folder = document.parent().expect("a document lies in a folder");
        let shown = document.display();
        for (path, anchor) in relative_links(&text) {
            let target = match path {
                "" => document.clone(),
                path => folder.join(path),
            };
            assert!(target.exists(), "{shown} links {path}");
            if let (true, Some(anchor)) = (target.extension() == document.extension(), anchor) {
                let text = fs::read_to_string(&target).expect("UTF-8");
                let leads = anchors(&text).iter().any(|known| known == anchor);
                assert!(leads, "{shown} links {path}#{anchor}");
            }
        }
    }
    assert_eq!(
        relative_links("[a](b.md#c) [d](https://e) [f](#g)"),
        [("b.md", Some("c")), ("", Some("g"))]
    );
    assert_eq!(
        anchors("# What *is* it?\ntext\n### retry_ratio\n"),
        ["what-is-it", "retry_ratio"]
    );
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
fn the_core_has_no_io_dependencies() {
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
fn only_the_server_has_a_binary() {
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

/// The crate of test fixtures. The program does not depend on it: [`no_shipped_crate_depends_on_the_testbed`].
const TESTBED: &str = "testbed";

pub(crate) fn is_test(path: &Path) -> bool {
    let in_tests = path
        .components()
        .any(|part| part.as_os_str() == "tests" || part.as_os_str() == TESTBED);
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    in_tests || stem.ends_with("tests")
}

/// Files outside `egress` that disable the lint against outbound connections, and how often. Another line here is a
/// decision about the security of every operator.
const EXCEPTIONS: [(&str, usize); 3] = [
    // The benchmark starts this very program again.
    ("crates/bench/src/measured_process.rs", 1),
    // Measurements that use the stores of the tests; they are not part of the program.
    ("crates/store/examples/cost.rs", 1),
    ("crates/store/examples/stalls.rs", 1),
];

#[test]
fn only_egress_opens_outbound_connections() {
    let root = workspace();
    let mut found = Vec::new();
    for (path, text) in sources_below("crates") {
        let path = path
            .strip_prefix(&root)
            .expect("a path below the workspace")
            .to_owned();
        if is_test(&path) {
            continue;
        }
        let lint = ["disallowed", "methods"].join("_");
        let count = text.matches(&lint).count();
        // The door itself, whose few places expect it: an `allow` would outlive its reason.
        let allowed = ["allow(clippy::", &lint].concat();
        let flat: String = text.split_whitespace().collect();
        assert!(
            !flat.contains(&allowed),
            "{} allows, and should expect",
            path.display()
        );
        if count > 0 && !path.starts_with("crates/egress") {
            found.push((path.display().to_string(), count));
        }
    }
    found.sort();
    let expected = EXCEPTIONS.map(|(path, count)| (path.to_owned(), count));
    assert_eq!(found, expected);
    for manifest in manifests() {
        let text = fs::read_to_string(&manifest).expect("a manifest");
        let sets_lints_aside = text.contains("disallowed") || text.contains("\nall = ");
        assert!(!sets_lints_aside, "{}", manifest.display());
    }
}

pub(crate) fn manifests() -> Vec<PathBuf> {
    let root = workspace();
    let crates = fs::read_dir(root.join("crates")).expect("a readable folder");
    let crates = crates.map(|entry| entry.expect("a readable entry").path());
    let mut manifests: Vec<PathBuf> = crates.map(|path| path.join("Cargo.toml")).collect();
    manifests.push(root.join("Cargo.toml"));
    manifests
}

/// It opens sockets and starts programs as it likes, so nothing but tests may have it.
#[test]
fn no_shipped_crate_depends_on_the_testbed() {
    for manifest in manifests() {
        let text = fs::read_to_string(&manifest).expect("a manifest");
        let table: toml::Table = text.parse().expect("TOML");
        for kind in ["dependencies", "build-dependencies"] {
            let needs = table.get(kind).and_then(toml::Value::as_table);
            let needs = needs.is_some_and(|needs| needs.contains_key("posthaste-testbed"));
            assert!(!needs, "{} ships the testbed", manifest.display());
        }
    }
}

/// The methods that a crate's lint forbids.
fn forbidden_by(file: &str) -> Vec<String> {
    let text = fs::read_to_string(workspace().join(file)).expect("a lint's settings");
    let table: toml::Table = text.parse().expect("TOML");
    let methods = table["disallowed-methods"].as_array().expect("a list");
    let methods = methods.iter().map(|method| {
        let reason = method["reason"].as_str().expect("a reason");
        assert!(!reason.is_empty());
        method["path"].as_str().expect("a path").to_owned()
    });
    methods.collect()
}

/// A crate with lint settings of its own does not read the workspace's, and must forbid as much.
#[test]
fn every_crate_forbids_the_methods_of_the_workspace() {
    let everywhere = forbidden_by("clippy.toml");
    assert!(everywhere.len() > 30, "{everywhere:?}");
    let own = manifests().into_iter().filter_map(|manifest| {
        let settings = manifest.with_file_name("clippy.toml");
        settings.exists().then_some(settings)
    });
    for settings in own {
        let forbidden = forbidden_by(settings.to_str().expect("UTF-8"));
        // The core depends on nothing but the standard library that could do any of it.
        let only_std = settings.ends_with("crates/core/clippy.toml");
        for method in &everywhere {
            let concerns = !only_std || method.starts_with("std::");
            assert!(
                !concerns || forbidden.contains(method),
                "{} does not forbid {method}",
                settings.display()
            );
        }
    }
}

/// Crates with an HTTP or TLS client of their own: they use proxies from the environment, follow redirects, and do not
/// vet addresses. Tests may not depend on them either, because a dependency of a test is soon used by a feature.
const OTHER_DOORS: [&str; 24] = [
    "actix-http",
    "attohttpc",
    "awc",
    "chttp",
    "curl",
    "curl-sys",
    "ehttp",
    "hickory-resolver",
    "http_req",
    "hyper-rustls",
    "hyper-tls",
    "isahc",
    "minreq",
    "native-tls",
    "openssl",
    "openssl-sys",
    "reqwest",
    "rustify",
    "surf",
    "tokio-native-tls",
    "trust-dns-resolver",
    "tungstenite",
    "ureq",
    "xh",
];

#[test]
fn no_dependency_is_another_network_client() {
    let lock = fs::read_to_string(workspace().join("Cargo.lock")).expect("the lock file");
    let lock: toml::Table = lock.parse().expect("TOML");
    let packages = lock["package"].as_array().expect("packages");
    let names: Vec<&str> = packages
        .iter()
        .filter_map(|package| package["name"].as_str())
        .collect();
    assert!(names.contains(&"hyper"), "the names are read");
    for other in OTHER_DOORS {
        assert!(
            !names.contains(&other),
            "{other} connects outside the egress crate"
        );
    }
    // The client of hyper-util connects on its own, and is not compiled.
    for manifest in manifests() {
        let text = fs::read_to_string(&manifest).expect("a manifest");
        let mut features = text.lines().filter(|line| line.starts_with("hyper-util"));
        let compiled = features.any(|line| line.contains("client"));
        assert!(!compiled, "{} asks for another door", manifest.display());
    }
}
