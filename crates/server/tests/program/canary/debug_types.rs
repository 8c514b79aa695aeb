//! Types that hold a secret must not show it in `Debug`.
//!
//! A panic shows the `Debug` output of values: an `expect` on a result, an `assert_eq` on two values. So a type that
//! derives `Debug` must not hold secret or private values. This test reads the sources, so that a new type with a field
//! called `password` is noticed automatically.

use std::fs;
use std::path::{Path, PathBuf};

/// Names of fields that hold a secret or private value unencrypted.
const SENSITIVE_FIELDS: &[&str] = &[
    "access_token",
    "admin_key",
    "authorization",
    "body",
    "client_secret",
    "credentials",
    "headers",
    "key",
    "keys",
    "master_key",
    "passphrase",
    "password",
    "payload",
    "pem",
    "private_key",
    "response_headers",
    "response_snippet",
    "secret",
    "seed",
    "snippet",
    "token",
];

/// Types of such fields. A project's own type has its own `Debug`.
const OPEN: &[&str] = &[
    "String",
    "str",
    "Bytes",
    "u8",
    "HeaderMap",
    "HeaderValue",
    "Map<",
    "Value",
];

/// Types that may show it, each with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "SkippedKeys",
        "tenants and ordering keys of rows, which are no secrets",
    ),
    (
        "Attempt",
        "an answer of the API; only the dashboard reads it",
    ),
    (
        "CreatedEndpoint",
        "the benchmark's own endpoint, gone when it ends",
    ),
    (
        "RelayEndpoint",
        "the benchmark's own endpoint, gone when it ends",
    ),
    ("ApiRequest", "in the process of the person who typed it"),
    ("Event", "an answer of the API; only the dashboard reads it"),
    ("Invocation", "in the process of the person who typed it"),
    ("RequestArgs", "in the process of the person who typed it"),
    ("SendArgs", "in the process of the person who typed it"),
    ("Setting", "the name of a setting"),
    (
        "ReceivedRequest",
        "posthaste listen shows what it hears; that is what it is for",
    ),
    ("Tables", "ids of keys"),
    (
        "ScheduledEvent",
        "an answer of the API; only the dashboard reads it",
    ),
    (
        "ScheduledRequest",
        "an answer of the API; only the dashboard reads it",
    ),
    (
        "ScheduleOperation",
        "an operation of the randomised comparison, which has no secrets",
    ),
];

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

/// Returns the types in a source that derive `Debug` and hold such a field: type and field.
fn exposed_fields(source: &str) -> Vec<(String, String)> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let mut found = Vec::new();
    let mut derives = false;
    let mut inside: Option<String> = None;
    for line in code.lines() {
        let text = line.trim();
        if let Some(name) = &inside {
            // The end of an item has the same indentation as its start.
            if line.starts_with('}') || line.starts_with(");") {
                inside = None;
                continue;
            }
            let field = text.trim_start_matches("pub ");
            let field = match field.strip_prefix("pub(") {
                Some(rest) => rest.split_once(") ").map_or(field, |(_, field)| field),
                None => field,
            };
            if let Some((field, kind)) = field.split_once(": ")
                && SENSITIVE_FIELDS.contains(&field)
                && OPEN.iter().any(|open| kind.contains(open))
            {
                found.push((name.clone(), field.to_owned()));
            }
            continue;
        }
        if text.starts_with("#[derive(") {
            derives = text.contains("Debug");
        } else if text.contains("struct ") || text.contains("enum ") {
            let words = text.split([' ', '<', '(', '{', ';']);
            let name = words
                .skip_while(|word| !matches!(*word, "struct" | "enum"))
                .nth(1);
            if derives && text.ends_with('{') {
                inside = name.map(str::to_owned);
            }
            derives = false;
        }
    }
    found
}

#[test]
fn no_type_that_derives_debug_has_a_plain_secret() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for entry in fs::read_dir(&crates).expect("the crates") {
        let folder = entry.expect("a crate").path().join("src");
        // Types of the testbed may show what they hold: their output appears only in failed tests.
        if folder.exists() && !folder.ends_with("testbed/src") {
            sources(&folder, &mut files);
        }
    }
    assert!(files.len() > 100, "only {} sources", files.len());
    let mut shown = Vec::new();
    let mut excused = Vec::new();
    for file in files {
        for (name, field) in exposed_fields(&fs::read_to_string(&file).expect("UTF-8")) {
            match EXCEPTIONS.iter().find(|(known, _)| *known == name) {
                Some((known, _)) => excused.push(*known),
                None => shown.push(format!("{} in {}: {field}", name, file.display())),
            }
        }
    }
    assert!(
        shown.is_empty(),
        "these types show their secrets:\n{}",
        shown.join("\n")
    );
    for (name, _) in EXCEPTIONS {
        assert!(excused.contains(name), "{name} needs no exception any more");
    }
}

#[test]
fn a_type_with_a_plain_secret_is_found() {
    let source = "
/// An account.
#[derive(Clone, Debug)]
pub struct DeliveryRecord {
    /// Name.
    pub name: String,
    /// Password.
    pub(crate) password: Option<String>,
    /// Sealed.
    pub token: Sealed,
}

#[derive(Clone)]
struct Quiet {
    secret: String,
}

#[derive(Debug)]
enum Login {
    /// With a token.
    Bearer {
        /// The token.
        token: Box<str>,
    },
}
";
    let found = exposed_fields(source);
    let expected = [("DeliveryRecord", "password"), ("Login", "token")];
    let expected = expected.map(|(name, field)| (name.to_owned(), field.to_owned()));
    assert_eq!(found, expected);
}
