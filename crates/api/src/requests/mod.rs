//! One-off requests: deliveries to a URL without a registered endpoint.
//!
//! A one-off request is stored as an event with one delivery, which brings its own request. The delivery belongs to the
//! origin endpoint of the URL, a hidden endpoint that carries the limits and the breaker of one origin (scheme, host and
//! port). It is created here when the first request to the origin is accepted. Requests are signed with the tenant's own
//! secret; [`signing_secret`] shows and rotates it.

mod form;
mod run_event;
mod schema;
mod signing_secret;

use std::sync::Arc;

use axum::body::Body;
use http::Response;
use posthaste_core::address::Destination;
use posthaste_core::cluster::Feature;
use posthaste_core::delivery::{Delivery as DeliveryState, OneOffRequest};
use posthaste_core::id::{DeliveryId, EndpointId};
use posthaste_core::lane::{DisableOverrides, ProtectionOverrides};
use posthaste_core::time::{MAX_SPAN, Span, Timestamp};
use posthaste_store::{
    AcceptedEvent, AcceptedOrStored, CreateResult, Endpoint, StoredDelivery, Tenant,
};

use crate::code::Code;
use crate::deliveries::Policies;
use crate::events::{RequestTrace, accept_one, event_bytes, status_of};
use crate::held_back::DeliveryHold;
use crate::problem::{Problem, ResourceKind};
use crate::quota::too_many_origins;
use crate::resources::Delivery;
use crate::route::Call;
use crate::tenants::{MAX_TRIES, contended};
use crate::{App, body};
use form::RequestForm;

pub(crate) use form::read_http;
pub(super) use schema::GROUP;
pub(crate) use schema::new_request;
pub(crate) use signing_secret::{NoKeys, keys_of};

/// Maximum number of origins that the one-off requests of a tenant go to.
const MAX_ORIGINS: u32 = 1_000;

/// Subscription of origin endpoints: a type that no event has. The store routes no event to an origin endpoint anyway, but
/// a node of an earlier version, during a rolling upgrade, goes by the subscription.
const ORIGIN_PATTERN: &str = "posthaste.origin";

/// `POST …/requests`.
async fn create(call: Call) -> Result<Response<Body>, Problem> {
    let mut traced = RequestTrace::begin(&call);
    let answer = accept(call, &mut traced).await;
    traced.end(answer)
}

async fn accept(mut call: Call, traced: &mut RequestTrace) -> Result<Response<Body>, Problem> {
    let (app, tenant) = (call.app.clone(), call.tenant().clone());
    app.check_feature(Feature::OneOffRequests, "one-off requests")?;
    body::check_json_type(call.headers())?;
    let bytes = call.take_body(event_bytes(&app, &tenant.tenant)).await?;
    let now = app.clock.wall();
    let form = form::read(
        &app,
        &tenant.tenant,
        now,
        body::text(&bytes)?,
        call.headers(),
    )?;
    drop(bytes);
    let endpoint = origin_endpoint(&app, &tenant.tenant, now, &form.destination).await?;
    let sealed_headers = match form.headers.is_empty() {
        true => Vec::new(),
        false => {
            let keys = signing_secret::keys_of(&app, &tenant.tenant).await?;
            keys.seal_headers(&tenant.tenant.id, endpoint, &form.headers)
        }
    };
    let fingerprint = form.fingerprint();
    let RequestForm {
        request_draft,
        destination,
        retry_policy,
        timeout,
        ..
    } = form;
    let request = Arc::new(OneOffRequest {
        method: request_draft.method,
        url: destination.as_str().to_owned(),
        timeout,
        retry_policy,
        sealed_headers,
    });
    let draft = request_draft.draft.clone();
    let (lead, owner) = (app.clock.lead(), tenant.tenant.id.clone());
    let mut event = draft.into_event_with(
        now,
        lead,
        owner,
        Some(endpoint),
        traced.context(),
        fingerprint,
    );
    event.request = Some(request.clone());
    let ordering = event.ordering;
    let reservation = call.take_reservation();
    let accepted = accept_one(&app, &tenant, now, event, reservation, traced).await;
    let accepted = accepted.map_err(|problem| {
        // The origin endpoint was deleted since it was found, because it had no deliveries.
        let is_deleted = problem.code == Code::EndpointDisabled;
        if is_deleted { contended() } else { problem }
    })?;
    let [AcceptedOrStored { event, .. }] = accepted.as_slice() else {
        return Err(Problem::internal(&"one event was accepted as several"));
    };
    let due_at = request_draft.due_at(event.created_at, lead);
    let scheduled = |id, endpoint, give_up_after| {
        DeliveryState::schedule(id, event.id, endpoint, ordering, due_at, give_up_after)
            .with_request(Some(request.clone()))
    };
    let delivery = describe(&app, &tenant.tenant, event, scheduled).await?;
    Ok(body::answer(status_of(&accepted), &delivery))
}

/// Describes the delivery of an accepted request as it was scheduled. A repeated request gets the same answer.
async fn describe(
    app: &App,
    tenant: &Tenant,
    event: &AcceptedEvent,
    scheduled: impl FnOnce(DeliveryId, EndpointId, Span) -> DeliveryState,
) -> Result<Delivery, Problem> {
    let accepted = event.deliveries.first();
    let accepted = accepted.ok_or_else(|| Problem::internal(&"a request has no delivery"))?;
    let mut policies = Policies::new(app, tenant);
    policies.look_up(accepted.endpoint).await?;
    let give_up_after = policies.of_endpoint(accepted.endpoint).give_up_after;
    let stored = StoredDelivery {
        delivery: scheduled(accepted.id, accepted.endpoint, give_up_after),
        tenant: tenant.id.clone(),
        event_type: event.event_type.clone(),
        created_at: event.created_at,
        is_held_by_endpoint: false,
        last_attempt: None,
    };
    let policy = policies.of(&stored.delivery);
    let accepted_at = event.created_at;
    let hold = DeliveryHold::none(accepted_at);
    let delivery = Delivery::new(&stored, &[], false, &policy, hold, accepted_at);
    Ok(delivery)
}

/// Returns the origin endpoint of a destination. Creates it if it does not exist, with the tenant's keys, which sign the
/// requests to it.
async fn origin_endpoint(
    app: &App,
    tenant: &Tenant,
    now: Timestamp,
    destination: &Destination,
) -> Result<EndpointId, NoKeys> {
    let url = origin_of(destination);
    for _ in 0..MAX_TRIES {
        let found = app.store.origin_endpoint(tenant.id.clone(), url.clone());
        if let Some(endpoint) = found.await? {
            return Ok(endpoint);
        }
        signing_secret::keys_of(app, tenant).await?;
        let endpoint = new_origin(app.new_id(), tenant, now, url.clone());
        let id = endpoint.id;
        match app
            .store
            .create_endpoint(now, endpoint, MAX_ORIGINS)
            .await?
        {
            CreateResult::Created => return Ok(id),
            // Another request to the same origin was faster.
            CreateResult::Taken => {}
            CreateResult::NoSuchTenant => return Err(Problem::missing(ResourceKind::Tenant).into()),
            CreateResult::TooMany => return Err(too_many_origins(MAX_ORIGINS).into()),
        }
    }
    Err(contended().into())
}

/// Returns scheme, host and port of a destination, as a URL without a path.
fn origin_of(destination: &Destination) -> String {
    let (scheme, authority) = (destination.scheme(), destination.authority());
    format!("{}://{authority}", scheme.as_str())
}

/// Creates the origin endpoint with this URL. It inherits the limits and the thresholds of the tenant's endpoints, except
/// that it is never disabled: no one could enable it again.
fn new_origin(id: EndpointId, tenant: &Tenant, now: Timestamp, url: String) -> Endpoint {
    Endpoint {
        event_types: vec![ORIGIN_PATTERN.parse().expect("a valid pattern")],
        protection: ProtectionOverrides {
            disable: DisableOverrides {
                after: Some(MAX_SPAN),
                on_gone: Some(false),
                ..DisableOverrides::default()
            },
            ..ProtectionOverrides::default()
        },
        ordered: true,
        is_origin: true,
        ..Endpoint::new(id, tenant.id.clone(), url, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::address::EgressRules;
    use posthaste_core::subscription::{EventType, wants};

    #[test]
    fn an_earlier_version_routes_no_event_to_an_origin_endpoint() {
        let pattern = ORIGIN_PATTERN.parse().expect("a valid pattern");
        for event_type in ["a", "request", "posthaste.test"] {
            let event_type: EventType = event_type.parse().expect("a type");
            assert!(!wants(std::slice::from_ref(&pattern), &event_type));
        }
    }

    #[test]
    fn the_origin_is_scheme_host_and_port() {
        let rules = EgressRules::default();
        for (url, origin) in [
            ("https://API.example/a/b?c=d", "https://api.example"),
            ("https://api.example:443/", "https://api.example"),
            ("https://api.example:8443/x", "https://api.example:8443"),
        ] {
            let destination = Destination::parse(url, &rules).expect(url);
            assert_eq!(origin_of(&destination), origin, "{url}");
        }
    }
}
