//! What can be asked of the server, as data.
//!
//! One row of the catalogue is one command: where its request goes, what may be said in it, and how
//! the answer looks. Arguments, requests and tables are all made from it.

use http::Method;
use posthaste_core::time::{Span, Timestamp};
use serde_json::{Map, Value, json};

use super::input;

/// Things of one kind, and what can be done with them.
#[derive(Debug)]
pub struct Resource {
    /// What people type.
    pub name: &'static str,
    /// What the help calls one of them.
    pub noun: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// What can be done.
    pub actions: &'static [Action],
}

/// One thing that can be done.
#[derive(Debug)]
pub struct Action {
    /// What people type; nothing if the resource alone says it.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Lines to try.
    pub examples: &'static [&'static str],
    /// How it is asked.
    pub method: Method,
    /// Where. `{tenant}` comes from an option, other names in braces are arguments; what stands in
    /// brackets is left out if its name has no value.
    pub path: &'static str,
    /// What can be said.
    pub fields: &'static [Field],
    /// How the answer looks.
    pub shape: Shape,
}

/// How an answer looks to a person.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A page of things, in these columns: a head, and where in each thing to look.
    Page(&'static [(&'static str, &'static str)]),
    /// One thing, with a remark.
    Thing(Option<&'static str>),
    /// A replay, which can be watched.
    Replay,
    /// Health metrics.
    Stats,
    /// What a tenant may do, and does.
    Usage,
    /// What plans allow.
    Plans,
    /// Nothing: it is done, and this word says so.
    Gone(&'static str),
}

/// Something that can be said.
#[derive(Debug)]
pub struct Field {
    /// What people type after the dashes.
    pub name: &'static str,
    /// Where it goes.
    pub place: Place,
    /// What it may be.
    pub kind: Kind,
    /// What it means.
    pub help: &'static str,
}

/// Where something that is said goes.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// Into the query, by this name.
    Query(&'static str),
    /// Into the body, at this place; dots part the levels.
    Body(&'static str),
    /// Into the body too; it is typed without dashes, and stands in the help by the second name.
    Bare(&'static str, &'static str),
}

/// What something that is said may be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Any text.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number.
    Whole,
    /// A number.
    Number,
    /// A duration.
    Duration,
    /// A whole number, or `default`: what is there goes away, and the default holds.
    WholeOrDefault,
    /// A duration, or `default`.
    DurationOrDefault,
    /// A point in time, or how long ago.
    Past,
    /// Several texts.
    List,
    /// `Name: value`, several times.
    Headers,
    /// A retry policy: a preset, JSON, or a file.
    Policy,
    /// Yes, or no where that is said.
    Truth,
    /// JSON in a file: what must not stand in a command line, where others can read it.
    Json,
    /// A text in a file.
    TextFile,
    /// A secret in a file, without the end of its line.
    SecretFile,
    /// Nothing is said with it: what is there goes away.
    Without,
    /// Nothing is said with it: it stands for this word.
    Said(&'static str),
}

impl Kind {
    /// What stands for the value in the help.
    pub fn value_name(self) -> &'static str {
        match self {
            Kind::Text => "TEXT",
            Kind::Word(_) => "WORD",
            Kind::Whole | Kind::WholeOrDefault => "COUNT",
            Kind::Number => "NUMBER",
            Kind::Duration | Kind::DurationOrDefault => "DURATION",
            Kind::Past => "TIME",
            Kind::List => "LIST",
            Kind::Headers => "HEADER",
            Kind::Policy => "POLICY",
            Kind::Truth => "BOOL",
            Kind::Json | Kind::TextFile | Kind::SecretFile => "FILE",
            Kind::Without | Kind::Said(_) => "",
        }
    }

    /// Whether it may be said more than once.
    pub fn repeats(self) -> bool {
        match self {
            Kind::List | Kind::Headers => true,
            Kind::Text
            | Kind::Word(_)
            | Kind::Whole
            | Kind::Number
            | Kind::Duration
            | Kind::WholeOrDefault
            | Kind::DurationOrDefault
            | Kind::Past
            | Kind::Policy
            | Kind::Truth
            | Kind::Json
            | Kind::TextFile
            | Kind::SecretFile
            | Kind::Without
            | Kind::Said(_) => false,
        }
    }

    /// Whether what is typed names a file.
    pub fn is_file(self) -> bool {
        matches!(self, Kind::Json | Kind::TextFile | Kind::SecretFile)
    }

    /// Reads what was typed. A mistake says what would be right.
    pub fn read(self, text: &str, now: Timestamp) -> Result<Value, String> {
        match self {
            Kind::Text | Kind::List | Kind::Word(_) => Ok(text.into()),
            Kind::Whole => match text.parse::<u64>() {
                Ok(number) => Ok(number.into()),
                Err(_) => Err("must be a whole number".to_owned()),
            },
            Kind::Number => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(number.into()),
                Ok(_) | Err(_) => Err("must be a number".to_owned()),
            },
            Kind::Duration => match text.parse::<Span>() {
                Ok(_) => Ok(text.into()),
                Err(error) => Err(error.to_string()),
            },
            Kind::WholeOrDefault | Kind::DurationOrDefault if text == DEFAULT => Ok(Value::Null),
            Kind::WholeOrDefault => or_default(Kind::Whole.read(text, now)),
            Kind::DurationOrDefault => or_default(Kind::Duration.read(text, now)),
            Kind::Past => moment(text, |span| {
                Timestamp(now.0.saturating_sub(span.as_millis()))
            })
            .map(Value::from),
            Kind::Headers => match text.split_once(':') {
                Some((name, value)) if !name.trim().is_empty() => {
                    Ok(json!({ name.trim(): value.trim() }))
                }
                Some(_) | None => Err(
                    "must be a name, a colon and a value, such as \"X-Team: billing\"".to_owned(),
                ),
            },
            Kind::Policy => policy(text),
            Kind::Truth => match text.parse::<bool>() {
                Ok(truth) => Ok(truth.into()),
                Err(_) => Err("must be true or false".to_owned()),
            },
            Kind::Json => {
                let json = input::read_file(text).map_err(|error| error.to_string())?;
                serde_json::from_str(&json).map_err(|error| format!("is not valid JSON: {error}"))
            }
            Kind::TextFile => match input::read_file(text) {
                Ok(text) => Ok(text.into()),
                Err(error) => Err(error.to_string()),
            },
            Kind::SecretFile => match input::read_file(text) {
                Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).into()),
                Err(error) => Err(error.to_string()),
            },
            Kind::Without => Ok(Value::Null),
            Kind::Said(word) => Ok(word.into()),
        }
    }

    /// Puts together what was said several times.
    pub fn joined(self, values: Vec<Value>) -> Value {
        match self {
            Kind::List => Value::Array(values),
            Kind::Headers => {
                let headers = values.into_iter().filter_map(|value| match value {
                    Value::Object(header) => Some(header),
                    Value::Null
                    | Value::Bool(_)
                    | Value::Number(_)
                    | Value::String(_)
                    | Value::Array(_) => None,
                });
                Value::Object(headers.flatten().collect::<Map<_, _>>())
            }
            Kind::Text
            | Kind::Word(_)
            | Kind::Whole
            | Kind::Number
            | Kind::Duration
            | Kind::WholeOrDefault
            | Kind::DurationOrDefault
            | Kind::Past
            | Kind::Policy
            | Kind::Truth
            | Kind::Json
            | Kind::TextFile
            | Kind::SecretFile
            | Kind::Without
            | Kind::Said(_) => values.into_iter().next_back().unwrap_or(Value::Null),
        }
    }
}

/// What says that the default is to hold.
const DEFAULT: &str = "default";

fn or_default(read: Result<Value, String>) -> Result<Value, String> {
    read.map_err(|why| format!("{why}, or \"{DEFAULT}\""))
}

/// Reads a point in time as the API writes it, or a duration from now.
pub fn moment(text: &str, from_now: impl Fn(Span) -> Timestamp) -> Result<String, String> {
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

fn policy(text: &str) -> Result<Value, String> {
    let read = |text: &str| {
        serde_json::from_str(text).map_err(|error| format!("is not valid JSON: {error}"))
    };
    match text {
        "null" => Ok(Value::Null),
        json if json.starts_with('{') => read(json),
        file if file.starts_with('@') => {
            read(&input::read_file(&file[1..]).map_err(|error| error.to_string())?)
        }
        preset => Ok(json!({ "preset": preset })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000);

    #[test]
    fn how_long_ago_is_a_time_too() {
        let read = |text| Kind::Past.read(text, NOW);
        assert_eq!(read("1h"), Ok("2023-11-14T21:13:20.000Z".into()));
        assert_eq!(
            read("2026-11-15T13:00:00+01:00"),
            Ok("2026-11-15T12:00:00.000Z".into())
        );
        assert!(read("yesterday").is_err_and(|error| error.contains("2h")));
    }

    #[test]
    fn a_policy_is_a_preset_or_json() {
        let read = |text| Kind::Policy.read(text, NOW);
        assert_eq!(read("swift"), Ok(json!({"preset": "swift"})));
        assert_eq!(
            read(r#"{"preset":"swift","max_attempts":3}"#).unwrap()["max_attempts"],
            3
        );
        assert_eq!(read("null"), Ok(Value::Null));
        assert!(read("{oops").is_err_and(|error| error.contains("JSON")));
        assert!(read("@/no/such/file").is_err_and(|error| error.contains("/no/such/file")));
    }

    #[test]
    fn what_is_secret_comes_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("auth.json");
        let path = file.to_str().unwrap();
        std::fs::write(&file, r#"{"kind":"bearer","token":"t"}"#).unwrap();
        let read = Kind::Json.read(path, NOW);
        assert_eq!(read, Ok(json!({"kind": "bearer", "token": "t"})));
        let text = Kind::TextFile.read(path, NOW).unwrap();
        assert_eq!(text, r#"{"kind":"bearer","token":"t"}"#);
        std::fs::write(&file, "hunter2").unwrap();
        let wrong = Kind::Json.read(path, NOW).unwrap_err();
        assert!(
            wrong.contains("JSON") && !wrong.contains("hunter2"),
            "{wrong}"
        );
        assert_eq!(Kind::Truth.read("false", NOW), Ok(json!(false)));
        assert!(Kind::Truth.read("yes", NOW).is_err());
    }

    #[test]
    fn headers_come_together() {
        let read = |text| Kind::Headers.read(text, NOW).unwrap();
        let both = Kind::Headers.joined(vec![read("X-Team: billing"), read("X-Url:http://a:1")]);
        assert_eq!(both, json!({"X-Team": "billing", "X-Url": "http://a:1"}));
        assert!(Kind::Headers.read("X-Team", NOW).is_err());
    }
}
