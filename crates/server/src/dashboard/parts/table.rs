//! Lists.

use maud::{Markup, html};
use serde::Deserialize;

/// A page of a list, as the API gives it.
#[derive(Deserialize)]
pub(in crate::dashboard) struct Listed<T> {
    /// What is on it.
    pub(in crate::dashboard) data: Vec<T>,
    /// Where the next one begins.
    pub(in crate::dashboard) next_cursor: Option<String>,
}

/// What stands where a list would, if there is nothing in it.
pub(in crate::dashboard) fn empty(sentence: &str) -> Markup {
    html! { p.empty { (sentence) } }
}

/// The way to older items, and back to the newest.
pub(in crate::dashboard) fn pager(newest: Option<&str>, older: Option<&str>) -> Markup {
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
