//! The path of an endpoint's page, and pages below it.

use crate::page::{Page, Tab};
use crate::page_request::PageRequest;

/// Returns the path of an endpoint, which is the same for pages and for the API.
pub(super) fn path(request: &PageRequest) -> String {
    format!("/endpoints/{}", request.path_param("endpoint"))
}

/// Creates a page below the endpoint's page.
pub(super) fn subpage(request: &PageRequest, title: &str, url: &str) -> Page {
    Page::new(Tab::Endpoints, title)
        .breadcrumb("Endpoints", request.tenant_link("/endpoints"))
        .breadcrumb(url, request.tenant_link(&path(request)))
}
