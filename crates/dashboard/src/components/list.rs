//! Lists and their pagination.

use maud::{Markup, html};
use serde::Deserialize;

/// One page of an API list.
#[derive(Deserialize)]
pub(crate) struct Listed<T> {
    /// Items of this page.
    pub(crate) data: Vec<T>,
    /// Cursor of the next page, if there is one.
    pub(crate) next_cursor: Option<String>,
}

/// The text that is shown instead of an empty list.
pub(crate) fn empty_list(sentence: &str) -> Markup {
    html! { p.empty { (sentence) } }
}

/// Links to older items and back to the newest.
pub(crate) fn pager(newest: Option<&str>, older: Option<&str>) -> Markup {
    if newest.is_none() && older.is_none() {
        return html! {};
    }
    html! {
        nav.pager aria-label="Pages" {
            @if let Some(link) = newest { a href=(link) { "Newest" } }
            @if let Some(link) = older { a rel="next" href=(link) { "Older" } }
        }
    }
}
