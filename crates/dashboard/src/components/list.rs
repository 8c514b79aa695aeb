//! Lists and their pagination.

use maud::{Markup, html};

/// The text that is shown instead of an empty list.
pub(crate) fn empty_list(sentence: &str) -> Markup {
    html! { p.empty { (sentence) } }
}

/// Links to older items and back to the newest. `cursor` is the beginning of this page, and `link` builds the link to
/// the page that begins at a cursor.
pub(crate) fn pager(
    cursor: &str,
    next_cursor: Option<&str>,
    link: impl Fn(&str) -> String,
) -> Markup {
    if cursor.is_empty() && next_cursor.is_none() {
        return html! {};
    }
    html! {
        nav.pager aria-label="Pages" {
            @if !cursor.is_empty() { a href=(link("")) { "Newest" } }
            @if let Some(next) = next_cursor { a rel="next" href=(link(next)) { "Older" } }
        }
    }
}
