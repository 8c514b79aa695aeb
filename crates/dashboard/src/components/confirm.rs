//! The question before an action that cannot be undone, on a page of its own.

use maud::{Markup, html};

use super::field::csrf_field;
use crate::form::Form;
use crate::page_request::PageRequest;

/// Form field that says that the visitor has confirmed.
const CONFIRMED_FIELD: &str = "sure";

/// Returns whether the visitor has confirmed the action.
pub(crate) fn is_confirmed(form: &Form) -> bool {
    form.is_ticked(CONFIRMED_FIELD)
}

/// A question, and the form that confirms it.
pub(crate) struct Confirmation<'a> {
    /// The object that the action is about.
    pub(crate) subject: Markup,
    /// The consequences, and fields of the form besides the hidden ones.
    pub(crate) meaning: Markup,
    /// Hidden fields of the form.
    pub(crate) fields: &'a [(&'a str, &'a str)],
    /// Label of the button.
    pub(crate) answer: &'a str,
    /// Class of the button: `danger`, or `primary` if nothing is lost.
    pub(crate) class: &'a str,
    /// Target of the form.
    pub(crate) action: &'a str,
    /// The page to return to instead.
    pub(crate) cancel: &'a str,
}

impl Confirmation<'_> {
    /// Renders the question.
    pub(crate) fn render(&self, request: &PageRequest) -> Markup {
        html! {
            div.card {
                p { (self.subject) }
                form.narrow method="post" action=(self.action) {
                    (csrf_field(request))
                    input type="hidden" name=(CONFIRMED_FIELD) value="yes";
                    @for (name, value) in self.fields { input type="hidden" name=(name) value=(value); }
                    (self.meaning)
                    div.actions {
                        button class=(self.class) type="submit" { (self.answer) }
                        a href=(self.cancel) { "Cancel" }
                    }
                }
            }
        }
    }
}
