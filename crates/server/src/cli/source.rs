//! Loads a retry policy from a preset, a file, or standard input.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use posthaste_charts::terminal::printable;
use posthaste_core::json;
use posthaste_core::policy::{Preset, RetryPolicy};
use serde_json::{Map, Value};

use super::args::PolicyArgs;
use super::failure::Failure;
use super::output::STANDARD;

/// Maximum size of a policy file: 1 MiB, hundreds of times what a policy needs.
pub const MAX_POLICY_BYTES: u64 = 1024 * 1024;

/// A policy and its name.
#[derive(Debug)]
pub struct NamedPolicy {
    /// Name of the preset or of the file.
    pub name: String,
    /// The preset, if it is one.
    pub preset: Option<Preset>,
    /// The policy.
    pub policy: RetryPolicy,
}

/// The formats of a policy file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON.
    Json,
    /// TOML.
    Toml,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Json => "JSON",
            Format::Toml => "TOML",
        })
    }
}

impl Format {
    /// Returns the format by the file's extension, or else by its content.
    fn of(path: &Path, text: &str) -> Format {
        let extension = path.extension().map(|e| e.to_ascii_lowercase());
        match extension.as_deref().and_then(|e| e.to_str()) {
            Some("json") => Format::Json,
            Some("toml") => Format::Toml,
            Some(_) | None => Format::of_text(text),
        }
    }

    /// Guesses the format from the beginning of a text, valid or not: JSON begins with a value, TOML with a field or
    /// a table header.
    fn of_text(text: &str) -> Format {
        if json::parse(text).is_ok() {
            return Format::Json;
        }
        let first_line = text.trim_start().lines().next().unwrap_or_default();
        let names_a_field = first_line.contains('=');
        let word = first_line.split(|c: char| !c.is_alphanumeric()).next();
        let is_json = match first_line.chars().next() {
            Some('{') => true,
            Some('[') => !is_table_head(first_line),
            Some('"' | '-' | '0'..='9') => !names_a_field,
            Some(_) => !names_a_field && matches!(word, Some("true" | "false" | "null")),
            None => false,
        };
        if is_json { Format::Json } else { Format::Toml }
    }

    /// Parses a document. The error contains line and column.
    fn read(self, text: &str) -> Result<Value, String> {
        match self {
            Format::Json => json::parse(text).map_err(|error| error.to_string()),
            Format::Toml => text
                .parse::<toml::Table>()
                .map(|table| json_of(toml::Value::Table(table)))
                .map_err(|error| toml_error(&error, text)),
        }
    }
}

/// Returns true for `[backoff]` and `[[rules]]`, but not for the beginning of a list.
fn is_table_head(line: &str) -> bool {
    let Some((name, _)) = line.trim_start_matches('[').split_once(']') else {
        return false;
    };
    let named = |c: char| c.is_ascii_alphanumeric() || "_-. \t\"'".contains(c);
    let first = name.trim_start().chars().next();
    let begins = first.is_some_and(|c| c.is_ascii_alphabetic() || "_\"'".contains(c));
    begins && name.chars().all(named)
}

/// Returns the requested policy; `recommended` by default.
pub fn named_policy(args: &PolicyArgs) -> Result<NamedPolicy, Failure> {
    let Some(path) = &args.file else {
        let preset = args.preset.unwrap_or(Preset::Recommended);
        return Ok(NamedPolicy {
            name: preset.name().to_owned(),
            preset: Some(preset),
            policy: preset.policy(),
        });
    };
    let is_standard = path == Path::new(STANDARD);
    let name = if is_standard {
        "standard input".to_owned()
    } else {
        printable(&path.display().to_string())
    };
    let bytes = if is_standard {
        read_bounded(io::stdin().lock())
    } else {
        File::open(path).and_then(read_bounded)
    };
    let bytes = bytes.map_err(|error| Failure::Unreadable {
        source: name.clone(),
        error,
    })?;
    let policy = policy_in(&name, path, bytes)?;
    Ok(NamedPolicy {
        name,
        preset: None,
        policy,
    })
}

/// Reads at most one byte more than allowed, so that a file that is too large is noticed.
fn read_bounded(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_POLICY_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn policy_in(name: &str, path: &Path, bytes: Vec<u8>) -> Result<RetryPolicy, Failure> {
    let source = name.to_owned();
    if bytes.len() as u64 > MAX_POLICY_BYTES {
        return Err(Failure::TooLarge { source });
    }
    let Ok(text) = String::from_utf8(bytes) else {
        return Err(Failure::NotText { source });
    };
    // Some editors begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let format = Format::of(path, text);
    let document = match format.read(text) {
        Ok(document) => document,
        Err(message) => {
            return Err(Failure::Malformed {
                source,
                format,
                message,
            });
        }
    };
    RetryPolicy::from_json(&document).map_err(|mistakes| Failure::Mistaken { source, mistakes })
}

/// Converts a TOML value to JSON. A value that JSON does not have becomes a string, so that numeric fields refuse it;
/// `null` would count as absent.
pub(crate) fn json_of(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(number) => Value::from(number),
        toml::Value::Float(number) if number.is_finite() => Value::from(number),
        toml::Value::Float(number) => Value::String(number.to_string()),
        toml::Value::Boolean(truth) => Value::Bool(truth),
        toml::Value::Datetime(time) => Value::String(time.to_string()),
        toml::Value::Array(items) => items.into_iter().map(json_of).collect(),
        toml::Value::Table(fields) => {
            let fields = fields
                .into_iter()
                .map(|(name, value)| (name, json_of(value)));
            Value::Object(fields.collect::<Map<String, Value>>())
        }
    }
}

/// Formats a TOML error with its position, in the style of a JSON error.
pub(crate) fn toml_error(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().trim().replace('\n', ", ");
    let before = error.span().and_then(|span| text.get(..span.start));
    let Some(before) = before else {
        return message;
    };
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    let column = before[start..].chars().count() + 1;
    format!("{message} at line {line} column {column}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_name_tells_the_format_and_else_the_text() {
        let of = |path: &str, text: &str| Format::of(Path::new(path), text);
        assert_eq!(of("a.json", "preset = 'swift'"), Format::Json);
        assert_eq!(of("a.JSON", ""), Format::Json);
        assert_eq!(of("a.toml", "{}"), Format::Toml);
        assert_eq!(of("a.conf", "\n {}"), Format::Json);
        assert_eq!(of("-", "[backoff]"), Format::Toml);
        assert_eq!(of("-", ""), Format::Toml);
        for json in [
            "[]",
            "[1, 2]",
            "[\"a\"]",
            "[{\"preset\": \"swift\"},]",
            "[\n",
            "\"swift\"",
            "\"swi",
            "5",
            "-1.5",
            "true",
            "null",
            "false,",
            "{\"a\": 1, \"a\": 2",
            "[true, 1",
            "[[1], [2]",
        ] {
            assert_eq!(of("-", json), Format::Json, "{json}");
        }
        for toml in [
            "[[rules]]\non = '404'",
            "  [ backoff ] # how delays grow\nkind = 'fixed'",
            "# a policy\n[backoff]",
            "\"preset\" = 'swift'",
            "[\"backoff\"]\nkind = 'fixed'",
            "preset: swift",
            "true = 1",
            "nullable = 1",
        ] {
            assert_eq!(of("policy", toml), Format::Toml, "{toml}");
        }
    }

    #[test]
    fn the_same_policy_in_both_formats() {
        let json = json!({
            "backoff": {"kind": "exponential", "base": "1s", "factor": 2.5, "cap": "1h"},
            "jitter": {"kind": "none"},
            "max_attempts": 4,
            "rules": [{"on": "404", "then": "fail"}],
        });
        let toml = "max_attempts = 4\nrules = [{on = '404', then = 'fail'}]\n\
                    [backoff]\nkind = 'exponential'\nbase = '1s'\nfactor = 2.5\ncap = '1h'\n\
                    [jitter]\nkind = 'none'\n";
        assert_eq!(Format::Toml.read(toml), Ok(json));
    }

    #[test]
    fn what_json_cannot_say_is_not_taken_for_absent() {
        let document =
            Format::Toml.read("preset = 'swift'\nmax_attempts = nan\ngive_up_after = 2020-01-01");
        let mistakes =
            RetryPolicy::from_json(&document.expect("a document")).expect_err("mistakes");
        let fields: Vec<&str> = mistakes
            .iter()
            .map(|mistake| mistake.field.as_str())
            .collect();
        assert_eq!(fields, ["max_attempts", "give_up_after"]);
    }

    #[test]
    fn errors_tell_line_and_column() {
        let error = Format::Toml
            .read("preset = 'swift'\nmax_attempts = = 3")
            .expect_err("no TOML");
        assert!(error.contains("at line 2 column 16"), "{error}");
        let error = Format::Json
            .read("{\n  \"preset\" 5}")
            .expect_err("no JSON");
        assert!(error.contains("at line 2 column 12"), "{error}");
    }

    #[test]
    fn a_byte_order_mark_is_no_mistake() {
        let bytes = "\u{feff}{\"preset\": \"swift\"}".as_bytes().to_vec();
        let policy = policy_in("p", Path::new("p"), bytes).expect("a policy");
        assert_eq!(policy, Preset::Swift.policy());
    }

    #[test]
    fn the_largest_policy_is_read_and_no_larger() {
        let text = |length: u64| {
            let blanks = " ".repeat((length - 19) as usize);
            format!("{{\"preset\": \"swift\"}}{blanks}").into_bytes()
        };
        let largest = read_bounded(&text(MAX_POLICY_BYTES)[..]).expect("bytes");
        assert!(policy_in("p", Path::new("p"), largest).is_ok());
        let larger = read_bounded(&text(MAX_POLICY_BYTES + 5)[..]).expect("bytes");
        assert_eq!(larger.len() as u64, MAX_POLICY_BYTES + 1);
        let failure = policy_in("p", Path::new("p"), larger).expect_err("too large");
        assert!(matches!(failure, Failure::TooLarge { .. }));
    }
}
