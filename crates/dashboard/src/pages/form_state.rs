//! The state of a form: its values and their error messages.
//!
//! [`FormState`] keeps what the visitor typed and shows each error beside its field. The API validates all fields
//! except times, which `time_input` parses.

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_core::classify::FailureKind;
use posthaste_core::time::Timestamp;

use super::delivery::status_text;
use super::endpoint_lookup::EndpointLookup;
use super::time_input::parse_time;
use crate::urls::query_string;

/// Error message for a time that cannot be parsed.
pub(super) const INVALID_TIME: &str =
    "must be a time such as 2026-11-15 14:30, or a duration such as 2h (2 hours ago)";

/// The fields of a form, by their API names.
pub(super) struct FormState {
    fields: Vec<(&'static str, String)>,
    errors: Vec<(&'static str, String)>,
}

impl FormState {
    /// Reads these fields.
    pub(super) fn read<'a>(names: &[&'static str], field: impl Fn(&str) -> &'a str) -> FormState {
        let fields = names.iter().map(|name| (*name, field(name).to_owned()));
        FormState {
            fields: fields.collect(),
            errors: Vec::new(),
        }
    }

    /// Returns all fields in order, with their values.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields
            .iter()
            .map(|(name, text)| (*name, text.as_str()))
    }

    /// Builds the query of the page with these values, beginning at a cursor.
    pub(super) fn page_query(&self, cursor: &str) -> String {
        query_string(self.fields().chain([("cursor", cursor)]))
    }

    /// Returns the value of a field.
    pub(super) fn value(&self, name: &str) -> &str {
        let found = self.fields().find(|(field, _)| *field == name);
        found.map_or("", |(_, text)| text)
    }

    /// Returns the error of a field.
    pub(super) fn error(&self, name: &str) -> Option<&str> {
        let found = self.errors.iter().find(|(field, _)| *field == name);
        found.map(|(_, message)| message.as_str())
    }

    /// Returns whether any field has an error.
    pub(super) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Adds an error to a field. An earlier error of the same field is kept. Returns whether the error is new.
    pub(super) fn add_error(&mut self, name: &str, message: impl Into<String>) -> bool {
        let known = self.fields.iter().find(|(field, _)| *field == name);
        match known.map(|(field, _)| *field) {
            Some(field) if self.error(field).is_none() => {
                self.errors.push((field, message.into()));
                true
            }
            Some(_) | None => false,
        }
    }

    /// Records the errors that the API returned. Returns whether any of them is new for these fields.
    pub(super) fn add_api_errors(&mut self, problem: &Problem) -> bool {
        let errors = problem.errors.iter().flat_map(|errors| errors.iter());
        let mut has_new = false;
        for error in errors {
            has_new |= self.add_error(&error.field, error.message.clone());
        }
        has_new
    }

    /// Marks those of these fields that are filled in but not a valid time.
    pub(super) fn check_times(&mut self, names: &[&'static str], now: Timestamp) {
        for name in names {
            let text = self.value(name);
            if !text.is_empty() && parse_time(text, now).is_none() {
                self.add_error(name, INVALID_TIME);
            }
        }
    }

    /// Returns the fields without errors, with times in the API's format.
    pub(super) fn api_fields(&self, times: &[&str], now: Timestamp) -> Vec<(&'static str, String)> {
        let valid = self.fields.iter();
        let valid = valid.filter(|(name, _)| self.error(name).is_none());
        valid
            .map(|(name, text)| match times.contains(name) {
                true => (*name, parse_time(text, now).unwrap_or_default()),
                false => (*name, text.clone()),
            })
            .collect()
    }

    /// Renders the field of a time. All times are typed in the same way: as a time in UTC, or as a duration before now.
    pub(super) fn time_field(&self, name: &str, label: &str) -> Markup {
        let label = format!("{label} (UTC)");
        self.field(name, &label, self.text(name, "2h, or 2026-11-15 14:30"))
    }

    /// Renders a field with its label and its error.
    pub(super) fn field(&self, name: &str, label: &str, input: Markup) -> Markup {
        html! {
            div {
                label for=(name) { (label) }
                (input)
                @if let Some(message) = self.error(name) { p.wrong #{ (name) "-wrong" } { (message) } }
            }
        }
    }

    fn aria_invalid(&self, name: &str) -> Option<&'static str> {
        self.error(name).map(|_| "true")
    }

    fn described_by(&self, name: &str) -> Option<String> {
        self.error(name).map(|_| format!("{name}-wrong"))
    }

    /// Renders a single-line input.
    pub(super) fn text(&self, name: &str, example: &str) -> Markup {
        html! {
            input #(name) name=(name) value=(self.value(name)) placeholder=(example) autocomplete="off"
                spellcheck="false" aria-invalid=[self.aria_invalid(name)] aria-describedby=[self.described_by(name)];
        }
    }

    /// Renders a selection. `any` is the label of the empty choice.
    pub(super) fn choice(&self, name: &str, any: Option<&str>, values: &[(&str, &str)]) -> Markup {
        let chosen = self.value(name);
        let is_known = chosen.is_empty() || values.iter().any(|(value, _)| *value == chosen);
        html! {
            select #(name) name=(name) aria-invalid=[self.aria_invalid(name)] aria-describedby=[self.described_by(name)] {
                @if let Some(any) = any { option value="" { (any) } }
                @for (value, label) in values { option value=(value) selected[*value == chosen] { (label) } }
                // An invalid or deleted value stays selected.
                @if !is_known { option value=(chosen) selected { (chosen) } }
            }
        }
    }

    /// Renders a selection of the tenant's endpoints, or an id input if there are too many.
    pub(super) fn endpoint(&self, any: &str, endpoints: &EndpointLookup) -> Markup {
        let mut choices: Vec<(&str, &str)> = endpoints.choices().collect();
        choices.sort_unstable_by_key(|(id, url)| (*url, *id));
        if !endpoints.has_more {
            return self.choice("endpoint", Some(any), &choices);
        }
        html! {
            input #endpoint name="endpoint" list="endpoints" value=(self.value("endpoint")) placeholder="ep_…"
                autocomplete="off" spellcheck="false" aria-invalid=[self.aria_invalid("endpoint")]
                aria-describedby=[self.described_by("endpoint")];
            datalist #endpoints { @for (id, url) in &choices { option value=(id) { (url) } } }
        }
    }

    /// Renders a selection of the failure kinds.
    pub(super) fn failure_kind(&self, any: &str) -> Markup {
        let kinds = FailureKind::ALL.map(|kind| (kind.name(), status_text::failure_kind(kind)));
        self.choice("error_kind", Some(any), &kinds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_shown_beside_fields_and_values_are_kept() {
        let mut state = FormState::read(&["status", "since"], |name| match name {
            "status" => "<odd>",
            _ => "soon",
        });
        state.check_times(&["since"], Timestamp(0));
        assert!(state.add_api_errors(&Problem::invalid_field("status", "must be another")));
        assert!(
            !state.add_api_errors(&Problem::invalid_field("status", "again")),
            "the field has an error already"
        );
        assert!(!state.add_api_errors(&Problem::invalid_field("limit", "not of this form")));
        let markup = state.field("since", "Since", state.text("since", "2h")).0;
        assert!(markup.contains("value=\"soon\""), "{markup}");
        assert!(
            markup.contains("aria-invalid=\"true\" aria-describedby=\"since-wrong\""),
            "{markup}"
        );
        assert!(markup.contains("id=\"since-wrong\""), "{markup}");
        let markup = state
            .choice("status", Some("any"), &[("failed", "failed")])
            .0;
        assert!(
            markup.contains("value=\"&lt;odd&gt;\" selected"),
            "{markup}"
        );
    }
}
