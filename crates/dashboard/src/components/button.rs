//! Buttons for actions and for copying text.

use maud::{Markup, html};

use super::field::csrf_field;
use crate::page_request::PageRequest;

/// A button that performs an action: a form of its own that is sent to `link`. `class` is `primary`, `danger` or
/// empty.
pub(crate) fn action_button(request: &PageRequest, link: &str, class: &str, label: &str) -> Markup {
    html! {
        form.act method="post" action=(link) {
            (csrf_field(request))
            button class=[(!class.is_empty()).then_some(class)] type="submit" { (label) }
        }
    }
}

/// A text with a copy button. `what` names the text for screen readers.
pub(crate) fn copyable(text: &str, what: &str) -> Markup {
    html! {
        span.copied {
            code { (text) }
            (copy_button(text, what))
        }
    }
}

/// The copy button alone, for a text that is shown elsewhere.
pub(crate) fn copy_button(text: &str, what: &str) -> Markup {
    html! {
        // Hidden until the script shows it, because copying needs the script.
        button.copy type="button" data-copy=(text) hidden { "Copy" span.unseen { " " (what) } }
    }
}
