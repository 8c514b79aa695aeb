//! Query parameters, and lists in pages.
//!
//! A query is read as strictly as a body: an unknown or repeated parameter is an error with its name. A
//! cursor is opaque. It encodes the position where a list continues, and is valid only for the same kind of
//! list.

use axum::body::Body;
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use http::{Response, StatusCode};
use posthaste_core::classify::FailureKind;
use posthaste_core::id::{
    AlertId, AuditId, DeliveryId, EndpointId, EventId, KeyId, ReplayId, SessionId, TenantId,
};
use posthaste_core::suggestion::unknown;
use posthaste_core::time::Timestamp;
use posthaste_core::validation::ValidationErrors;
use posthaste_store::{DeadLetterGroupKey, Page, PageRequest};
use serde::Serialize;

use super::body;
use super::problem::Problem;
use super::resources::{ListPage, patterns};

/// Default number of items in a page.
pub const DEFAULT_LIMIT: usize = 50;
/// Maximum number of items in a page.
pub const MAX_LIMIT: usize = 250;
/// Maximum length of a query.
const MAX_QUERY_BYTES: usize = 8_192;
/// Maximum number of parameters.
const MAX_PARAMETERS: usize = 32;

/// A query, read parameter by parameter.
pub struct Query {
    given: Vec<(String, String)>,
    read: Vec<&'static str>,
    errors: ValidationErrors,
}

impl Query {
    /// Parses the text after the question mark.
    pub fn read(raw: Option<&str>) -> Query {
        let raw = raw.unwrap_or_default();
        let mut errors = ValidationErrors::default();
        let mut given: Vec<(String, String)> = Vec::new();
        if raw.len() > MAX_QUERY_BYTES {
            let message = format!("must have at most {MAX_QUERY_BYTES} bytes");
            errors.add("query", message);
        } else {
            for (name, value) in url::form_urlencoded::parse(raw.as_bytes()).into_owned() {
                if given.iter().any(|(earlier, _)| *earlier == name) {
                    errors.add(name, "is given twice");
                } else if given.len() < MAX_PARAMETERS {
                    given.push((name, value));
                } else {
                    errors.add(name, "is one parameter too many");
                    break;
                }
            }
        }
        Query {
            given,
            read: Vec::new(),
            errors,
        }
    }

    /// Returns a parameter as text. An empty parameter is an error.
    pub fn text(&mut self, name: &'static str) -> Option<String> {
        let value = self.given_text(name)?;
        if value.is_empty() {
            self.errors
                .add(name, "must not be empty; leave the parameter out");
            return None;
        }
        Some(value)
    }

    fn given_text(&mut self, name: &'static str) -> Option<String> {
        self.read.push(name);
        let given = self.given.iter().find(|(given, _)| given == name);
        given.map(|(_, value)| value.clone())
    }

    /// Returns a parameter, parsed. The error of the parser becomes the message.
    pub fn parsed<T>(&mut self, name: &'static str) -> Option<T>
    where
        T: std::str::FromStr,
        T::Err: std::fmt::Display,
    {
        let text = self.text(name)?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.wrong(name, error.to_string());
                None
            }
        }
    }

    /// Reports an error in a parameter.
    pub fn wrong(&mut self, name: &str, message: impl Into<String>) {
        self.errors.add(name, message);
    }

    /// Reads the parameters of the page.
    pub fn page<K: Cursor>(&mut self) -> PageRequest<K> {
        let limit = match self.text("limit") {
            None => DEFAULT_LIMIT,
            Some(text) => match text.parse() {
                Ok(limit) if (1..=MAX_LIMIT).contains(&limit) => limit,
                Ok(_) | Err(_) => {
                    let message = format!("must be a whole number from 1 to {MAX_LIMIT}");
                    self.wrong("limit", message);
                    DEFAULT_LIMIT
                }
            },
        };
        // An empty cursor means the first page, so that callers can start a loop with it.
        let before = self.given_text("cursor").filter(|text| !text.is_empty());
        let before = before.and_then(|text| {
            let cursor = decode(&text);
            if cursor.is_none() {
                self.wrong(
                    "cursor",
                    "must be the next_cursor of an earlier page of the same list",
                );
            }
            cursor
        });
        PageRequest { limit, before }
    }

    /// Finishes reading. Every parameter that was not read is an error.
    pub fn finish(mut self) -> Result<(), Problem> {
        for (name, _) in &self.given {
            if !self.read.iter().any(|read| read == name) {
                let message = if self.read.is_empty() {
                    "is not a known parameter; this path has no parameters".to_owned()
                } else {
                    unknown("parameter", name, &self.read)
                };
                self.errors.add(name.clone(), message);
            }
        }
        if self.errors.is_empty() {
            Ok(())
        } else {
            Err(Problem::invalid(self.errors))
        }
    }
}

/// The position where a list continues.
pub trait Cursor: Sized {
    /// Identifies the kind of list.
    const MARK: u8;
    /// Number of bytes of a position that are not text.
    const BYTES: usize;
    /// The pattern of the text after them, if a position has one.
    const TEXT: Option<&'static str>;

    /// Returns the position as bytes.
    fn to_bytes(&self) -> Vec<u8>;

    /// Reads the position from these bytes.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

macro_rules! id_cursors {
    ($($id:ident = $mark:literal;)*) => {$(
        impl Cursor for $id {
            const MARK: u8 = $mark;
            const BYTES: usize = 16;
            const TEXT: Option<&'static str> = None;

            fn to_bytes(&self) -> Vec<u8> {
                self.0.to_be_bytes().to_vec()
            }

            fn from_bytes(bytes: &[u8]) -> Option<$id> {
                Some($id(u128::from_be_bytes(bytes.try_into().ok()?)))
            }
        }
    )*};
}

id_cursors! {
    EndpointId = 1;
    EventId = 2;
    DeliveryId = 3;
    ReplayId = 4;
    KeyId = 5;
    AuditId = 7;
    SessionId = 9;
    AlertId = 10;
}

impl Cursor for (Timestamp, TenantId) {
    const MARK: u8 = 6;
    const BYTES: usize = 8;
    const TEXT: Option<&'static str> = Some("[A-Za-z0-9][A-Za-z0-9._-]{0,63}");

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.0.0.to_be_bytes().to_vec();
        bytes.extend_from_slice(self.1.as_str().as_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<(Timestamp, TenantId)> {
        let (at, tenant) = bytes.split_first_chunk::<8>()?;
        let tenant = std::str::from_utf8(tenant).ok()?.parse().ok()?;
        Some((Timestamp(u64::from_be_bytes(*at)), tenant))
    }
}

impl Cursor for DeadLetterGroupKey {
    const MARK: u8 = 8;
    const BYTES: usize = 16;
    const TEXT: Option<&'static str> =
        Some("(?:http|timeout|dns|tls|connection|validation|webhook_disabled|unknown)?");

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.0.0.to_be_bytes().to_vec();
        bytes.extend_from_slice(self.1.map_or("", FailureKind::name).as_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<DeadLetterGroupKey> {
        let (endpoint, kind) = bytes.split_first_chunk::<16>()?;
        let endpoint = EndpointId(u128::from_be_bytes(*endpoint));
        if kind.is_empty() {
            return Some((endpoint, None));
        }
        let named = |known: &FailureKind| known.name().as_bytes() == kind;
        let kind = FailureKind::ALL.into_iter().find(named)?;
        Some((endpoint, Some(kind)))
    }
}

/// Returns the pattern of the cursors of a list, and of an empty one.
pub fn cursor_pattern<K: Cursor>() -> String {
    let bytes = patterns::base64url_after(K::MARK, K::BYTES);
    match K::TEXT {
        None => format!("^(?:{bytes})?$"),
        Some(text) => format!("^(?:{bytes}\\.{text})?$"),
    }
}

fn encode<K: Cursor>(position: &K) -> String {
    let mut bytes = vec![K::MARK];
    bytes.extend(position.to_bytes());
    let (bytes, text) = bytes.split_at(K::BYTES + 1);
    let mut cursor = BASE64_URL_SAFE_NO_PAD.encode(bytes);
    if K::TEXT.is_some() {
        cursor.push('.');
        cursor.push_str(&String::from_utf8_lossy(text));
    }
    cursor
}

fn decode<K: Cursor>(cursor: &str) -> Option<K> {
    // Until version 0.1 the text was encoded too.
    let (bytes, text) = cursor.split_once('.').unwrap_or((cursor, ""));
    let mut bytes = BASE64_URL_SAFE_NO_PAD.decode(bytes).ok()?;
    bytes.extend_from_slice(text.as_bytes());
    let (mark, position) = bytes.split_first()?;
    (*mark == K::MARK)
        .then(|| K::from_bytes(position))
        .flatten()
}

/// Creates the response with a page, each item converted by `show`.
pub fn answer<T, K: Cursor, S: Serialize>(
    page: Page<T, K>,
    show: impl FnMut(T) -> S,
) -> Response<Body> {
    let page = ListPage {
        next_cursor: page.next.as_ref().map(encode),
        data: page.items.into_iter().map(show).collect(),
    };
    body::answer(StatusCode::OK, &page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(problem: Problem) -> Vec<String> {
        let errors = problem.errors.expect("mistakes");
        errors.iter().map(|error| error.field.clone()).collect()
    }

    #[test]
    fn cursors_round_trip_and_are_bound_to_their_list() {
        let key = EventId(42);
        let text = encode(&key);
        assert_eq!(decode(&text), Some(key));
        assert_eq!(decode::<DeliveryId>(&text), None);
        let fits = |pattern: &str, text: &str| {
            regex_lite::Regex::new(pattern)
                .expect("a pattern")
                .is_match(text)
        };
        assert!(fits(&cursor_pattern::<EventId>(), &text));
        assert!(!fits(&cursor_pattern::<DeliveryId>(), &text));
        let key = (Timestamp(7), "acme".parse::<TenantId>().expect("an id"));
        assert_eq!(decode(&encode(&key)), Some(key.clone()));
        assert!(fits(
            &cursor_pattern::<(Timestamp, TenantId)>(),
            &encode(&key)
        ));
        // As version 0.1 encoded it.
        assert_eq!(decode("BgAAAAAAAAAHYWNtZQ"), Some(key));
        for kind in [None, Some(FailureKind::Timeout)] {
            let key: DeadLetterGroupKey = (EndpointId(7), kind);
            assert!(fits(&cursor_pattern::<DeadLetterGroupKey>(), &encode(&key)));
            assert_eq!(decode(&encode(&key)), Some(key));
        }
        for rubbish in ["", "!", "AQ", "AQAA", "BgAAAAAAAAAH", "%00"] {
            assert_eq!(decode::<EndpointId>(rubbish), None, "{rubbish}");
            assert_eq!(decode::<(Timestamp, TenantId)>(rubbish), None, "{rubbish}");
            assert_eq!(decode::<DeadLetterGroupKey>(rubbish), None, "{rubbish}");
        }
    }

    #[test]
    fn every_invalid_parameter_is_reported() {
        let mut query = Query::read(Some("limit=&cursor="));
        let _: PageRequest<EventId> = query.page();
        let problem = query.finish().expect_err("mistakes");
        assert_eq!(fields(problem), ["limit"]);
        let mut query = Query::read(Some("limit=0&cursor=x&foo=1&foo=2&limit=3"));
        let _: PageRequest<EventId> = query.page();
        let problem = query.finish().expect_err("mistakes");
        assert_eq!(fields(problem), ["foo", "limit", "limit", "cursor", "foo"]);
        for raw in [None, Some(""), Some("cursor="), Some("limit=250")] {
            let mut query = Query::read(raw);
            let _: PageRequest<EventId> = query.page();
            assert_eq!(query.finish(), Ok(()), "{raw:?}");
        }
    }
}
