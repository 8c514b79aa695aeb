//! Times that a visitor types, converted to the API's format. They are typed in the same way everywhere.

use posthaste_core::time::{Span, Timestamp};

use crate::urls::query_string;

/// Converts a time to the API's format. Accepts a day, a minute or a second (UTC), or a duration before now.
pub(super) fn parse_time(text: &str, now: Timestamp) -> Option<String> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some(at.to_string());
    }
    if let Ok(span) = text.parse::<Span>() {
        let ago = now.0.saturating_sub(span.as_millis());
        return Some(Timestamp(ago).to_string());
    }
    let rest = match text.len() {
        10 => "T00:00:00Z",
        16 => ":00Z",
        19 => "Z",
        _ => return None,
    };
    let at = format!("{text}{rest}").parse::<Timestamp>().ok()?;
    Some(at.to_string())
}

/// Builds an API query from fields of which `since` and `until` are times as [`parse_time`] reads them. The API reports
/// a time that is none.
pub(super) fn api_query<'a>(
    fields: impl Iterator<Item = (&'a str, &'a str)>,
    now: Timestamp,
) -> String {
    let fields: Vec<(&str, String)> = fields
        .map(|(name, text)| match name {
            "since" | "until" => (name, parse_time(text, now).unwrap_or(text.to_owned())),
            _ => (name, text.to_owned()),
        })
        .collect();
    query_string(fields.iter().map(|(name, text)| (*name, text.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_notations_are_parsed() {
        let now: Timestamp = "2026-11-15T12:00:00Z".parse().expect("a valid time");
        for (text, expected) in [
            ("2026-11-15T10:00:00.5+01:00", "2026-11-15T09:00:00.500Z"),
            ("2026-11-15 10:30", "2026-11-15T10:30:00.000Z"),
            ("2026-11-15T10:30", "2026-11-15T10:30:00.000Z"),
            ("2026-11-15 10:30:05", "2026-11-15T10:30:05.000Z"),
            ("2026-11-15", "2026-11-15T00:00:00.000Z"),
            ("2h", "2026-11-15T10:00:00.000Z"),
            ("1d12h", "2026-11-14T00:00:00.000Z"),
        ] {
            assert_eq!(parse_time(text, now).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "yesterday",
            "2026-13-01",
            "2026-11-15 25:00",
            "10:30",
            "ééééé",
        ] {
            assert_eq!(parse_time(text, now), None, "{text}");
        }
    }

    #[test]
    fn times_of_a_query_are_converted() {
        let now: Timestamp = "2026-11-15T12:00:00Z".parse().expect("a valid time");
        let fields = [("tenant", "2h"), ("since", "2h"), ("until", "soon")];
        assert_eq!(
            api_query(fields.into_iter(), now),
            "?tenant=2h&since=2026-11-15T10%3A00%3A00.000Z&until=soon"
        );
    }
}
