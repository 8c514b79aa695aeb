//! Form fields with label, hint and error message.
//!
//! [`Field`] renders one field. [`FieldErrors`] holds the messages of a submitted form by field, including those that
//! the API returned, so that each is shown beside its field.

use http::StatusCode;
use maud::{Markup, html};
use posthaste_api::problem::Problem;

use crate::auth::CSRF_FIELD;
use crate::page_request::PageRequest;

/// Returns the hidden CSRF field that every form contains.
pub(crate) fn csrf_field(request: &PageRequest) -> Markup {
    html! { input type="hidden" name=(CSRF_FIELD) value=(request.visitor.csrf_token()); }
}

/// Error messages of a submitted form, by name of the form field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldErrors(Vec<(String, String)>);

impl FieldErrors {
    /// Collects the errors that the API returned. `form_field` maps an API field to its form field; errors without a
    /// form field are shown above the form.
    pub(crate) fn new(
        problem: &Problem,
        form_field: impl Fn(&str) -> Option<&'static str>,
    ) -> FieldErrors {
        let Some(errors) = &problem.errors else {
            return FieldErrors(vec![(String::new(), problem.detail.to_string())]);
        };
        let errors = errors.iter().map(|error| {
            let field = error.field.as_str();
            match form_field(field) {
                // If one form field holds several API fields, the message must name the API field.
                Some(name) if name == field => (name.to_owned(), error.message.clone()),
                Some(name) => {
                    let rest = field.strip_prefix(name).unwrap_or(field);
                    let rest = rest.trim_start_matches('.');
                    (name.to_owned(), format!("{rest} {}", error.message))
                }
                None => (String::new(), format!("{field} {}", error.message)),
            }
        });
        FieldErrors(errors.collect())
    }

    /// Collects the errors that the API returned, for a form whose fields have the same names as in the API.
    pub(crate) fn of_fields(problem: &Problem, names: &[&'static str]) -> FieldErrors {
        FieldErrors::new(problem, |field| {
            names.iter().copied().find(|name| *name == field)
        })
    }

    /// Returns the HTTP status of a page with this form.
    pub(crate) fn status(&self) -> StatusCode {
        match self.is_empty() {
            true => StatusCode::OK,
            false => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }

    /// Adds an error message.
    pub(crate) fn with(mut self, field: &str, message: impl Into<String>) -> FieldErrors {
        self.0.push((field.to_owned(), message.into()));
        self
    }

    /// Returns whether there are no errors.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the error messages of a field.
    pub(crate) fn message(&self, field: &str) -> Option<String> {
        let errors = self.0.iter().filter(|(name, _)| name == field);
        let messages: Vec<&str> = errors.map(|(_, message)| message.as_str()).collect();
        (!messages.is_empty()).then(|| messages.join("; "))
    }

    /// Renders a summary above the form, so that users of screen readers notice that there are errors.
    pub(crate) fn summary(&self) -> Markup {
        let general = self.message("");
        html! {
            @if !self.is_empty() {
                div.wrong-summary role="alert" {
                    @if let Some(general) = general { p { (general) } }
                    @else { p { "Fix the highlighted fields." } }
                }
            }
        }
    }
}

/// A form field.
pub(crate) struct Field<'a> {
    /// Its name in the form.
    name: &'a str,
    /// Its label.
    label: &'a str,
    /// Explanation below the label; may be empty.
    hint: &'a str,
    /// Its current value.
    value: &'a str,
    /// Errors of the whole form.
    errors: &'a FieldErrors,
}

impl<'a> Field<'a> {
    /// Creates a field.
    pub(crate) fn new(
        name: &'a str,
        label: &'a str,
        hint: &'a str,
        value: &'a str,
        errors: &'a FieldErrors,
    ) -> Field<'a> {
        Field {
            name,
            label,
            hint,
            value,
            errors,
        }
    }

    /// Element id of the input.
    fn id(&self) -> String {
        format!("field-{}", self.name)
    }

    /// Ids of the elements that describe it, for screen readers: its error and its hint.
    fn described_by(&self) -> Option<String> {
        let id = self.id();
        let error = self
            .errors
            .message(self.name)
            .map(|_| format!("{id}-wrong"));
        let hint = (!self.hint.is_empty()).then(|| format!("{id}-hint"));
        let ids: Vec<String> = error.into_iter().chain(hint).collect();
        (!ids.is_empty()).then(|| ids.join(" "))
    }

    fn aria_invalid(&self) -> Option<&'static str> {
        self.errors.message(self.name).map(|_| "true")
    }

    fn labelled(&self, input: Markup) -> Markup {
        let id = self.id();
        html! {
            div.field {
                label for=(id) { (self.label) }
                (input)
                @if let Some(error) = self.errors.message(self.name) {
                    p.wrong id={ (id) "-wrong" } { (error) }
                }
                @if !self.hint.is_empty() { p.hint id={ (id) "-hint" } { (self.hint) } }
            }
        }
    }

    /// A single-line input. `kind` is an HTML input type, such as `text` or `email`.
    pub(crate) fn line(&self, kind: &str) -> Markup {
        self.labelled(html! {
            input id=(self.id()) name=(self.name) type=(kind) value=(self.value) autocomplete="off"
                spellcheck="false" aria-invalid=[self.aria_invalid()] aria-describedby=[self.described_by()];
        })
    }

    /// A single-line input with an example of its value.
    pub(crate) fn example(&self, example: &str) -> Markup {
        self.labelled(html! {
            input id=(self.id()) name=(self.name) type="text" value=(self.value) placeholder=(example)
                autocomplete="off" spellcheck="false" aria-invalid=[self.aria_invalid()]
                aria-describedby=[self.described_by()];
        })
    }

    /// A multi-line input.
    pub(crate) fn lines(&self, rows: u8) -> Markup {
        self.labelled(html! {
            // Browsers drop a line break at the beginning of a textarea. This one is ours, so that the value keeps
            // its own.
            textarea id=(self.id()) name=(self.name) rows=(rows) spellcheck="false"
                aria-invalid=[self.aria_invalid()] aria-describedby=[self.described_by()] { "\n" (self.value) }
        })
    }

    /// A selection: values and their labels.
    pub(crate) fn choice(&self, choices: &[(&str, &str)]) -> Markup {
        self.labelled(html! {
            select id=(self.id()) name=(self.name) aria-invalid=[self.aria_invalid()]
                aria-describedby=[self.described_by()] {
                @for (value, name) in choices {
                    option value=(value) selected[*value == self.value] { (name) }
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::validation::ValidationErrors;

    fn problem() -> Problem {
        let mut errors = ValidationErrors::default();
        errors.add("url", "must be https");
        errors.add("headers.Host", "cannot be set");
        errors.add("headers.X Y", "is not the name of a header");
        errors.add("colour", "is unknown");
        Problem::invalid(errors)
    }

    fn form_field(field: &str) -> Option<&'static str> {
        let known = ["url", "headers"];
        known.into_iter().find(|name| field.starts_with(name))
    }

    #[test]
    fn api_errors_are_grouped_by_form_field() {
        let errors = FieldErrors::new(&problem(), form_field);
        assert_eq!(errors.message("url").as_deref(), Some("must be https"));
        assert_eq!(
            errors.message("headers").as_deref(),
            Some("Host cannot be set; X Y is not the name of a header")
        );
        assert_eq!(errors.message("").as_deref(), Some("colour is unknown"));
        assert_eq!(errors.message("timeout"), None);
    }

    #[test]
    fn invalid_field_keeps_its_value_and_shows_the_error() {
        let errors = FieldErrors::new(&problem(), form_field);
        let field = Field::new("url", "URL", "Destination.", "\"><script>", &errors);
        let markup = field.line("text").0;
        for part in [
            "<label for=\"field-url\">URL</label>",
            "value=\"&quot;&gt;&lt;script&gt;\"",
            "aria-invalid=\"true\"",
            "aria-describedby=\"field-url-wrong field-url-hint\"",
            "id=\"field-url-wrong\">must be https</p>",
        ] {
            assert!(markup.contains(part), "{part}: {markup}");
        }
        let fine = Field {
            name: "timeout",
            ..field
        };
        assert!(!fine.line("text").0.contains("aria-invalid"));
    }
}
