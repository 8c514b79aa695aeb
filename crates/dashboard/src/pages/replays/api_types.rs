//! Replays as the API returns them, and their description in words.

use maud::Markup;
use posthaste_charts::words::count;
use posthaste_core::classify::FailureKind;
use serde::Deserialize;

use crate::components::{BadgeKind, badge};
use crate::pages::delivery::status_text;
use crate::pages::endpoint_lookup::EndpointLookup;
use crate::urls::query_string;

/// A replay.
#[derive(Deserialize)]
pub(in crate::pages) struct Replay {
    pub(in crate::pages) id: String,
    pub(in crate::pages) status: Progress,
    pub(in crate::pages) total: u64,
    pub(in crate::pages) replayed: u64,
    pub(in crate::pages) skipped: u64,
    pub(in crate::pages) filter: Asked,
    pub(in crate::pages) created_at: String,
    pub(in crate::pages) finished_at: Option<String>,
}

/// The status of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::pages) enum Progress {
    /// In progress.
    Running,
    /// Completed.
    Done,
    /// Stopped by a request.
    Cancelled,
}

/// The filter of a replay.
#[derive(Default, Deserialize)]
pub(in crate::pages) struct Asked {
    pub(in crate::pages) status: Option<String>,
    pub(in crate::pages) endpoint: Option<String>,
    pub(in crate::pages) event_type: Option<String>,
    pub(in crate::pages) error_kind: Option<FailureKind>,
    pub(in crate::pages) since: Option<String>,
    pub(in crate::pages) until: Option<String>,
    pub(in crate::pages) missed_since: Option<String>,
}

impl Replay {
    /// Renders the status as a badge.
    pub(in crate::pages) fn badge(&self) -> Markup {
        match self.status {
            Progress::Running => badge(BadgeKind::Busy, "running"),
            Progress::Done => badge(BadgeKind::Good, "done"),
            Progress::Cancelled => badge(BadgeKind::Quiet, "stopped"),
        }
    }

    /// Returns the progress in words.
    pub(in crate::pages) fn progress_in_words(&self) -> String {
        match (self.total, self.replayed) {
            (0, 0) => "nothing to send".to_owned(),
            (total, replayed) => {
                let skipped = match self.skipped {
                    0 => String::new(),
                    skipped => format!(", {} passed over", count(skipped)),
                };
                let total = count(total.max(replayed));
                format!("{} of {total} gone through{skipped}", count(replayed))
            }
        }
    }
}

impl Asked {
    /// Returns the filter in words.
    pub(in crate::pages) fn in_words(&self, lookup: &EndpointLookup) -> String {
        let mut said = match (&self.missed_since, &self.status) {
            (Some(_), _) => "Everything missed".to_owned(),
            (None, Some(status)) => format!("All that {}", past(status)),
            (None, None) => "Everything".to_owned(),
        };
        if let Some(event_type) = &self.event_type {
            said.push_str(&format!(" of type {event_type}"));
        }
        if let Some(endpoint) = &self.endpoint {
            let url = lookup.get(endpoint).url.as_deref();
            said.push_str(&format!(" for {}", url.unwrap_or(endpoint)));
        }
        if let Some(kind) = self.error_kind {
            said.push_str(&format!(" ({})", status_text::failure_kind(kind)));
        }
        if let Some(since) = self.missed_since.as_ref().or(self.since.as_ref()) {
            said.push_str(&format!(", since {}", plain(since)));
        }
        if let Some(until) = &self.until {
            said.push_str(&format!(", until {}", plain(until)));
        }
        said
    }

    /// Builds the query that lists its deliveries. It has no status filter, because the replay has changed their
    /// status.
    pub(super) fn deliveries(&self) -> String {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let since = self.missed_since.as_ref().or(self.since.as_ref());
        let fields = [
            ("endpoint", text(&self.endpoint)),
            ("event_type", text(&self.event_type)),
            ("since", since.cloned().unwrap_or_default()),
            ("until", text(&self.until)),
        ];
        query_string(fields.iter().map(|(name, text)| (*name, text.as_str())))
    }
}

fn past(status: &str) -> &str {
    match status {
        "cancelled" => "were called off",
        // `failed` and `succeeded` are verbs already.
        other => other,
    }
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

    fn asked(filter: Value) -> Asked {
        serde_json::from_value(filter).expect("a filter")
    }

    #[test]
    fn what_was_asked_for_is_said_in_words() {
        let none = EndpointLookup::empty();
        let all = asked(json!({"status": "failed"}));
        assert_eq!(all.in_words(&none), "All that failed");
        let one = asked(json!({
            "status": "failed", "endpoint": "ep_1", "error_kind": "timeout", "event_type": "a.b",
            "since": "2026-11-15T12:00:00.000Z", "until": "2026-11-15T13:00:00.000Z",
        }));
        assert_eq!(
            one.in_words(&none),
            "All that failed of type a.b for ep_1 (no answer in time), since 2026-11-15 12:00:00, \
             until 2026-11-15 13:00:00"
        );
        assert_eq!(
            one.deliveries(),
            "?endpoint=ep_1&event_type=a.b&since=2026-11-15T12%3A00%3A00.000Z\
             &until=2026-11-15T13%3A00%3A00.000Z"
        );
        let missed = asked(json!({"endpoint": "ep_1", "missed_since": "2026-11-15T12:00:00.000Z"}));
        assert_eq!(
            missed.in_words(&none),
            "Everything missed for ep_1, since 2026-11-15 12:00:00"
        );
    }

    #[test]
    fn progress_never_says_more_than_all() {
        let replay = |total: u64, replayed: u64| Replay {
            id: String::new(),
            status: Progress::Running,
            total,
            replayed,
            skipped: 0,
            filter: Asked::default(),
            created_at: String::new(),
            finished_at: None,
        };
        assert_eq!(
            replay(1_500, 20).progress_in_words(),
            "20 of 1,500 gone through"
        );
        assert_eq!(replay(10, 12).progress_in_words(), "12 of 12 gone through");
        assert_eq!(replay(0, 0).progress_in_words(), "nothing to send");
        let passed_over = Replay {
            skipped: 3,
            ..replay(10, 7)
        };
        assert_eq!(
            passed_over.progress_in_words(),
            "7 of 10 gone through, 3 passed over"
        );
    }
}
