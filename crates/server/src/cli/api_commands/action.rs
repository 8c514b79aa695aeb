//! API commands, as data.
//!
//! Each [`Action`] is one command: its request, its fields, and the layout of the answer. Arguments,
//! requests and tables are all derived from it.

use std::path::Path;

use http::Method;
use posthaste_core::time::{Span, Timestamp};
use serde_json::{Value, json};

use crate::cli::input;
use crate::cli::policy::source::parse_document;

/// A kind of API object, and the actions on it.
#[derive(Debug)]
pub struct Resource {
    /// Name of the command.
    pub name: &'static str,
    /// Name of one object in the help.
    pub noun: &'static str,
    /// Description in the help.
    pub about: &'static str,
    /// Its actions.
    pub actions: &'static [Action],
}

/// One API command.
#[derive(Debug)]
pub struct Action {
    /// Name of the subcommand; empty if the resource itself is the command.
    pub name: &'static str,
    /// Description in the help.
    pub about: &'static str,
    /// Example command lines.
    pub examples: &'static [&'static str],
    /// HTTP method.
    pub method: Method,
    /// Path template. `{tenant}` comes from an option; other names in braces are arguments. The part in brackets is
    /// left out if its name has no value.
    pub path: &'static str,
    /// Options.
    pub fields: &'static [Field],
    /// Layout of the answer.
    pub shape: Shape,
}

/// The layout of an answer for people.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A list with these columns: heading, and path of the value in each object.
    List(&'static [(&'static str, &'static str)]),
    /// One object, with a hint.
    Object(Option<&'static str>),
    /// A replay, which can be followed.
    Replay,
    /// Health ratios.
    Stats,
    /// Limits of a tenant and their usage.
    Usage,
    /// Limits of plans.
    Plans,
    /// Times of a schedule, in words and one by one.
    SchedulePreview,
    /// No content; this word is printed instead.
    NoContent(&'static str),
}

/// An option of a command.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name of the option.
    pub name: &'static str,
    /// Its location in the request.
    pub location: Location,
    /// The type of its value.
    pub kind: OptionKind,
    /// Description in the help.
    pub help: &'static str,
}

/// The location of an option in the request.
#[derive(Clone, Copy, Debug)]
pub enum Location {
    /// Query parameter of this name.
    Query(&'static str),
    /// Field of the body; dots separate the levels.
    Body(&'static str),
    /// Field of the body that is given as a positional argument; the second name is shown in the help.
    Positional(&'static str, &'static str),
}

/// The type of an option's value.
#[derive(Clone, Copy, Debug)]
pub enum OptionKind {
    /// Any text.
    Text,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// An integer.
    Integer,
    /// A number.
    Number,
    /// A duration.
    Duration,
    /// An integer, or `default` to remove the setting.
    IntegerOrDefault,
    /// A duration, or `default`.
    DurationOrDefault,
    /// A time, or a duration before now.
    TimeInPast,
    /// A time, or a duration after now.
    TimeAhead,
    /// Several texts.
    List,
    /// Several headers, each as `Name: value`.
    Headers,
    /// A retry policy: a preset, JSON, or a file.
    Policy,
    /// A boolean; true if no value is given.
    Bool,
    /// JSON in a file, for values that must not be on the command line, where other users could read them.
    Json,
    /// JSON, or `@` and the name of a file with JSON.
    JsonText,
    /// Text in a file.
    TextFile,
    /// A secret in a file, without the line break at its end.
    SecretFile,
    /// A flag that removes the setting.
    Clear,
    /// A flag that stands for this word.
    Constant(&'static str),
}

impl OptionKind {
    /// Returns the placeholder of the value in the help.
    pub fn value_name(self) -> &'static str {
        match self {
            OptionKind::Text => "TEXT",
            OptionKind::OneOf(_) => "VALUE",
            OptionKind::Integer | OptionKind::IntegerOrDefault => "COUNT",
            OptionKind::Number => "NUMBER",
            OptionKind::Duration | OptionKind::DurationOrDefault => "DURATION",
            OptionKind::TimeInPast | OptionKind::TimeAhead => "TIME",
            OptionKind::List => "LIST",
            OptionKind::Headers => "HEADER",
            OptionKind::Policy => "POLICY",
            OptionKind::Bool => "BOOL",
            OptionKind::JsonText => "JSON",
            OptionKind::Json | OptionKind::TextFile | OptionKind::SecretFile => "FILE",
            OptionKind::Clear | OptionKind::Constant(_) => "",
        }
    }

    /// Returns whether the option can be given several times.
    pub fn repeats(self) -> bool {
        matches!(self, OptionKind::List | OptionKind::Headers)
    }

    /// Returns whether the value is a file name.
    pub fn is_file(self) -> bool {
        matches!(
            self,
            OptionKind::Json | OptionKind::TextFile | OptionKind::SecretFile
        )
    }

    /// Returns the value of an option that is a flag, or `None` for an option that takes a value.
    pub fn flag_value(self) -> Option<Value> {
        if let OptionKind::Constant(word) = self {
            return Some(word.into());
        }
        matches!(self, OptionKind::Clear).then_some(Value::Null)
    }

    /// Parses a value. The error states what is valid.
    pub fn read(self, text: &str, now: Timestamp) -> Result<Value, String> {
        match self {
            OptionKind::Text | OptionKind::List | OptionKind::OneOf(_) => Ok(text.into()),
            OptionKind::Integer => match text.parse::<u64>() {
                Ok(number) => Ok(number.into()),
                Err(_) => Err("must be a whole number".to_owned()),
            },
            OptionKind::Number => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(number.into()),
                Ok(_) | Err(_) => Err("must be a number".to_owned()),
            },
            OptionKind::Duration => match text.parse::<Span>() {
                Ok(_) => Ok(text.into()),
                Err(error) => Err(error.to_string()),
            },
            OptionKind::IntegerOrDefault | OptionKind::DurationOrDefault if text == DEFAULT => {
                Ok(Value::Null)
            }
            OptionKind::IntegerOrDefault => or_default(OptionKind::Integer.read(text, now)),
            OptionKind::DurationOrDefault => or_default(OptionKind::Duration.read(text, now)),
            OptionKind::TimeInPast => parse_time(text, |span| {
                Timestamp(now.0.saturating_sub(span.as_millis()))
            })
            .map(Value::from),
            OptionKind::TimeAhead => parse_time(text, |span| now.after(span)).map(Value::from),
            OptionKind::JsonText => parse_json(text),
            OptionKind::Headers => match text.split_once(':') {
                Some((name, value)) if !name.trim().is_empty() => {
                    Ok(json!({ name.trim(): value.trim() }))
                }
                Some(_) | None => Err("must be a header such as \"X-Team: billing\"".to_owned()),
            },
            OptionKind::Policy => parse_policy(text),
            OptionKind::Bool => match text.parse::<bool>() {
                Ok(truth) => Ok(truth.into()),
                Err(_) => Err("must be true or false".to_owned()),
            },
            OptionKind::Json => {
                let json = input::read_text(text).map_err(|error| error.to_string())?;
                serde_json::from_str(&json).map_err(|error| format!("is not valid JSON: {error}"))
            }
            OptionKind::TextFile => match input::read_text(text) {
                Ok(text) => Ok(text.into()),
                Err(error) => Err(error.to_string()),
            },
            OptionKind::SecretFile => match input::read_text(text) {
                Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).into()),
                Err(error) => Err(error.to_string()),
            },
            OptionKind::Clear | OptionKind::Constant(_) => {
                Ok(self.flag_value().unwrap_or_default())
            }
        }
    }

    /// Combines the values of an option that was given several times.
    pub fn joined(self, mut values: Vec<Value>) -> Value {
        if matches!(self, OptionKind::List) {
            return Value::Array(values);
        }
        if matches!(self, OptionKind::Headers) {
            let headers = values.iter().filter_map(Value::as_object).cloned();
            return Value::Object(headers.flatten().collect());
        }
        values.pop().unwrap_or(Value::Null)
    }
}

/// Creates an option that is a query parameter.
pub const fn query(
    name: &'static str,
    key: &'static str,
    kind: OptionKind,
    help: &'static str,
) -> Field {
    Field {
        name,
        location: Location::Query(key),
        kind,
        help,
    }
}

/// Creates an option that is a field of the body.
pub const fn body(
    name: &'static str,
    key: &'static str,
    kind: OptionKind,
    help: &'static str,
) -> Field {
    Field {
        name,
        location: Location::Body(key),
        kind,
        help,
    }
}

/// Creates a positional argument that is a field of the body.
pub const fn positional(name: &'static str, value_name: &'static str, help: &'static str) -> Field {
    Field {
        name,
        location: Location::Positional(name, value_name),
        kind: OptionKind::Text,
        help,
    }
}

/// The value that stands for the default.
const DEFAULT: &str = "default";

fn or_default(read: Result<Value, String>) -> Result<Value, String> {
    read.map_err(|error| format!("{error}, or \"{DEFAULT}\""))
}

/// Parses a time in the API's format, or a duration relative to now.
pub fn parse_time(text: &str, from_now: impl Fn(Span) -> Timestamp) -> Result<String, String> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at.to_string());
    }
    match text.parse::<Span>() {
        Ok(span) => Ok(from_now(span).to_string()),
        Err(_) => Err(
            "must be a time such as 2026-11-15T12:00:00Z, or a duration such as 90s or 2h"
                .to_owned(),
        ),
    }
}

fn parse_json(text: &str) -> Result<Value, String> {
    let read = |text: &str| {
        serde_json::from_str(text).map_err(|error| format!("is not valid JSON: {error}"))
    };
    match text.strip_prefix('@') {
        Some(file) => read(&input::read_text(file).map_err(|error| error.to_string())?),
        None => read(text),
    }
}

fn parse_policy(text: &str) -> Result<Value, String> {
    match text {
        "null" => Ok(Value::Null),
        json if json.starts_with('{') => parse_json(json),
        file if file.starts_with('@') => {
            let file = &file[1..];
            let text = input::read_text(file).map_err(|error| error.to_string())?;
            parse_document(Path::new(file), &text)
        }
        preset => Ok(json!({ "preset": preset })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000);

    #[test]
    fn a_duration_is_a_time_before_now() {
        let read = |text| OptionKind::TimeInPast.read(text, NOW);
        assert_eq!(read("1h"), Ok("2023-11-14T21:13:20.000Z".into()));
        assert_eq!(
            read("2026-11-15T13:00:00+01:00"),
            Ok("2026-11-15T12:00:00.000Z".into())
        );
        assert!(read("yesterday").is_err_and(|error| error.contains("2h")));
    }

    #[test]
    fn a_policy_is_a_preset_or_json() {
        let read = |text: &str| OptionKind::Policy.read(text, NOW);
        assert_eq!(read("swift"), Ok(json!({"preset": "swift"})));
        assert_eq!(
            read(r#"{"preset":"swift","max_attempts":3}"#).unwrap()["max_attempts"],
            3
        );
        assert_eq!(read("null"), Ok(Value::Null));
        assert!(read("{oops").is_err_and(|error| error.contains("JSON")));
        assert!(read("@/no/such/file").is_err_and(|error| error.contains("/no/such/file")));
        let folder = tempfile::tempdir().unwrap();
        let swift = Ok(json!({"preset": "swift", "max_attempts": 3}));
        for (name, policy) in [
            ("policy.toml", "preset = \"swift\"\nmax_attempts = 3\n"),
            ("policy.json", r#"{"preset": "swift", "max_attempts": 3}"#),
            ("policy", "preset = \"swift\"\nmax_attempts = 3\n"),
        ] {
            let file = folder.path().join(name);
            std::fs::write(&file, policy).unwrap();
            let argument = format!("@{}", file.display());
            assert_eq!(read(&argument), swift, "{name}");
        }
        let file = folder.path().join("wrong.toml");
        std::fs::write(&file, "preset = ").unwrap();
        let argument = format!("@{}", file.display());
        let wrong = read(&argument).unwrap_err();
        assert!(
            wrong.contains("TOML") && wrong.contains("line 1"),
            "{wrong}"
        );
    }

    #[test]
    fn secrets_are_read_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("auth.json");
        let path = file.to_str().unwrap();
        std::fs::write(&file, r#"{"kind":"bearer","token":"t"}"#).unwrap();
        let read = OptionKind::Json.read(path, NOW);
        assert_eq!(read, Ok(json!({"kind": "bearer", "token": "t"})));
        let text = OptionKind::TextFile.read(path, NOW).unwrap();
        assert_eq!(text, r#"{"kind":"bearer","token":"t"}"#);
        std::fs::write(&file, "hunter2").unwrap();
        let wrong = OptionKind::Json.read(path, NOW).unwrap_err();
        assert!(
            wrong.contains("JSON") && !wrong.contains("hunter2"),
            "{wrong}"
        );
        assert_eq!(OptionKind::Bool.read("false", NOW), Ok(json!(false)));
        assert!(OptionKind::Bool.read("yes", NOW).is_err());
    }

    #[test]
    fn headers_are_joined_into_one_object() {
        let read = |text| OptionKind::Headers.read(text, NOW).unwrap();
        let both =
            OptionKind::Headers.joined(vec![read("X-Team: billing"), read("X-Url:http://a:1")]);
        assert_eq!(both, json!({"X-Team": "billing", "X-Url": "http://a:1"}));
        assert!(OptionKind::Headers.read("X-Team", NOW).is_err());
    }
}
