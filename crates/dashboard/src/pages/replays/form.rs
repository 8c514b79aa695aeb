//! The form for a new replay: its values and their errors.

use maud::{Markup, html};
use posthaste_api::code::Code;
use posthaste_api::problem::Problem;
use posthaste_core::time::Timestamp;
use serde_json::{Map, Value, json};

use crate::layout::csrf;
use crate::pages::addresses::EndpointLookup;
use crate::pages::form_values::{FormValues, moment};
use crate::visit::PageRequest;

/// Names of the fields, as in the API.
const NAMES: [&str; 7] = [
    "status",
    "endpoint",
    "event_type",
    "error_kind",
    "since",
    "until",
    "missed_since",
];
/// Fields that are times.
const TIMES: [&str; 3] = ["since", "until", "missed_since"];
/// Statuses of deliveries that can be replayed, with labels.
const ENDED: [(&str, &str); 3] = [
    ("failed", "failed"),
    ("succeeded", "succeeded"),
    ("cancelled", "were called off"),
];

/// The values of the form.
pub(super) struct NewReplay {
    typed: FormValues,
}

impl NewReplay {
    /// Reads the form.
    pub(super) fn read<'a>(field: impl Fn(&str) -> &'a str) -> NewReplay {
        NewReplay {
            typed: FormValues::read(&NAMES, field),
        }
    }

    /// Builds the API's document, or returns `None` if a field is invalid.
    pub(super) fn document(&mut self, now: Timestamp) -> Option<Value> {
        self.typed.check_times(&TIMES, now);
        let is_missed = !self.typed.value("missed_since").is_empty();
        let mut document = Map::new();
        for (name, text) in self.typed.fields() {
            // The status field always has a value. It is ignored if the replay is for missed events.
            if text.is_empty() || (is_missed && name == "status") {
                continue;
            }
            let value = match TIMES.contains(&name) {
                false => text.to_owned(),
                true => moment(text, now).unwrap_or_default(),
            };
            document.insert(name.to_owned(), json!(value));
        }
        (!self.typed.is_wrong()).then_some(Value::Object(document))
    }

    /// Records the errors that the API returned. Returns whether they concern the form.
    pub(super) fn note(&mut self, problem: &Problem) -> bool {
        let has_endpoint = !self.typed.value("endpoint").is_empty();
        if problem.code == Code::NotFound && has_endpoint {
            return self.typed.add_error("endpoint", "is not there any more");
        }
        self.typed.note(problem)
    }

    /// Renders the form.
    pub(super) fn form(&self, visit: &PageRequest, endpoints: &EndpointLookup) -> Markup {
        let typed = &self.typed;
        let is_missed = !typed.value("missed_since").is_empty();
        html! {
            form.card.narrow #new-replay method="post" action=(visit.here("/replays/begin")) {
                (csrf(visit))
                h2 { "New replay" }
                p.hint {
                    "Sends again every delivery that fits, in the background. Whoever receives them sees the same "
                    code { "webhook-id" } " and can tell that it had them."
                }
                (typed.field("status", "Deliveries that", typed.choice("status", None, &ENDED)))
                (typed.field("endpoint", "To", typed.endpoint("every endpoint", endpoints)))
                (typed.field("event_type", "Of type", typed.text("event_type", "invoice.paid")))
                (typed.field("error_kind", "Failed for", typed.kind("any reason")))
                (typed.field("since", "Accepted since", typed.text("since", "2h, or 2026-11-15 14:30")))
                (typed.field("until", "Accepted before", typed.text("until", "2026-11-15 15:00")))
                details #missed open[is_missed] {
                    summary { "Or everything an endpoint missed" }
                    p.hint {
                        "What failed, and also events it wants now that it was never sent. It needs an endpoint, and "
                        "stands instead of what the deliveries did and why."
                    }
                    (typed.field("missed_since", "Missed since", typed.text("missed_since", "1d, or 2026-11-14 09:00")))
                }
                div.actions { button.primary type="submit" { "Replay" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::Form;
    use crate::pages::form_values::INVALID_TIME;

    const NOON: Timestamp = Timestamp(1_794_744_000_000);

    fn filled(fields: &[(&str, &str)]) -> NewReplay {
        let form = Form::of(fields);
        NewReplay::read(|name| form.text(name))
    }

    #[test]
    fn a_form_says_what_the_api_is_asked_for() {
        let mut asked = filled(&[
            ("status", "failed"),
            ("endpoint", " ep_1 "),
            ("since", "2h"),
        ]);
        let wanted =
            json!({"status": "failed", "endpoint": "ep_1", "since": "2026-11-15T10:00:00.000Z"});
        assert_eq!(asked.document(NOON), Some(wanted));
        let mut missed = filled(&[
            ("status", "failed"),
            ("endpoint", "ep_1"),
            ("missed_since", "2026-11-14"),
        ]);
        let wanted = json!({"endpoint": "ep_1", "missed_since": "2026-11-14T00:00:00.000Z"});
        assert_eq!(missed.document(NOON), Some(wanted));
    }

    #[test]
    fn a_time_that_is_none_is_told_and_nothing_is_asked() {
        let mut asked = filled(&[("status", "failed"), ("since", "soon"), ("until", "later")]);
        assert_eq!(asked.document(NOON), None);
        assert_eq!(asked.typed.wrong("since"), Some(INVALID_TIME));
        assert_eq!(asked.typed.wrong("until"), Some(INVALID_TIME));
        assert_eq!(asked.typed.value("since"), "soon");
    }
}
