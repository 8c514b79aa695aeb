//! Looks up the endpoints that a list of deliveries or replays refers to, each once: [`EndpointLookup`].

use std::collections::BTreeMap;

use maud::{Markup, html};
use posthaste_api::code::Code;
use posthaste_api::problem::Problem;
use posthaste_api::resources::{DeliverySummary, Endpoint, EndpointStatus, ListPage};

use crate::components::url_text;
use crate::page_request::PageRequest;

/// Maximum number of endpoints in a selection. A tenant with more endpoints enters the id instead.
pub(super) const MAX_CHOICES: usize = 100;

/// The fields of an endpoint that lists show.
#[derive(Clone)]
pub(super) struct EndpointSummary {
    /// URL of the endpoint; `None` if it is deleted.
    pub(super) url: Option<String>,
    /// Endpoint status.
    pub(super) status: EndpointStatus,
    /// Additional headers of its requests.
    pub(super) headers: BTreeMap<String, String>,
}

/// An endpoint that is deleted or never existed.
static DELETED_ENDPOINT: EndpointSummary = EndpointSummary {
    url: None,
    status: EndpointStatus::Deleted,
    headers: BTreeMap::new(),
};

/// Endpoints by id.
pub(super) struct EndpointLookup {
    by_id: BTreeMap<String, EndpointSummary>,
    /// True if the tenant has more endpoints than [`MAX_CHOICES`].
    pub(super) has_more: bool,
}

impl EndpointLookup {
    /// Creates an empty lookup table.
    pub(super) fn empty() -> EndpointLookup {
        EndpointLookup {
            by_id: BTreeMap::new(),
            has_more: false,
        }
    }

    /// Loads the tenant's newest endpoints, for a selection.
    pub(super) async fn newest(request: &PageRequest) -> Result<EndpointLookup, Problem> {
        let path = format!("/endpoints?limit={MAX_CHOICES}");
        let listed: ListPage<Endpoint> = request.tenant_get(&path).await?;
        let mut lookup = EndpointLookup::empty();
        lookup.has_more = listed.next_cursor.is_some();
        for endpoint in listed.data {
            lookup.insert(endpoint);
        }
        Ok(lookup)
    }

    fn insert(&mut self, endpoint: Endpoint) {
        let summary = EndpointSummary {
            url: Some(endpoint.url),
            status: endpoint.status,
            headers: endpoint.headers.0.into_iter().collect(),
        };
        self.by_id.insert(endpoint.id, summary);
    }

    /// Looks up the ids that are not known yet. A deleted endpoint is remembered as deleted.
    pub(super) async fn look_up(
        &mut self,
        request: &PageRequest,
        ids: &[&str],
    ) -> Result<(), Problem> {
        for id in ids {
            if self.by_id.contains_key(*id) {
                continue;
            }
            match request
                .tenant_get::<Endpoint>(&format!("/endpoints/{id}"))
                .await
            {
                Ok(endpoint) => self.insert(endpoint),
                Err(problem) if problem.code == Code::NotFound => {
                    self.by_id
                        .insert((*id).to_owned(), DELETED_ENDPOINT.clone());
                }
                Err(problem) => return Err(problem),
            }
        }
        Ok(())
    }

    /// Looks up the endpoints of these deliveries that are not known yet. A one-off request has none: it is remembered as
    /// an enabled endpoint without a URL, because the delivery itself has it.
    pub(super) async fn look_up_all<'d>(
        &mut self,
        request: &PageRequest,
        deliveries: impl IntoIterator<Item = &'d DeliverySummary>,
    ) -> Result<(), Problem> {
        for delivery in deliveries {
            if delivery.request.is_some() {
                let origin = EndpointSummary {
                    url: None,
                    status: EndpointStatus::Enabled,
                    headers: BTreeMap::new(),
                };
                self.by_id.insert(delivery.endpoint_id.clone(), origin);
            } else {
                self.look_up(request, &[&delivery.endpoint_id]).await?;
            }
        }
        Ok(())
    }

    /// Returns an endpoint that was looked up.
    pub(super) fn get(&self, id: &str) -> &EndpointSummary {
        self.by_id.get(id).unwrap_or(&DELETED_ENDPOINT)
    }

    /// Returns the endpoints for a selection: ids and labels.
    pub(super) fn choices(&self) -> impl Iterator<Item = (&str, &str)> {
        let endpoints = self.by_id.iter();
        endpoints.filter_map(|(id, endpoint)| Some((id.as_str(), endpoint.url.as_deref()?)))
    }
}

/// Renders an endpoint as a link to its page.
pub(super) fn link(request: &PageRequest, id: &str, endpoint: &EndpointSummary) -> Markup {
    match &endpoint.url {
        Some(url) => {
            html! { a href=(request.tenant_link(&format!("/endpoints/{id}"))) { (url_text(url)) } }
        }
        None => html! { span { "deleted " code { (id) } } },
    }
}

/// Renders the destination of a delivery: a link to its endpoint, or method and URL of a one-off request.
pub(super) fn destination(
    request: &PageRequest,
    delivery: &DeliverySummary,
    endpoint: &EndpointSummary,
) -> Markup {
    match &delivery.request {
        Some(target) => html! { span { code { (target.method) } " " (url_text(&target.url)) } },
        None => link(request, &delivery.endpoint_id, endpoint),
    }
}
