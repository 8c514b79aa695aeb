//! Parses many events in one request.
//!
//! [`read`] accepts `{"events": […]}` and a plain list. It keeps at most [`MAX_BATCH`] events in memory and counts the
//! rest, so that the error for a longer batch can name its length.

use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

use super::event_parser::{EventParser, ParsedEvent};
use crate::body;
use crate::problem::Problem;

/// Maximum number of events in a request.
pub const MAX_BATCH: usize = 1_000;

/// Parses `{"events": […]}`, or a list of events. Every error contains the index of its event.
pub(super) fn read(
    text: &str,
    reader: &mut EventParser,
) -> Result<Option<Vec<ParsedEvent>>, Problem> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let listed = Batch
        .deserialize(&mut deserializer)
        .and_then(|listed| deserializer.end().map(|()| listed));
    let listed = match listed {
        Ok(listed) if listed.twice => {
            let error = serde_json::Error::custom("\"events\" occurs twice");
            return Err(body::malformed(&error));
        }
        Ok(listed) => listed,
        // Valid JSON, but not an object or list where one is expected.
        Err(error) if error.is_data() => {
            reader.wrong("events", "must be a list of events");
            return Ok(None);
        }
        Err(error) => return Err(body::malformed(&error)),
    };
    for name in &listed.unknown {
        let message = "is not a known field; known fields: events";
        reader.wrong(name.clone(), message);
    }
    let Some(events) = listed.events else {
        let message = "is required: a list of events";
        reader.wrong("events", message);
        return Ok(None);
    };
    if events.count == 0 || events.count > MAX_BATCH {
        let message = format!("must have 1 to {MAX_BATCH} events, not {}", events.count);
        reader.wrong("events", message);
        return Ok(None);
    }
    let mut drafts = Vec::with_capacity(events.count);
    for (index, raw) in events.first.iter().enumerate() {
        drafts.push(reader.event(raw.get(), &format!("events[{index}]."))?);
    }
    // A missing draft has been reported as an error, so the result is not used.
    Ok(drafts.into_iter().collect())
}

/// A list of events. It keeps at most [`MAX_BATCH`] of them and counts the rest.
struct Events<'a> {
    first: Vec<&'a RawValue>,
    count: usize,
}

#[derive(Default)]
struct Listed<'a> {
    events: Option<Events<'a>>,
    twice: bool,
    unknown: Vec<String>,
}

struct Batch;

impl<'de> DeserializeSeed<'de> for Batch {
    type Value = Listed<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Listed<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Batch {
    type Value = Listed<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Listed<'de>, A::Error> {
        Ok(Listed {
            events: Some(List.visit_seq(items)?),
            ..Listed::default()
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Listed<'de>, A::Error> {
        let mut listed = Listed::default();
        while let Some(name) = entries.next_key::<String>()? {
            if name != "events" {
                entries.next_value::<IgnoredAny>()?;
                if listed.unknown.is_empty() {
                    listed.unknown.push(name);
                }
            } else {
                listed.twice |= listed.events.is_some();
                listed.events = Some(entries.next_value_seed(List)?);
            }
        }
        Ok(listed)
    }
}

struct List;

impl<'de> DeserializeSeed<'de> for List {
    type Value = Events<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Events<'de>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List {
    type Value = Events<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Events<'de>, A::Error> {
        let mut events = Events {
            first: Vec::new(),
            count: 0,
        };
        while events.count < MAX_BATCH {
            let Some(raw) = items.next_element()? else {
                return Ok(events);
            };
            events.first.push(raw);
            events.count += 1;
        }
        while items.next_element::<IgnoredAny>()?.is_some() {
            events.count += 1;
        }
        Ok(events)
    }
}
