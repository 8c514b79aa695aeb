//! Buttons for actions and for copying text.

use maud::{Markup, html};

use crate::layout::csrf;
use crate::visit::PageRequest;

/// A button that performs an action: a form of its own that is sent to `link`. `class` is `primary`, `danger` or
/// empty.
pub(crate) fn act(visit: &PageRequest, link: &str, class: &str, word: &str) -> Markup {
    html! {
        form.act method="post" action=(link) {
            (csrf(visit))
            button class=[(!class.is_empty()).then_some(class)] type="submit" { (word) }
        }
    }
}

/// A text with a copy button. `what` names the text for screen readers.
pub(crate) fn copied(text: &str, what: &str) -> Markup {
    html! {
        span.copied {
            code { (text) }
            (copy(text, what))
        }
    }
}

/// The copy button alone, for a text that is shown elsewhere.
pub(crate) fn copy(text: &str, what: &str) -> Markup {
    html! {
        // Hidden until the script shows it, because copying needs the script.
        button.copy type="button" data-copy=(text) hidden { "Copy" span.unseen { " " (what) } }
    }
}
