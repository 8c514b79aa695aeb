//! Replays in words: status, progress and filter.
//!
//! The functions are pure and take the resource of the API. Links to the deliveries of a replay have no status filter,
//! because the replay has changed their status.

use maud::Markup;
use posthaste_api::resources::{Replay, ReplayFilter};
use posthaste_charts::format::count;
use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::Status;
use posthaste_store::ReplayStatus;

use crate::components::{BadgeKind, badge};
use crate::pages::delivery::status_text;
use crate::pages::endpoint_lookup::EndpointLookup;
use crate::urls::query_string;

/// Renders the status as a badge.
pub(super) fn status_badge(status: ReplayStatus) -> Markup {
    match status {
        ReplayStatus::Running => badge(BadgeKind::Busy, "running"),
        ReplayStatus::Done => badge(BadgeKind::Good, "done"),
        ReplayStatus::Cancelled => badge(BadgeKind::Quiet, "stopped"),
    }
}

/// Returns the progress in words.
pub(super) fn progress_text(replay: &Replay) -> String {
    match (replay.total, replay.replayed) {
        (0, 0) => "no matching deliveries".to_owned(),
        (total, replayed) => {
            let skipped = match replay.skipped {
                0 => String::new(),
                skipped => format!(", {} skipped", count(skipped)),
            };
            let total = count(total.max(replayed));
            format!("{} of {total} started{skipped}", count(replayed))
        }
    }
}

/// Returns the filter in words.
pub(super) fn filter_text(filter: &ReplayFilter, lookup: &EndpointLookup) -> String {
    let mut text = match (&filter.missed_since, &filter.status) {
        (Some(_), _) => "Missed events".to_owned(),
        (None, Some(status)) => format!("All {} deliveries", status.name()),
        (None, None) => "All deliveries".to_owned(),
    };
    if let Some(event_type) = &filter.event_type {
        text.push_str(&format!(" of type {event_type}"));
    }
    if let Some(endpoint) = &filter.endpoint {
        let url = lookup.get(endpoint).url.as_deref();
        text.push_str(&format!(" to {}", url.unwrap_or(endpoint)));
    }
    if let Some(kind) = filter.error_kind {
        text.push_str(&format!(" ({})", status_text::failure_kind(kind)));
    }
    if let Some(since) = filter.missed_since.as_ref().or(filter.since.as_ref()) {
        text.push_str(&format!(", since {}", plain(since)));
    }
    if let Some(until) = &filter.until {
        text.push_str(&format!(", until {}", plain(until)));
    }
    text
}

/// Builds the query that lists its deliveries. It has no status filter, because the replay has changed their
/// status.
pub(super) fn deliveries_query(filter: &ReplayFilter) -> String {
    let value = |field: &Option<String>| field.clone().unwrap_or_default();
    let since = filter.missed_since.as_ref().or(filter.since.as_ref());
    let fields = [
        ("endpoint", value(&filter.endpoint)),
        ("event_type", value(&filter.event_type)),
        ("since", since.cloned().unwrap_or_default()),
        ("until", value(&filter.until)),
    ];
    query_string(fields.iter().map(|(name, text)| (*name, text.as_str())))
}

/// Builds the query with the complete filter, for the form of another replay.
pub(super) fn filter_query(filter: &ReplayFilter) -> String {
    let value = |field: &Option<String>| field.clone().unwrap_or_default();
    let kind = filter.error_kind.map_or("", FailureKind::name).to_owned();
    let status = filter.status.map_or("", Status::name).to_owned();
    let fields = [
        ("status", status),
        ("endpoint", value(&filter.endpoint)),
        ("event_type", value(&filter.event_type)),
        ("error_kind", kind),
        ("since", value(&filter.since)),
        ("until", value(&filter.until)),
        ("missed_since", value(&filter.missed_since)),
    ];
    query_string(fields.iter().map(|(name, text)| (*name, text.as_str())))
}

/// Formats a time as plain text for use inside a link, where no relative time is added.
fn plain(at: &str) -> String {
    let at = at.split('.').next().unwrap_or(at);
    at.trim_end_matches('Z').replace('T', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn filter(filter: Value) -> ReplayFilter {
        serde_json::from_value(filter).expect("a filter")
    }

    #[test]
    fn the_filter_is_described_in_words() {
        let none = EndpointLookup::empty();
        let all = filter(json!({"status": "failed"}));
        assert_eq!(filter_text(&all, &none), "All failed deliveries");
        let one = filter(json!({
            "status": "failed", "endpoint": "ep_1", "error_kind": "timeout", "event_type": "a.b",
            "since": "2026-11-15T12:00:00.000Z", "until": "2026-11-15T13:00:00.000Z",
        }));
        assert_eq!(
            filter_text(&one, &none),
            "All failed deliveries of type a.b to ep_1 (timeout), since 2026-11-15 12:00:00, \
             until 2026-11-15 13:00:00"
        );
        assert_eq!(
            deliveries_query(&one),
            "?endpoint=ep_1&event_type=a.b&since=2026-11-15T12%3A00%3A00.000Z\
             &until=2026-11-15T13%3A00%3A00.000Z"
        );
        assert_eq!(
            filter_query(&one),
            "?status=failed&endpoint=ep_1&event_type=a.b&error_kind=timeout\
             &since=2026-11-15T12%3A00%3A00.000Z&until=2026-11-15T13%3A00%3A00.000Z"
        );
        let missed =
            filter(json!({"endpoint": "ep_1", "missed_since": "2026-11-15T12:00:00.000Z"}));
        assert_eq!(
            filter_text(&missed, &none),
            "Missed events to ep_1, since 2026-11-15 12:00:00"
        );
    }

    #[test]
    fn progress_never_says_more_than_all() {
        let replay = |total: u64, replayed: u64| Replay {
            id: String::new(),
            status: ReplayStatus::Running,
            total,
            replayed,
            skipped: 0,
            filter: ReplayFilter::default(),
            created_at: String::new(),
            finished_at: None,
        };
        assert_eq!(progress_text(&replay(1_500, 20)), "20 of 1,500 started");
        assert_eq!(progress_text(&replay(10, 12)), "12 of 12 started");
        assert_eq!(progress_text(&replay(0, 0)), "no matching deliveries");
        let passed_over = Replay {
            skipped: 3,
            ..replay(10, 7)
        };
        assert_eq!(progress_text(&passed_over), "7 of 10 started, 3 skipped");
    }
}
