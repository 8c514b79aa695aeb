//! Event types, and the patterns of event types that an endpoint subscribes to.
//!
//! An endpoint lists [`Pattern`]s; an empty list matches every event. A pattern is an event type, or ends in `.*`,
//! which stands for the rest of a name after a dot: `invoice.*` matches `invoice.paid` and `invoice.line.added`,
//! but neither `invoice` nor `invoices.paid`. `*` alone matches every event. A [`SubscriptionIndex`] finds the
//! subscribers to a type without comparing all patterns of all subscribers.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use rustc_hash::FxHashMap;

/// Maximum length of an event type, in characters.
pub const MAX_EVENT_TYPE_CHARS: usize = 128;
/// Maximum number of patterns of one endpoint.
pub const MAX_PATTERNS: usize = 100;

/// The type of an event, such as `invoice.paid`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(String);

/// A pattern of event types: one type, or all types below a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Every type.
    All,
    /// This type.
    Exactly(EventType),
    /// Every type below this name.
    Below(EventType),
}

/// The reason why a text is not an event type or a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventTypeError {
    /// The text is not a valid name.
    #[error(
        "must be 1 to {MAX_EVENT_TYPE_CHARS} letters, digits, '_' or '-' in parts joined by dots, \
         such as invoice.paid"
    )]
    Name,
    /// The text has a `*` in a place where none is allowed.
    #[error("may contain '*' only alone or as the last part, such as invoice.*")]
    Star,
}

impl EventType {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for EventType {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for EventType {
    type Err = EventTypeError;

    fn from_str(text: &str) -> Result<EventType, EventTypeError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let fits = text.len() <= MAX_EVENT_TYPE_CHARS
            && text
                .split('.')
                .all(|part| !part.is_empty() && part.bytes().all(allowed));
        if fits {
            Ok(EventType(text.to_owned()))
        } else {
            Err(EventTypeError::Name)
        }
    }
}

impl FromStr for Pattern {
    type Err = EventTypeError;

    fn from_str(text: &str) -> Result<Pattern, EventTypeError> {
        if text == "*" {
            return Ok(Pattern::All);
        }
        match text.strip_suffix(".*") {
            Some(name) if name.contains('*') => Err(EventTypeError::Star),
            Some(name) => name.parse().map(Pattern::Below),
            None if text.contains('*') => Err(EventTypeError::Star),
            None => text.parse().map(Pattern::Exactly),
        }
    }
}

impl Pattern {
    /// Returns true if the pattern matches this event type.
    pub fn wants(&self, event_type: &EventType) -> bool {
        match self {
            Pattern::All => true,
            Pattern::Exactly(wanted) => wanted == event_type,
            Pattern::Below(name) => event_type
                .0
                .strip_prefix(&name.0)
                .is_some_and(|rest| rest.starts_with('.')),
        }
    }
}

/// Returns true if an endpoint with these patterns subscribes to this event type.
pub fn wants(patterns: &[Pattern], event_type: &EventType) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| pattern.wants(event_type))
}

/// Finds the subscribers to an event type. A subscriber is a number that the caller chooses.
#[derive(Clone, Debug, Default)]
pub struct SubscriptionIndex {
    /// Subscribers to every type.
    to_all: Vec<u32>,
    /// Subscribers to one type.
    to_type: FxHashMap<EventType, Vec<u32>>,
    /// Subscribers to all types below a name.
    below: FxHashMap<EventType, Vec<u32>>,
}

impl SubscriptionIndex {
    /// Adds a subscriber with its patterns. Each subscriber is added once.
    pub fn insert(&mut self, subscriber: u32, patterns: &[Pattern]) {
        if patterns.is_empty() || patterns.contains(&Pattern::All) {
            self.to_all.push(subscriber);
            return;
        }
        for pattern in patterns {
            match pattern {
                Pattern::All => {}
                Pattern::Exactly(name) => {
                    self.to_type
                        .entry(name.clone())
                        .or_default()
                        .push(subscriber);
                }
                Pattern::Below(name) => {
                    self.below.entry(name.clone()).or_default().push(subscriber);
                }
            }
        }
    }

    /// Returns the subscribers to a type, in ascending order.
    pub fn subscribers(&self, event_type: &EventType) -> Vec<u32> {
        let mut found = self.special_subscribers(event_type);
        found.extend_from_slice(&self.to_all);
        found.sort_unstable();
        found
    }

    /// Returns the number of subscribers to a type. The cost does not depend on how many subscribe to every type.
    pub fn count(&self, event_type: &EventType) -> usize {
        self.to_all.len() + self.special_subscribers(event_type).len()
    }

    /// Returns the subscribers to a type that do not subscribe to every type.
    fn special_subscribers(&self, event_type: &EventType) -> Vec<u32> {
        let name = event_type.as_str();
        let mut found = self.to_type.get(name).cloned().unwrap_or_default();
        for (dot, _) in name.match_indices('.') {
            if let Some(below) = self.below.get(&name[..dot]) {
                found.extend_from_slice(below);
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::All => f.write_str("*"),
            Pattern::Exactly(name) => write!(f, "{name}"),
            Pattern::Below(name) => write!(f, "{name}.*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(patterns: &[&str], event_type: &str) -> bool {
        let patterns: Vec<Pattern> = patterns.iter().map(|text| text.parse().unwrap()).collect();
        wants(&patterns, &event_type.parse().unwrap())
    }

    #[test]
    fn an_empty_subscription_matches_everything() {
        assert!(wanted(&[], "invoice.paid"));
        assert!(wanted(&["*"], "invoice.paid"));
    }

    #[test]
    fn a_star_matches_the_rest_after_a_dot() {
        for (event_type, expected) in [
            ("invoice.paid", true),
            ("invoice.line.added", true),
            ("invoice", false),
            ("invoices.paid", false),
            ("old.invoice.paid", false),
            ("Invoice.paid", false),
        ] {
            assert_eq!(wanted(&["invoice.*"], event_type), expected, "{event_type}");
        }
        assert!(wanted(&["user.created", "invoice.*"], "user.created"));
        assert!(!wanted(
            &["user.created", "invoice.*"],
            "user.created.twice"
        ));
    }

    #[test]
    fn an_index_finds_the_same_subscribers_as_comparing_all() {
        let subscriptions: Vec<Vec<Pattern>> = [
            &["a.b"][..],
            &[],
            &["a.*", "a.b", "a.b.*"],
            &["*", "a.b"],
            &["a"],
            &["a.b.*"],
            &["b.*", "c"],
            &["a.b", "a.b"],
        ]
        .iter()
        .map(|texts| texts.iter().map(|text| text.parse().unwrap()).collect())
        .collect();
        let mut index = SubscriptionIndex::default();
        for (subscriber, patterns) in subscriptions.iter().enumerate() {
            index.insert(subscriber as u32, patterns);
        }
        for text in ["a", "a.b", "a.b.c", "a.bc", "b", "b.x.y", "c", "c.d", "d"] {
            let event_type: EventType = text.parse().unwrap();
            let expected: Vec<u32> = (0..subscriptions.len() as u32)
                .filter(|it| wants(&subscriptions[*it as usize], &event_type))
                .collect();
            assert_eq!(index.count(&event_type), expected.len(), "{text}");
            assert_eq!(index.subscribers(&event_type), expected, "{text}");
        }
    }

    #[test]
    fn patterns_round_trip_through_text() {
        for text in ["*", "a", "a.b", "a.b.*", "a_1.B-2.*"] {
            assert_eq!(text.parse::<Pattern>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn invalid_patterns_are_refused_with_a_reason() {
        let long = "x".repeat(MAX_EVENT_TYPE_CHARS + 1);
        for text in ["", ".", "a.", ".a", "a..b", "a b", "ä", "a/b", &long, ".*"] {
            assert_eq!(text.parse::<Pattern>(), Err(EventTypeError::Name), "{text}");
        }
        for text in ["**", "a*", "*.a", "a.*.b", "a.*.*", "a.b*"] {
            assert_eq!(text.parse::<Pattern>(), Err(EventTypeError::Star), "{text}");
        }
        assert_eq!("a.*".parse::<EventType>(), Err(EventTypeError::Name));
    }
}
