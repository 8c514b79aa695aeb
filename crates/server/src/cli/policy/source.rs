//! Loads a retry policy from a preset, a file, or standard input.
//!
//! A file is JSON or TOML, by its extension or else its content. Its size is limited. Errors name the line and the
//! column, or the field.

use std::fmt;
use std::path::Path;

use posthaste_charts::terminal::printable;
use posthaste_core::json;
use posthaste_core::policy::{Preset, RetryPolicy};
use posthaste_core::validation::ValidationErrors;
use serde_json::Value;

use super::args::PolicyArgs;
use crate::cli::error::CommandError;
use crate::cli::input;
use crate::config::toml_source;

/// Maximum size of a policy file: 1 MiB, hundreds of times what a policy needs.
const MAX_POLICY_BYTES: u64 = 1024 * 1024;

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
enum Format {
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
        let has_equals = first_line.contains('=');
        let word = first_line.split(|c: char| !c.is_alphanumeric()).next();
        let is_json = match first_line.chars().next() {
            Some('{') => true,
            Some('[') => !is_table_head(first_line),
            Some('"' | '-' | '0'..='9') => !has_equals,
            Some(_) => !has_equals && matches!(word, Some("true" | "false" | "null")),
            None => false,
        };
        if is_json { Format::Json } else { Format::Toml }
    }

    /// Parses a document. The error contains line and column.
    fn parse(self, text: &str) -> Result<Value, String> {
        match self {
            Format::Json => json::parse(text).map_err(|error| error.to_string()),
            Format::Toml => toml_source::parse(text),
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
pub fn load_policy(args: &PolicyArgs) -> Result<NamedPolicy, CommandError> {
    let Some(path) = &args.file else {
        let preset = args.preset.unwrap_or(Preset::Recommended);
        return Ok(NamedPolicy {
            name: preset.name().to_owned(),
            preset: Some(preset),
            policy: preset.policy(),
        });
    };
    let name = input::name(path);
    let bytes = input::read_bounded(path, MAX_POLICY_BYTES)
        .map_err(|error| CommandError::Input(format!("cannot read {name}: {error}")))?;
    let policy = parse_policy(&name, path, bytes)?;
    Ok(NamedPolicy {
        name,
        preset: None,
        policy,
    })
}

/// Parses a JSON or TOML document, whose format is that of the file or else that of its content.
pub fn parse_document(path: &Path, text: &str) -> Result<Value, String> {
    // Some editors begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let format = Format::of(path, text);
    let parsed = format.parse(text);
    parsed.map_err(|message| format!("is not valid {format}: {}", printable(&message)))
}

/// Parses a policy file. The error names the source.
fn parse_policy(name: &str, path: &Path, bytes: Vec<u8>) -> Result<RetryPolicy, CommandError> {
    let invalid = |message: String| CommandError::Input(format!("{name} {message}"));
    if bytes.len() as u64 > MAX_POLICY_BYTES {
        let max_mib = MAX_POLICY_BYTES >> 20;
        return Err(invalid(format!(
            "is too large: a policy has at most {max_mib} MiB"
        )));
    }
    let text = String::from_utf8(bytes).map_err(|_| invalid("is not valid UTF-8".to_owned()))?;
    let document = parse_document(path, &text).map_err(invalid)?;
    RetryPolicy::from_json(&document).map_err(|errors| invalid(not_a_policy(&errors)))
}

/// Formats validation errors, each on its own line.
fn not_a_policy(errors: &ValidationErrors) -> String {
    let mut message = "is not a retry policy".to_owned();
    for error in errors.iter() {
        let field = match error.field.as_str() {
            "" => "policy",
            field => field,
        };
        let (field, text) = (printable(field), printable(&error.message));
        message.push_str(&format!("\n{field}: {text}"));
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_validation_error_is_on_its_own_line() {
        let mut errors = ValidationErrors::default();
        errors.add("", "must be an object");
        errors.add("a\nb\u{1b}", "is not known");
        assert_eq!(
            not_a_policy(&errors),
            "is not a retry policy\npolicy: must be an object\na\u{fffd}b\u{fffd}: is not known"
        );
    }

    #[test]
    fn the_format_follows_from_the_name_or_the_content() {
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
        assert_eq!(Format::Toml.parse(toml), Ok(json));
    }

    #[test]
    fn values_without_json_form_are_errors() {
        let document =
            Format::Toml.parse("preset = 'swift'\nmax_attempts = nan\ngive_up_after = 2020-01-01");
        let errors = RetryPolicy::from_json(&document.expect("a document")).expect_err("mistakes");
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["max_attempts", "give_up_after"]);
    }

    #[test]
    fn errors_name_line_and_column() {
        let error = Format::Toml
            .parse("preset = 'swift'\nmax_attempts = = 3")
            .expect_err("no TOML");
        assert!(error.contains("at line 2 column 16"), "{error}");
        let error = Format::Json
            .parse("{\n  \"preset\" 5}")
            .expect_err("no JSON");
        assert!(error.contains("at line 2 column 12"), "{error}");
    }

    #[test]
    fn a_byte_order_mark_is_accepted() {
        let bytes = "\u{feff}{\"preset\": \"swift\"}".as_bytes().to_vec();
        let policy = parse_policy("p", Path::new("p"), bytes).expect("a policy");
        assert_eq!(policy, Preset::Swift.policy());
    }

    #[test]
    fn the_largest_policy_is_read_and_no_larger() {
        let text = |length: u64| {
            let blanks = " ".repeat((length - 19) as usize);
            format!("{{\"preset\": \"swift\"}}{blanks}").into_bytes()
        };
        let largest =
            input::take_bounded(&text(MAX_POLICY_BYTES)[..], MAX_POLICY_BYTES).expect("bytes");
        assert!(parse_policy("p", Path::new("p"), largest).is_ok());
        let larger =
            input::take_bounded(&text(MAX_POLICY_BYTES + 5)[..], MAX_POLICY_BYTES).expect("bytes");
        assert_eq!(larger.len() as u64, MAX_POLICY_BYTES + 1);
        let error = parse_policy("p", Path::new("p"), larger).expect_err("the file is too large");
        assert_eq!(
            (error.to_string(), error.exit_code()),
            ("p is too large: a policy has at most 1 MiB".to_owned(), 2)
        );
    }
}
