//! Form values with their error messages.
//!
//! [`FormValues`] keeps what the visitor typed and shows each error beside its field. The API validates all fields
//! except times, which this module parses in common notations.

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_core::classify::FailureKind;
use posthaste_core::time::{Span, Timestamp};

use super::addresses::EndpointLookup;
use super::delivery::words;

/// Error message for a time that cannot be parsed.
pub(super) const INVALID_TIME: &str =
    "must be a time, such as 2026-11-15 14:30, or how long ago that is, such as 2h";

/// The fields of a form, by their API names.
pub(super) struct FormValues {
    fields: Vec<(&'static str, String)>,
    wrong: Vec<(&'static str, String)>,
}

impl FormValues {
    /// Reads these fields.
    pub(super) fn read<'a>(names: &[&'static str], field: impl Fn(&str) -> &'a str) -> FormValues {
        let fields = names.iter().map(|name| (*name, field(name).to_owned()));
        FormValues {
            fields: fields.collect(),
            wrong: Vec::new(),
        }
    }

    /// Returns all fields in order, with their values.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields
            .iter()
            .map(|(name, text)| (*name, text.as_str()))
    }

    /// Returns the value of a field.
    pub(super) fn value(&self, name: &str) -> &str {
        let found = self.fields().find(|(field, _)| *field == name);
        found.map_or("", |(_, text)| text)
    }

    /// Returns the error of a field.
    pub(super) fn wrong(&self, name: &str) -> Option<&str> {
        let found = self.wrong.iter().find(|(field, _)| *field == name);
        found.map(|(_, message)| message.as_str())
    }

    /// Returns whether any field has an error.
    pub(super) fn is_wrong(&self) -> bool {
        !self.wrong.is_empty()
    }

    /// Marks a field as wrong. An earlier error of the same field is kept. Returns whether the error is new.
    pub(super) fn add_error(&mut self, name: &str, message: impl Into<String>) -> bool {
        let known = self.fields.iter().find(|(field, _)| *field == name);
        match known.map(|(field, _)| *field) {
            Some(field) if self.wrong(field).is_none() => {
                self.wrong.push((field, message.into()));
                true
            }
            Some(_) | None => false,
        }
    }

    /// Records the errors that the API returned. Returns whether any of them is new for these fields.
    pub(super) fn note(&mut self, problem: &Problem) -> bool {
        let mistakes = problem.errors.iter().flat_map(|errors| errors.iter());
        let mut has_news = false;
        for mistake in mistakes {
            has_news |= self.add_error(&mistake.field, mistake.message.clone());
        }
        has_news
    }

    /// Marks those of these fields that are filled in but not a valid time.
    pub(super) fn check_times(&mut self, names: &[&'static str], now: Timestamp) {
        for name in names {
            let text = self.value(name);
            if !text.is_empty() && moment(text, now).is_none() {
                self.add_error(name, INVALID_TIME);
            }
        }
    }

    /// Renders a field with its label and its error.
    pub(super) fn field(&self, name: &str, label: &str, input: Markup) -> Markup {
        html! {
            div {
                label for=(name) { (label) }
                (input)
                @if let Some(message) = self.wrong(name) { p.wrong #{ (name) "-wrong" } { (message) } }
            }
        }
    }

    fn invalid(&self, name: &str) -> Option<&'static str> {
        self.wrong(name).map(|_| "true")
    }

    fn described(&self, name: &str) -> Option<String> {
        self.wrong(name).map(|_| format!("{name}-wrong"))
    }

    /// Renders a single-line input.
    pub(super) fn text(&self, name: &str, example: &str) -> Markup {
        html! {
            input #(name) name=(name) value=(self.value(name)) placeholder=(example) autocomplete="off"
                spellcheck="false" aria-invalid=[self.invalid(name)] aria-describedby=[self.described(name)];
        }
    }

    /// Renders a selection. `any` is the label of the empty choice.
    pub(super) fn choice(&self, name: &str, any: Option<&str>, values: &[(&str, &str)]) -> Markup {
        let chosen = self.value(name);
        let is_known = chosen.is_empty() || values.iter().any(|(value, _)| *value == chosen);
        html! {
            select #(name) name=(name) aria-invalid=[self.invalid(name)] aria-describedby=[self.described(name)] {
                @if let Some(any) = any { option value="" { (any) } }
                @for (value, shown) in values { option value=(value) selected[*value == chosen] { (shown) } }
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
                autocomplete="off" spellcheck="false" aria-invalid=[self.invalid("endpoint")]
                aria-describedby=[self.described("endpoint")];
            datalist #endpoints { @for (id, url) in &choices { option value=(id) { (url) } } }
        }
    }

    /// Renders a selection of the failure kinds.
    pub(super) fn kind(&self, any: &str) -> Markup {
        let kinds = FailureKind::ALL.map(|kind| (kind.name(), words::kind(kind)));
        self.choice("error_kind", Some(any), &kinds)
    }
}

/// Converts a time to the API's format. Accepts a day, a minute or a second (UTC), or a duration before now.
pub(super) fn moment(text: &str, now: Timestamp) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let now: Timestamp = "2026-11-15T12:00:00Z".parse().expect("a time");
        for (text, wanted) in [
            ("2026-11-15T10:00:00.5+01:00", "2026-11-15T09:00:00.500Z"),
            ("2026-11-15 10:30", "2026-11-15T10:30:00.000Z"),
            ("2026-11-15T10:30", "2026-11-15T10:30:00.000Z"),
            ("2026-11-15 10:30:05", "2026-11-15T10:30:05.000Z"),
            ("2026-11-15", "2026-11-15T00:00:00.000Z"),
            ("2h", "2026-11-15T10:00:00.000Z"),
            ("1d12h", "2026-11-14T00:00:00.000Z"),
        ] {
            assert_eq!(moment(text, now).as_deref(), Some(wanted), "{text}");
        }
        for text in [
            "yesterday",
            "2026-13-01",
            "2026-11-15 25:00",
            "10:30",
            "ééééé",
        ] {
            assert_eq!(moment(text, now), None, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_beside_its_field_and_what_was_typed_stays() {
        let mut typed = FormValues::read(&["status", "since"], |name| match name {
            "status" => "<odd>",
            _ => "soon",
        });
        typed.check_times(&["since"], Timestamp(0));
        assert!(typed.note(&Problem::invalid_field("status", "must be another")));
        assert!(
            !typed.note(&Problem::invalid_field("status", "again")),
            "no news"
        );
        assert!(!typed.note(&Problem::invalid_field("limit", "not of this form")));
        let shown = typed.field("since", "Since", typed.text("since", "2h")).0;
        assert!(shown.contains("value=\"soon\""), "{shown}");
        assert!(
            shown.contains("aria-invalid=\"true\" aria-describedby=\"since-wrong\""),
            "{shown}"
        );
        assert!(shown.contains("id=\"since-wrong\""), "{shown}");
        let shown = typed
            .choice("status", Some("any"), &[("failed", "failed")])
            .0;
        assert!(shown.contains("value=\"&lt;odd&gt;\" selected"), "{shown}");
    }
}
