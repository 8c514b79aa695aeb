//! What is done with one click.

use maud::{Markup, html};

use crate::dashboard::layout::csrf;
use crate::dashboard::visit::Visit;

/// A button that does something: a form of its own, sent to `link`. `class` may be `primary`, `danger`
/// or nothing.
pub(in crate::dashboard) fn act(visit: &Visit, link: &str, class: &str, word: &str) -> Markup {
    html! {
        form.act method="post" action=(link) {
            (csrf(visit))
            button class=[(!class.is_empty()).then_some(class)] type="submit" { (word) }
        }
    }
}

/// A text that can be copied with one click: `what` names it for those who cannot see it.
pub(in crate::dashboard) fn copied(text: &str, what: &str) -> Markup {
    html! {
        span.copied {
            code { (text) }
            (copy(text, what))
        }
    }
}

/// The button alone, for a text that stands elsewhere.
pub(in crate::dashboard) fn copy(text: &str, what: &str) -> Markup {
    html! {
        // Shown by the script, which it needs.
        button.copy type="button" data-copy=(text) hidden { "Copy" span.unseen { " " (what) } }
    }
}
