//! Form fields with label, hint and error message.

use maud::{Markup, html};
use posthaste_api::problem::Problem;

/// Error messages of a submitted form, by name of the form field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wrong(Vec<(String, String)>);

impl Wrong {
    /// Collects the errors that the API returned. `place` maps an API field to its form field; errors without a form
    /// field are shown above the form.
    pub(crate) fn new(problem: &Problem, place: impl Fn(&str) -> Option<&'static str>) -> Wrong {
        let Some(mistakes) = &problem.errors else {
            return Wrong(vec![(String::new(), problem.detail.to_string())]);
        };
        let told = mistakes.iter().map(|mistake| {
            let field = mistake.field.as_str();
            match place(field) {
                // If one form field holds several API fields, the message must name the API field.
                Some(name) if name == field => (name.to_owned(), mistake.message.clone()),
                Some(name) => {
                    let part = field.strip_prefix(name).unwrap_or(field);
                    let part = part.trim_start_matches('.');
                    (name.to_owned(), format!("{part} {}", mistake.message))
                }
                None => (String::new(), format!("{field} {}", mistake.message)),
            }
        });
        Wrong(told.collect())
    }

    /// Adds an error message.
    pub(crate) fn and(mut self, field: &str, message: impl Into<String>) -> Wrong {
        self.0.push((field.to_owned(), message.into()));
        self
    }

    /// Returns whether there are no errors.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the error messages of a field.
    pub(crate) fn about(&self, field: &str) -> Option<String> {
        let about = self.0.iter().filter(|(name, _)| name == field);
        let told: Vec<&str> = about.map(|(_, message)| message.as_str()).collect();
        (!told.is_empty()).then(|| told.join("; "))
    }

    /// Renders a summary above the form, so that users of screen readers notice that there are errors.
    pub(crate) fn summary(&self) -> Markup {
        let rest = self.about("");
        html! {
            @if !self.is_empty() {
                div.wrong-summary role="alert" {
                    @if let Some(rest) = rest { p { (rest) } }
                    @else { p { "Something is not right yet. It is told beside its field." } }
                }
            }
        }
    }
}

/// A form field.
pub(crate) struct Field<'a> {
    /// Its name in the form.
    pub(crate) name: &'a str,
    /// Its label.
    pub(crate) label: &'a str,
    /// Explanation below the label; may be empty.
    pub(crate) hint: &'a str,
    /// Its current value.
    pub(crate) value: &'a str,
    /// Errors of the whole form.
    pub(crate) wrong: &'a Wrong,
}

impl Field<'_> {
    /// Element id of the input.
    fn id(&self) -> String {
        format!("field-{}", self.name)
    }

    /// Ids of the elements that describe it, for screen readers: its error and its hint.
    fn described_by(&self) -> Option<String> {
        let id = self.id();
        let wrong = self.wrong.about(self.name).map(|_| format!("{id}-wrong"));
        let hint = (!self.hint.is_empty()).then(|| format!("{id}-hint"));
        let ids: Vec<String> = wrong.into_iter().chain(hint).collect();
        (!ids.is_empty()).then(|| ids.join(" "))
    }

    fn is_wrong(&self) -> Option<&'static str> {
        self.wrong.about(self.name).map(|_| "true")
    }

    fn around(&self, input: Markup) -> Markup {
        let id = self.id();
        html! {
            div.field {
                label for=(id) { (self.label) }
                (input)
                @if let Some(wrong) = self.wrong.about(self.name) {
                    p.wrong id={ (id) "-wrong" } { (wrong) }
                }
                @if !self.hint.is_empty() { p.hint id={ (id) "-hint" } { (self.hint) } }
            }
        }
    }

    /// A single-line input. `kind` is an HTML input type, such as `text` or `email`.
    pub(crate) fn line(&self, kind: &str) -> Markup {
        self.around(html! {
            input id=(self.id()) name=(self.name) type=(kind) value=(self.value) autocomplete="off"
                spellcheck="false" aria-invalid=[self.is_wrong()] aria-describedby=[self.described_by()];
        })
    }

    /// A multi-line input.
    pub(crate) fn lines(&self, rows: u8) -> Markup {
        self.around(html! {
            // Browsers drop a line break at the beginning of a textarea. This one is ours, so that the value keeps
            // its own.
            textarea id=(self.id()) name=(self.name) rows=(rows) spellcheck="false"
                aria-invalid=[self.is_wrong()] aria-describedby=[self.described_by()] { "\n" (self.value) }
        })
    }

    /// A selection: values and their labels.
    pub(crate) fn choice(&self, choices: &[(&str, &str)]) -> Markup {
        self.around(html! {
            select id=(self.id()) name=(self.name) aria-invalid=[self.is_wrong()]
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
    use posthaste_core::mistakes::ValidationErrors;

    fn problem() -> Problem {
        let mut mistakes = ValidationErrors::default();
        mistakes.note("url", "must be https");
        mistakes.note("headers.Host", "cannot be set");
        mistakes.note("headers.X Y", "is not the name of a header");
        mistakes.note("colour", "is unknown");
        Problem::invalid(mistakes)
    }

    fn place(field: &str) -> Option<&'static str> {
        let known = ["url", "headers"];
        known.into_iter().find(|name| field.starts_with(name))
    }

    #[test]
    fn what_is_wrong_is_told_beside_its_field() {
        let wrong = Wrong::new(&problem(), place);
        assert_eq!(wrong.about("url").as_deref(), Some("must be https"));
        assert_eq!(
            wrong.about("headers").as_deref(),
            Some("Host cannot be set; X Y is not the name of a header")
        );
        assert_eq!(wrong.about("").as_deref(), Some("colour is unknown"));
        assert_eq!(wrong.about("timeout"), None);
    }

    #[test]
    fn a_wrong_field_keeps_what_was_typed_and_says_what_is_wrong() {
        let wrong = Wrong::new(&problem(), place);
        let field = Field {
            name: "url",
            label: "URL",
            hint: "Where events go.",
            value: "\"><script>",
            wrong: &wrong,
        };
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
