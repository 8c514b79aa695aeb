//! Finds what a visitor types: a tenant, an endpoint by its URL, an event type, an id, or the beginning of an id.
//!
//! A complete id leads to its page at once, and so does a search with one result. Every search is bounded: it looks at
//! the newest tenants and endpoints, and says so.

use std::ops::ControlFlow;

use maud::{Markup, html};
use posthaste_api::code::Code;
use posthaste_api::problem::Problem;
use posthaste_api::resources::{Endpoint, ListPage, Tenant, TenantOfId};
use serde_json::Value;

use crate::components::{empty_list, url_text};
use crate::page::{Page, PageResult, Tab};
use crate::page_request::PageRequest;
use crate::routes::{PageHandler, Route, page_route};
use crate::urls::{query_string, url_encoded};

/// Maximum number of tenants whose ids and names are compared.
const MAX_TENANTS_COMPARED: usize = 1_000;
/// Maximum number of tenants in which endpoints, types and ids are looked up.
const MAX_TENANTS_SEARCHED: usize = 20;
/// Maximum number of endpoints of a tenant that are compared.
const MAX_ENDPOINTS_COMPARED: usize = 1_000;
/// Number of items that are read at once: the most that the API returns.
const PER_READ: usize = 250;
/// Maximum number of results of each kind.
const MAX_RESULTS: usize = 20;
/// Length of the part of an id after its prefix.
const ID_CHARS: usize = 26;
/// Minimum length of the beginning of an id after its prefix.
const MIN_ID_CHARS: usize = 4;

pub(super) const PAGES: &[Route<PageHandler>] = &[
    page_route!(Server, "/find", find_in_server),
    page_route!(Tenant, "/find", find_in_tenant),
];

/// The text that the visitor typed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Query {
    /// A complete id.
    Id(String),
    /// The beginning of the id of a delivery or an event.
    Beginning(String),
    /// Any other text.
    Text(String),
}

impl Query {
    fn read(text: &str) -> Query {
        let id = text.to_ascii_lowercase();
        let (prefix, rest) = id.split_once('_').unwrap_or(("", ""));
        let is_id = !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric());
        match prefix {
            "dlv" | "evt" | "ep" | "rpl" if is_id && rest.len() == ID_CHARS => Query::Id(id),
            "dlv" | "evt" if is_id && rest.len() >= MIN_ID_CHARS => Query::Beginning(id),
            _ => Query::Text(text.to_owned()),
        }
    }
}

/// A result: link, label and a note.
struct Found {
    link: String,
    label: String,
    note: String,
}

/// The results of a search.
#[derive(Default)]
struct Results {
    tenants: Vec<Found>,
    endpoints: Vec<Found>,
    /// Event types and beginnings of ids.
    others: Vec<Found>,
    /// Limits that the search reached.
    hints: Vec<String>,
}

impl Results {
    fn all(&self) -> impl Iterator<Item = &Found> {
        let found = self.tenants.iter().chain(&self.endpoints);
        found.chain(&self.others)
    }

    /// Redirects to the only result, or shows all.
    fn answer(self, text: &str) -> PageResult {
        let mut all = self.all();
        if let (Some(only), None) = (all.next(), all.next()) {
            return PageResult::Redirect(only.link.clone());
        }
        let is_empty = self.all().next().is_none();
        let group = |title: &str, found: &[Found]| {
            html! {
                @if !found.is_empty() {
                    h2 { (title) }
                    ul.found { @for one in found {
                        li { a href=(one.link) { (url_text(&one.label)) } @if !one.note.is_empty() { " " span.hint { (one.note) } } }
                    } }
                }
            }
        };
        let body: Markup = html! {
            @if is_empty { (empty_list("No results.")) }
            (group("Tenants", &self.tenants))
            (group("Endpoints", &self.endpoints))
            (group("Events and deliveries", &self.others))
            @for hint in &self.hints { p.hint { (hint) } }
            p.hint {
                "Search by tenant id or name, part of an endpoint URL, event type, or id. For deliveries and events, the first "
                (MIN_ID_CHARS) " characters of the id after its prefix are enough."
            }
        };
        let page = Page::new(Tab::None, format!("Results for “{text}”"));
        PageResult::Page(page.static_section("found", body))
    }
}

async fn find_in_server(request: PageRequest) -> Result<PageResult, Problem> {
    let text = typed(&request);
    let query = Query::read(text);
    let mut results = Results::default();
    if let Query::Id(id) = &query {
        if id.starts_with("rpl_") {
            let hint = "To find a replay, open its tenant and then Replays.";
            results.hints.push(hint.to_owned());
            return Ok(results.answer(text));
        }
        return match request
            .get::<TenantOfId>(&format!("/v1/find?id={}", url_encoded(id)))
            .await
        {
            Ok(found) => Ok(PageResult::Redirect(
                request.link_for_tenant(&found.tenant_id, &path_of(id)),
            )),
            Err(problem) if problem.code == Code::NotFound => Ok(results.answer(text)),
            Err(problem) => Err(problem),
        };
    }
    let newest = find_tenants(&request, &query, &mut results).await?;
    for tenant in &newest {
        search_tenant(&request, tenant, &query, &mut results).await?;
    }
    Ok(results.answer(text))
}

async fn find_in_tenant(request: PageRequest) -> Result<PageResult, Problem> {
    let text = typed(&request);
    let query = Query::read(text);
    if let Query::Id(id) = &query {
        return Ok(PageResult::Redirect(request.tenant_link(&path_of(id))));
    }
    let mut results = Results::default();
    let tenant = request.tenant().to_string();
    search_tenant(&request, &tenant, &query, &mut results).await?;
    Ok(results.answer(text))
}

/// Returns what was typed. Links of earlier versions have it in `id`.
fn typed(request: &PageRequest) -> &str {
    match request.query("q") {
        "" => request.query("id"),
        text => text,
    }
}

/// Finds tenants by id and name. Returns the newest tenants, to look into.
async fn find_tenants(
    request: &PageRequest,
    query: &Query,
    results: &mut Results,
) -> Result<Vec<String>, Problem> {
    let mut newest = Vec::new();
    let mut compared = 0;
    let is_complete = read_all(
        "/v1/tenants",
        MAX_TENANTS_COMPARED,
        request,
        |tenant: Tenant| {
            compared += 1;
            if let Query::Text(text) = query
                && (contains(&tenant.id, text) || contains(&tenant.name, text))
                && results.tenants.len() < MAX_RESULTS
            {
                results.tenants.push(Found {
                    link: request.link_for_tenant(&tenant.id, ""),
                    label: tenant.id.clone(),
                    note: tenant.name.clone(),
                });
            }
            if newest.len() < MAX_TENANTS_SEARCHED {
                newest.push(tenant.id);
            }
            // Names of tenants are compared with text only.
            match query {
                Query::Text(_) => ControlFlow::Continue(()),
                Query::Id(_) | Query::Beginning(_) if newest.len() < MAX_TENANTS_SEARCHED => {
                    ControlFlow::Continue(())
                }
                Query::Id(_) | Query::Beginning(_) => ControlFlow::Break(()),
            }
        },
    )
    .await?;
    if !is_complete || compared > newest.len() {
        results.hints.push(format!(
            "Only the {} newest tenants were searched for endpoints, event types and ids. To search another tenant, open it first.",
            newest.len()
        ));
    }
    Ok(newest)
}

/// Looks for endpoints, an event type or the beginning of an id in a tenant.
async fn search_tenant(
    request: &PageRequest,
    tenant: &str,
    query: &Query,
    results: &mut Results,
) -> Result<(), Problem> {
    let note = match request.tenant {
        None => format!("of {tenant}"),
        Some(_) => String::new(),
    };
    let base = format!("/v1/tenants/{tenant}");
    let link = |path: &str| request.link_for_tenant(tenant, path);
    let text = match query {
        Query::Id(_) => return Ok(()),
        Query::Beginning(id) => {
            let fields = query_string([("id", id.as_str())]);
            let path = format!("{base}/deliveries{fields}&limit=1");
            if has_any(request, &path).await? {
                results.others.push(Found {
                    link: link(&format!("/deliveries{fields}")),
                    label: format!("Deliveries whose id, or whose event's id, begins with {id}"),
                    note,
                });
            }
            return Ok(());
        }
        Query::Text(text) => text,
    };
    let path = format!("{base}/endpoints");
    read_all(
        &path,
        MAX_ENDPOINTS_COMPARED,
        request,
        |endpoint: Endpoint| {
            let is_meant = contains(&endpoint.url, text)
                || contains(&endpoint.description, text)
                || endpoint.id == *text;
            if is_meant && results.endpoints.len() < MAX_RESULTS {
                results.endpoints.push(Found {
                    link: link(&format!("/endpoints/{}", endpoint.id)),
                    label: endpoint.url,
                    note: note.clone(),
                });
            }
            ControlFlow::Continue(())
        },
    )
    .await?;
    let fields = query_string([("type", text.as_str())]);
    if has_any(request, &format!("{base}/events{fields}&limit=1")).await? {
        // The portal has no list of events.
        let path = match request.is_portal() {
            true => format!(
                "/deliveries{}",
                query_string([("event_type", text.as_str())])
            ),
            false => format!("/events{fields}"),
        };
        results.others.push(Found {
            link: link(&path),
            label: format!("Events of type {text}"),
            note,
        });
    }
    Ok(())
}

/// Reads a list, up to a number of items, until `each` stops. Returns whether all of it was read.
async fn read_all<T: serde::de::DeserializeOwned>(
    path: &str,
    most: usize,
    request: &PageRequest,
    mut each: impl FnMut(T) -> ControlFlow<()>,
) -> Result<bool, Problem> {
    let mut cursor = String::new();
    for _ in 0..most / PER_READ {
        let limit = PER_READ.to_string();
        let query = query_string([("limit", limit.as_str()), ("cursor", &cursor)]);
        let listed: ListPage<T> = request.get(&format!("{path}{query}")).await?;
        for item in listed.data {
            if each(item).is_break() {
                return Ok(false);
            }
        }
        match listed.next_cursor {
            None => return Ok(true),
            Some(next) => cursor = next,
        }
    }
    Ok(false)
}

/// Returns whether a list has an item. A query that the API refuses, such as an invalid event type, has none.
async fn has_any(request: &PageRequest, path: &str) -> Result<bool, Problem> {
    match request.get::<ListPage<Value>>(path).await {
        Ok(listed) => Ok(!listed.data.is_empty()),
        Err(problem) if problem.errors.is_some() => Ok(false),
        Err(problem) => Err(problem),
    }
}

/// Returns whether a text contains another one, without regard to case.
fn contains(text: &str, part: &str) -> bool {
    !part.is_empty() && text.to_lowercase().contains(&part.to_lowercase())
}

/// Returns the path of an id's page.
fn path_of(id: &str) -> String {
    let section = match id.split_once('_') {
        Some(("evt", _)) => "events",
        Some(("ep", _)) => "endpoints",
        Some(("rpl", _)) => "replays",
        Some(_) | None => "deliveries",
    };
    format!("/{section}/{}", url_encoded(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_an_id_the_beginning_of_one_or_text() {
        let id = "dlv_01jd2kq8z3w5x7y9a1b2c3d4e5";
        assert_eq!(
            Query::read(&id.to_ascii_uppercase()),
            Query::Id(id.to_owned())
        );
        let beginning = Query::Beginning("evt_01jd".to_owned());
        assert_eq!(Query::read("evt_01jd"), beginning);
        for text in [
            "acme",
            "dlv_01",
            "ep_01jd2k",
            "invoice_paid.x",
            "dlv_a/../b",
            "",
        ] {
            assert_eq!(Query::read(text), Query::Text(text.to_owned()), "{text}");
        }
    }

    #[test]
    fn path_follows_from_the_prefix_of_the_id() {
        let id = "01jd2kq8z3w5x7y9a1b2c3d4e5";
        assert_eq!(
            path_of(&format!("dlv_{id}")),
            format!("/deliveries/dlv_{id}")
        );
        assert_eq!(path_of(&format!("rpl_{id}")), format!("/replays/rpl_{id}"));
    }

    #[test]
    fn text_is_found_without_regard_to_case() {
        assert!(contains("https://Hooks.example.com", "hooks.EXAMPLE"));
        assert!(!contains("https://hooks.example.com", ""));
    }
}
