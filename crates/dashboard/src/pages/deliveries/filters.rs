//! Filters of the delivery list.
//!
//! [`Filters`] are read from the URL, so that a filtered list can be shared by its link. An invalid filter is reported
//! and ignored; the others still apply.

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_core::delivery::Status;
use posthaste_core::time::Timestamp;

use crate::components::humanize;
use crate::page_request::PageRequest;
use crate::pages::endpoint_lookup::EndpointLookup;
use crate::pages::form_state::FormState;
use crate::pages::time_input::parse_time;
use crate::urls::query_string;

/// Names of all filters.
const FIELDS: [&str; 7] = [
    "status",
    "endpoint",
    "event_type",
    "error_kind",
    "since",
    "until",
    "id",
];
/// Filters that are times.
const TIME_FIELDS: [&str; 2] = ["since", "until"];
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
    state: FormState,
    cursor: String,
}

impl Filters {
    /// Reads the filters from the query.
    pub(super) fn read(request: &PageRequest) -> Filters {
        let mut state = FormState::read(&FIELDS, |name| request.query(name));
        state.check_times(&TIME_FIELDS, request.now);
        Filters {
            state,
            cursor: request.query("cursor").to_owned(),
        }
    }

    /// Returns whether the list is limited to failed deliveries.
    pub(super) fn is_failed_only(&self) -> bool {
        self.state.value("status") == Status::Failed.name()
    }

    /// Returns whether any filter is set.
    pub(super) fn is_set(&self) -> bool {
        self.state.fields().any(|(_, text)| !text.is_empty())
    }

    /// Returns the beginning of this page of the list; empty on the first page.
    pub(super) fn cursor(&self) -> &str {
        &self.cursor
    }

    /// Records the errors that the API returned. Returns whether a request without the invalid parts makes sense.
    pub(super) fn add_api_errors(&mut self, problem: &Problem) -> bool {
        let mut errors = problem.errors.iter().flat_map(|errors| errors.iter());
        let is_cursor_invalid =
            errors.any(|error| error.field == "cursor") && !self.cursor.is_empty();
        if is_cursor_invalid {
            self.cursor.clear();
        }
        self.state.add_api_errors(problem) || is_cursor_invalid
    }

    /// Builds the API query from all valid filters.
    pub(super) fn api_query(&self, now: Timestamp, limit: usize) -> String {
        let valid = self.state.fields();
        let valid = valid.filter(|(name, _)| self.state.error(name).is_none());
        let fields: Vec<(&str, String)> = valid
            .map(|(name, text)| match TIME_FIELDS.contains(&name) {
                true => (name, parse_time(text, now).unwrap_or_default()),
                false => (name, text.to_owned()),
            })
            .chain([
                ("cursor", self.cursor.clone()),
                ("limit", limit.to_string()),
            ])
            .collect();
        query_string(fields.iter().map(|(name, text)| (*name, text.as_str())))
    }

    /// Builds the page's query with all filters, beginning at a cursor.
    pub(super) fn page_query(&self, cursor: &str) -> String {
        self.state.page_query(cursor)
    }

    /// Renders the filter form.
    pub(super) fn form(&self, request: &PageRequest, endpoints: &EndpointLookup) -> Markup {
        let link = request.tenant_link("/deliveries");
        let state = &self.state;
        let labels = STATUSES.map(|status| (status.name(), humanize(status.name())));
        let statuses: Vec<(&str, &str)> = labels
            .iter()
            .map(|(name, label)| (*name, label.as_str()))
            .collect();
        html! {
            form.filters.card action=(link) role="search" aria-label="Filter deliveries" {
                (state.field("status", "Status", state.choice("status", Some("any"), &statuses)))
                (state.field("endpoint", "Endpoint", state.endpoint("any", endpoints)))
                (state.field("event_type", "Event type", state.text("event_type", "invoice.paid")))
                (state.field("error_kind", "Failure reason", state.failure_kind("any")))
                (state.time_field("since", "Since"))
                (state.time_field("until", "Until"))
                (state.field("id", "Id or id prefix", state.text("id", "dlv_…, evt_…, ep_…")))
                div.do {
                    button.primary type="submit" { "Apply" }
                    @if self.is_set() { a href=(link) { "Clear" } }
                }
            }
        }
    }
}
