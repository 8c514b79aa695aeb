//! The form for a new replay: its values and their errors.
//!
//! [`ReplayForm`] keeps the values as they were typed. It makes the document for the API, and maps the errors of the
//! API to its fields.

use maud::{Markup, html};
use posthaste_api::code::Code;
use posthaste_api::problem::Problem;
use posthaste_core::time::Timestamp;
use serde_json::{Map, Value, json};

use crate::page_request::PageRequest;
use crate::pages::endpoint_lookup::EndpointLookup;
use crate::pages::form_state::FormState;
use crate::pages::time_input::parse_time;

/// Names of the fields, as in the API.
const FIELDS: [&str; 7] = [
    "status",
    "endpoint",
    "event_type",
    "error_kind",
    "since",
    "until",
    "missed_since",
];
/// Fields that are times.
const TIME_FIELDS: [&str; 3] = ["since", "until", "missed_since"];
/// Statuses of deliveries that can be replayed, with labels.
const STATUSES: [(&str, &str); 3] = [
    ("failed", "failed"),
    ("succeeded", "succeeded"),
    ("cancelled", "cancelled"),
];

/// The values of the form.
pub(super) struct ReplayForm {
    state: FormState,
}

impl ReplayForm {
    /// Reads the form.
    pub(super) fn read<'a>(field: impl Fn(&str) -> &'a str) -> ReplayForm {
        ReplayForm {
            state: FormState::read(&FIELDS, field),
        }
    }

    /// Builds the API's document, or returns `None` if a field is invalid.
    pub(super) fn document(&mut self, now: Timestamp) -> Option<Value> {
        self.state.check_times(&TIME_FIELDS, now);
        let is_missed = !self.state.value("missed_since").is_empty();
        let mut document = Map::new();
        for (name, text) in self.state.fields() {
            // The status field always has a value. It is ignored if the replay is for missed events.
            if text.is_empty() || (is_missed && name == "status") {
                continue;
            }
            let value = match TIME_FIELDS.contains(&name) {
                false => text.to_owned(),
                true => parse_time(text, now).unwrap_or_default(),
            };
            document.insert(name.to_owned(), json!(value));
        }
        (!self.state.has_errors()).then_some(Value::Object(document))
    }

    /// Builds the query of a page with these values.
    pub(super) fn page_query(&self) -> String {
        self.state.page_query("")
    }

    /// Returns the values with exact times, for the form that starts the replay that was counted at `now`.
    pub(super) fn counted_fields(&self, now: Timestamp) -> Vec<(&'static str, String)> {
        let mut fields = self.state.api_fields(&TIME_FIELDS, now);
        fields.retain(|(_, text)| !text.is_empty());
        fields
    }

    /// Records the errors that the API returned. Returns whether they concern the form.
    pub(super) fn add_api_errors(&mut self, problem: &Problem) -> bool {
        let has_endpoint = !self.state.value("endpoint").is_empty();
        if problem.code == Code::NotFound && has_endpoint {
            return self.state.add_error("endpoint", "no longer exists");
        }
        self.state.add_api_errors(problem)
    }

    /// Renders the form.
    pub(super) fn render(&self, request: &PageRequest, endpoints: &EndpointLookup) -> Markup {
        let state = &self.state;
        let is_missed = !state.value("missed_since").is_empty();
        html! {
            form.card.narrow #new-replay action=(request.tenant_link("/replays/confirm")) {
                h2 { "New replay" }
                p.hint {
                    "Sends matching deliveries again, in the background. Receivers get the same "
                    code { "webhook-id" } " again and can recognise duplicates."
                }
                (state.field("status", "Status", state.choice("status", None, &STATUSES)))
                (state.field("endpoint", "Endpoint", state.endpoint("all endpoints", endpoints)))
                (state.field("event_type", "Event type", state.text("event_type", "invoice.paid")))
                (state.field("error_kind", "Failure reason", state.failure_kind("any")))
                (state.time_field("since", "Accepted since"))
                (state.time_field("until", "Accepted before"))
                details #missed open[is_missed] {
                    summary { "Or replay the events that an endpoint missed" }
                    p.hint {
                        "Failed deliveries, and events that the endpoint is subscribed to now but never received. Requires an endpoint; "
                        "status and failure reason are ignored."
                    }
                    (state.time_field("missed_since", "Missed since"))
                }
                div.actions { button.primary type="submit" { "Continue" } span.hint { "Shows how many deliveries match, and asks before it starts." } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::Form;
    use crate::pages::form_state::INVALID_TIME;

    const NOON: Timestamp = Timestamp(1_794_744_000_000);

    fn filled(fields: &[(&str, &str)]) -> ReplayForm {
        let form = Form::of(fields);
        ReplayForm::read(|name| form.text(name))
    }

    #[test]
    fn form_is_converted_to_the_api_document() {
        let mut form = filled(&[
            ("status", "failed"),
            ("endpoint", " ep_1 "),
            ("since", "2h"),
        ]);
        let expected =
            json!({"status": "failed", "endpoint": "ep_1", "since": "2026-11-15T10:00:00.000Z"});
        assert_eq!(form.document(NOON), Some(expected));
        let mut missed = filled(&[
            ("status", "failed"),
            ("endpoint", "ep_1"),
            ("missed_since", "2026-11-14"),
        ]);
        let expected = json!({"endpoint": "ep_1", "missed_since": "2026-11-14T00:00:00.000Z"});
        assert_eq!(missed.document(NOON), Some(expected));
    }

    #[test]
    fn invalid_times_are_reported_and_make_no_document() {
        let mut form = filled(&[("status", "failed"), ("since", "soon"), ("until", "later")]);
        assert_eq!(form.document(NOON), None);
        assert_eq!(form.state.error("since"), Some(INVALID_TIME));
        assert_eq!(form.state.error("until"), Some(INVALID_TIME));
        assert_eq!(form.state.value("since"), "soon");
    }
}
