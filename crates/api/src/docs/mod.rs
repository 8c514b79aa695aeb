//! The documentation that the server shows: the API reference, the errors, the guides, and a search.
//!
//! Plain HTML: no scripts, no external resources, readable without styles. Each page is made once, since reading it
//! needs no key.
//!
//! | module | subject |
//! |---|---|
//! | `markup` | writing HTML by hand |
//! | `guides` | pages of `docs/`, rendered from Markdown |
//! | `frame` | the way back, the search field and the sidebar around every page |
//! | `reference` | routes, schemas and errors |
//! | `search` | finds sections, routes and errors |

mod frame;
mod guides;
mod markup;
mod reference;
mod search;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bytes::Bytes;

/// Path of the API reference.
const REFERENCE_PATH: &str = "/docs";
/// Path of the list of errors.
const ERRORS_PATH: &str = "/docs/errors";
/// Path of the search.
const SEARCH_PATH: &str = "/docs/search";

/// Returns the path of a guide.
fn guide_path(name: &str) -> String {
    format!("/docs/{name}")
}

/// Returns the page that describes every route and every error.
pub(super) fn page_bytes() -> Bytes {
    static PAGE: OnceLock<Bytes> = OnceLock::new();
    PAGE.get_or_init(|| reference::page().into()).clone()
}

/// Returns the page that describes every error.
pub(super) fn errors_page_bytes() -> Bytes {
    static PAGE: OnceLock<Bytes> = OnceLock::new();
    PAGE.get_or_init(|| reference::errors_page().into()).clone()
}

/// Returns the page of a guide, if there is one of this name.
pub(super) fn guide_bytes(name: &str) -> Option<Bytes> {
    static PAGES: OnceLock<BTreeMap<&'static str, Bytes>> = OnceLock::new();
    let pages = PAGES.get_or_init(|| {
        let guides = guides::GUIDES.iter();
        let page = |name| guides::page(name).map(|page| (name, Bytes::from(page)));
        guides.filter_map(|guide| page(guide.name)).collect()
    });
    pages.get(name).cloned()
}

/// Returns the page with the results of a search.
pub(super) fn search_bytes(query: &str) -> Bytes {
    search::page(query).into()
}
