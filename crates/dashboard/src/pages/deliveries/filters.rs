//! Filters of the delivery list. They are part of the address, so that a filtered list can be shared by its link. An
//! invalid filter is ignored; the others still apply.

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_core::delivery::Status;
use posthaste_core::time::Timestamp;

use crate::pages::addresses::EndpointLookup;
use crate::pages::form_values::{FormValues, moment};
use crate::parts::in_words;
use crate::visit::{PageRequest, query_of};

/// Names of all filters.
const NAMES: [&str; 7] = [
    "status",
    "endpoint",
    "event_type",
    "error_kind",
    "since",
    "until",
    "id",
];
/// Filters that are times.
const TIMES: [&str; 2] = ["since", "until"];
/// All delivery statuses.
const STATUSES: [Status; 7] = [
    Status::Pending,
    Status::InProgress,
    Status::Retrying,
    Status::Held,
    Status::Succeeded,
    Status::Failed,
    Status::Cancelled,
];

/// The filters of a request.
pub(super) struct Filters {
    typed: FormValues,
    cursor: String,
}

impl Filters {
    /// Reads the filters from the query.
    pub(super) fn read(visit: &PageRequest) -> Filters {
        let mut typed = FormValues::read(&NAMES, |name| visit.query(name));
        typed.check_times(&TIMES, visit.now);
        Filters {
            typed,
            cursor: visit.query("cursor").to_owned(),
        }
    }

    /// Returns whether the list is limited to failed deliveries.
    pub(super) fn is_of_failed(&self) -> bool {
        self.typed.value("status") == Status::Failed.name()
    }

    /// Returns whether any filter is set.
    pub(super) fn is_set(&self) -> bool {
        self.typed.fields().any(|(_, text)| !text.is_empty())
    }

    /// Returns whether this is not the first page of the list.
    pub(super) fn is_older(&self) -> bool {
        !self.cursor.is_empty()
    }

    /// Records the errors that the API returned. Returns whether a request without the invalid parts makes sense.
    pub(super) fn note(&mut self, problem: &Problem) -> bool {
        let mut mistakes = problem.errors.iter().flat_map(|errors| errors.iter());
        let is_lost = mistakes.any(|mistake| mistake.field == "cursor") && self.is_older();
        if is_lost {
            self.cursor.clear();
        }
        self.typed.note(problem) || is_lost
    }

    /// Builds the API query from all valid filters.
    pub(super) fn asked(&self, now: Timestamp, limit: usize) -> String {
        let right = self.typed.fields();
        let right = right.filter(|(name, _)| self.typed.wrong(name).is_none());
        let fields: Vec<(&str, String)> = right
            .map(|(name, text)| match TIMES.contains(&name) {
                true => (name, moment(text, now).unwrap_or_default()),
                false => (name, text.to_owned()),
            })
            .chain([
                ("cursor", self.cursor.clone()),
                ("limit", limit.to_string()),
            ])
            .collect();
        query_of(fields.iter().map(|(name, text)| (*name, text.as_str())))
    }

    /// Builds the page's query with all filters, beginning at a cursor.
    pub(super) fn link(&self, cursor: &str) -> String {
        query_of(self.typed.fields().chain([("cursor", cursor)]))
    }

    /// Renders the filter form.
    pub(super) fn form(&self, visit: &PageRequest, endpoints: &EndpointLookup) -> Markup {
        let here = visit.here("/deliveries");
        let typed = &self.typed;
        let names = STATUSES.map(|status| (status.name(), in_words(status.name())));
        let statuses: Vec<(&str, &str)> = names
            .iter()
            .map(|(name, shown)| (*name, shown.as_str()))
            .collect();
        html! {
            form.filters.card action=(here) role="search" aria-label="Which deliveries" {
                (typed.field("status", "Status", typed.choice("status", Some("any"), &statuses)))
                (typed.field("endpoint", "Endpoint", typed.endpoint("any", endpoints)))
                (typed.field("event_type", "Event type", typed.text("event_type", "invoice.paid")))
                (typed.field("error_kind", "Failed for", typed.kind("any")))
                (typed.field("since", "Since", typed.text("since", "2h, or 2026-11-15 14:30")))
                (typed.field("until", "Until", typed.text("until", "2026-11-15 15:00")))
                (typed.field("id", "Id, or its beginning", typed.text("id", "dlv_…, evt_…, ep_…")))
                div.do {
                    button.primary type="submit" { "Show" }
                    @if self.is_set() { a href=(here) { "Clear" } }
                }
            }
        }
    }
}
