//! Events: accepts them and shows them.
//!
//! Accepting events is the busiest path of the server. The body is parsed in one pass, the response is
//! formatted by hand, and the only wait is for the store.

mod accepted;
mod advance;
mod batch;
mod commit_wait;
mod due;
mod event_parser;
mod fields;
mod request;
mod row;
mod schema;
mod target;
mod trace;

use posthaste_core::subscription::EventType;
use std::time::Instant;

use axum::body::Body;
use bytes::Bytes;
use http::{Response, StatusCode};
use posthaste_core::id::{EndpointId, EventId};
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::Timestamp;
use posthaste_core::validation::ValidationErrors;
use posthaste_store::{
    AcceptResult, AcceptedOrStored, Content, DeliveryFilter, EndpointRow, EventFilter, LimitName,
    LimitSource, NewEvent, Page, PageRequest, Quotas, StoreError, Tenant,
};
use posthaste_telemetry::metrics::request_counters::TenantClass;

use super::App;
use super::audit_writer;
use super::auth::CachedTenant;
use super::body;
use super::body_budget::BodyReservation;
use super::code::Code;
use super::paging;
use super::problem::{Problem, ResourceKind};
use super::resources::{
    Event, EventDelivery, EventSummary, MAX_DELIVERIES_OF_BATCH, MAX_DELIVERIES_SHOWN, status_now,
};
use super::route::Call;
use accepted::write_accepted;
use commit_wait::CommitWait;

pub use advance::AdvanceOutcome;
pub use batch::MAX_BATCH;
pub use due::MAX_AHEAD;
pub(crate) use event_parser::{EventParser, ParsedEvent, ordering};
pub use event_parser::{MAX_PAYLOAD_DEPTH, MAX_TEXT_CHARS};
pub(crate) use request::{REQUEST_TYPE, RequestDraft};
pub use row::{EventRow, RowsResult};
pub(super) use schema::{
    ACCEPT_ERRORS, EVENT_TYPE, GROUP, SINCE, UNTIL, body_base64, content_type, contradictions,
    delay, new_event, short_text,
};
pub(crate) use trace::RequestTrace;

/// Maximum size of an event without its payload.
const ENVELOPE_BYTES: u64 = 64 * 1024;
/// Typical size of the response for one event.
const TYPICAL_ANSWER_BYTES: usize = 256;
/// Type of a test event.
const TEST_TYPE: &str = "posthaste.test";
/// Default payload of a test event.
const TEST_PAYLOAD: &[u8] = br#"{"message":"This is a test from posthaste."}"#;

/// `POST …/events`.
async fn accept(call: Call) -> Result<Response<Body>, Problem> {
    let mut traced = RequestTrace::begin(&call);
    let answer = accept_event(call, &mut traced).await;
    traced.end(answer)
}

async fn accept_event(
    mut call: Call,
    traced: &mut RequestTrace,
) -> Result<Response<Body>, Problem> {
    let (app, tenant) = (call.app.clone(), call.tenant().clone());
    body::check_json_type(call.headers())?;
    let limit = event_bytes(&app, &tenant.tenant);
    let bytes = call.take_body(limit).await?;
    let now = app.clock.wall();
    let mut reader = EventParser::new(now, app.payload_bytes(&tenant.tenant));
    let mut draft = reader.event(body::text(&bytes)?, "")?;
    reader.header(call.headers(), &mut draft);
    let draft = reader.finish(draft)?;
    drop(bytes);
    let (lead, owner) = (app.clock.lead(), tenant.tenant.id.clone());
    let event = draft.into_event(now, lead, owner, None, traced.context());
    let reservation = call.take_reservation();
    let accepted = accept_one(&app, &tenant, now, event, reservation, traced).await?;
    Ok(answer(&accepted))
}

/// `POST …/events/batch`.
async fn accept_batch(call: Call) -> Result<Response<Body>, Problem> {
    let mut traced = RequestTrace::begin(&call);
    let answer = accept_events(call, &mut traced).await;
    traced.end(answer)
}

async fn accept_events(
    mut call: Call,
    traced: &mut RequestTrace,
) -> Result<Response<Body>, Problem> {
    let (app, tenant) = (call.app.clone(), call.tenant().clone());
    body::check_json_type(call.headers())?;
    let bytes = call.take_body(app.settings.batch_bytes).await?;
    let now = app.clock.wall();
    let mut reader = EventParser::new(now, app.payload_bytes(&tenant.tenant));
    reader.no_header(call.headers());
    let drafts = batch::read(body::text(&bytes)?, &mut reader)?;
    let drafts = reader.finish(drafts)?;
    // The events have their own copies of the payloads. The reservation now stands for these.
    drop(bytes);
    let (lead, owner) = (app.clock.lead(), &tenant.tenant.id);
    let events: Vec<NewEvent> = drafts
        .into_iter()
        .map(|draft| draft.into_event(now, lead, owner.clone(), None, traced.context()))
        .collect();
    let accepted = store(&app, &tenant, now, events, call.take_reservation()).await?;
    traced.accepted(&accepted);
    let mut out = Vec::with_capacity(accepted.len() * TYPICAL_ANSWER_BYTES);
    let mut room = MAX_DELIVERIES_OF_BATCH;
    out.extend_from_slice(br#"{"data":["#);
    for (index, ingested) in accepted.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_accepted(&ingested.event, &mut room, &mut out);
    }
    out.extend_from_slice(b"]}");
    Ok(body::answer_bytes(status_of(&accepted), out.into()))
}

/// `POST …/endpoints/{endpoint}/test`.
async fn test(call: Call) -> Result<Response<Body>, Problem> {
    let mut traced = RequestTrace::begin(&call);
    let answer = accept_test(call, &mut traced).await;
    traced.end(answer)
}

async fn accept_test(mut call: Call, traced: &mut RequestTrace) -> Result<Response<Body>, Problem> {
    let (app, tenant) = (call.app.clone(), call.tenant().clone());
    let endpoint: EndpointId = call.id("endpoint", ResourceKind::Endpoint)?;
    let limit = event_bytes(&app, &tenant.tenant);
    let bytes = call.take_body(limit).await?;
    let now = app.clock.wall();
    let usual = Content::new(
        TEST_TYPE.parse().expect("the type of test events is valid"),
        Bytes::from_static(TEST_PAYLOAD),
    );
    let draft = if bytes.is_empty() {
        ParsedEvent::plain(usual)
    } else {
        body::check_json_type(call.headers())?;
        let mut reader = EventParser::new(now, app.payload_bytes(&tenant.tenant));
        let draft = reader.test(body::text(&bytes)?, usual)?;
        reader.finish(draft)?
    };
    let row = app.store.endpoint(endpoint).await?;
    let is_theirs =
        |row: &EndpointRow| row.endpoint.tenant == tenant.tenant.id && !row.endpoint.is_origin;
    let row = row.filter(is_theirs);
    match row.map(|row| row.status) {
        None | Some(EndpointStatus::Deleted) => {
            return Err(Problem::missing(ResourceKind::Endpoint));
        }
        Some(EndpointStatus::Disabled) => return Err(endpoint_disabled()),
        Some(EndpointStatus::Enabled | EndpointStatus::Paused) => {}
    }
    let (lead, owner) = (app.clock.lead(), tenant.tenant.id.clone());
    let event = draft.into_event(now, lead, owner, Some(endpoint), traced.context());
    let reservation = call.take_reservation();
    let accepted = accept_one(&app, &tenant, now, event, reservation, traced).await?;
    let answer = answer(&accepted);
    Ok(match accepted.first() {
        Some(ingested) => audit_writer::with_created_id(ingested.event.id, answer),
        None => answer,
    })
}

/// Returns the maximum body size of a request with one event. It is the limit of all requests, or more if the
/// tenant or its plan allows larger payloads, including their base64 overhead.
pub(crate) fn event_bytes(app: &App, tenant: &Tenant) -> u64 {
    let largest = app.payload_bytes(tenant).div_ceil(3).saturating_mul(4);
    match app.settings.plans.source(tenant, LimitName::PayloadBytes) {
        LimitSource::Server => app.settings.body_bytes,
        LimitSource::Tenant | LimitSource::Plan => largest
            .saturating_add(ENVELOPE_BYTES)
            .max(app.settings.body_bytes),
    }
}

/// Stores one event, and records it in the trace of its request.
pub(crate) async fn accept_one(
    app: &App,
    tenant: &CachedTenant,
    now: Timestamp,
    event: NewEvent,
    reservation: Option<BodyReservation>,
    traced: &mut RequestTrace,
) -> Result<Vec<AcceptedOrStored>, Problem> {
    let accepted = store(app, tenant, now, vec![event], reservation).await?;
    traced.accepted(&accepted);
    Ok(accepted)
}

/// Creates the response for one event.
fn answer(accepted: &[AcceptedOrStored]) -> Response<Body> {
    let mut out = Vec::with_capacity(TYPICAL_ANSWER_BYTES);
    let mut room = MAX_DELIVERIES_OF_BATCH;
    for ingested in accepted {
        write_accepted(&ingested.event, &mut room, &mut out);
    }
    body::answer_bytes(status_of(accepted), out.into())
}

/// Returns 202 if an event was accepted, 200 if all of them existed already.
pub(crate) fn status_of(accepted: &[AcceptedOrStored]) -> StatusCode {
    if accepted.iter().any(|ingested| ingested.is_new) {
        StatusCode::ACCEPTED
    } else {
        StatusCode::OK
    }
}

async fn store(
    app: &App,
    tenant: &CachedTenant,
    now: Timestamp,
    events: Vec<NewEvent>,
    reservation: Option<BodyReservation>,
) -> Result<Vec<AcceptedOrStored>, Problem> {
    let count = events.len();
    let keyless = events.iter().filter(|event| event.idempotency.is_none());
    let surely_new = keyless.count() as u64;
    let quotas = app.quotas(tenant, now, surely_new)?;
    match commit(app, tenant, now, events, quotas, reservation).await? {
        AcceptResult::Done(accepted) => Ok(accepted),
        AcceptResult::Conflict(positions) => Err(conflict(count, &positions)),
        AcceptResult::NoSuchTenant => Err(Problem::missing(ResourceKind::Tenant)),
        AcceptResult::NoSuchEndpoint => Err(endpoint_disabled()),
        AcceptResult::TooManyDeliveries { deliveries, limit } => {
            Err(too_many_deliveries(count, deliveries, limit))
        }
        AcceptResult::OverLimit { limit, wait } => {
            Err(app.over_limit(tenant, now, count as u64, (limit, wait)))
        }
    }
}

/// Passes events to the store, waits for their commit, and counts those that are new.
async fn commit(
    app: &App,
    tenant: &CachedTenant,
    now: Timestamp,
    events: Vec<NewEvent>,
    quotas: Quotas,
    reservation: Option<BodyReservation>,
) -> Result<AcceptResult, StoreError> {
    let asked_at = Instant::now();
    let class = class_of(app, &tenant.tenant);
    let accept = app
        .accepts
        .begin(app.clock.now().tick, &tenant.tenant.id, class);
    let answer = app.store.accept_within(now, events, quotas);
    let accepted = CommitWait::new(answer, accept, app.clock.clone(), reservation).await;
    let took = asked_at.elapsed();
    app.metrics.committed(took);
    if accepted.is_ok() {
        app.metrics.requests.accept_committed(class, took);
    }
    let accepted = accepted?;
    if let AcceptResult::Done(accepted) = &accepted {
        let fresh = accepted.iter().filter(|ingested| ingested.is_new).count();
        app.metrics.accepted(fresh as u64);
        app.charge(tenant, accepted);
    }
    Ok(accepted)
}

/// The request makes more deliveries than one request may.
fn too_many_deliveries(events: usize, deliveries: u64, limit: u64) -> Problem {
    let remedy = match events {
        1 => "Subscribe fewer endpoints to its type",
        _ => "Send fewer events per request, or subscribe fewer endpoints to their types",
    };
    let detail = format!(
        "This request would create {deliveries} deliveries; the limit is {limit}. Nothing was accepted. {remedy}; the operator can raise limits.max_deliveries_per_request."
    );
    Problem::new(Code::TooManyDeliveries, detail)
}

/// Returns the class of a tenant, by the origin of its limit for events.
fn class_of(app: &App, tenant: &Tenant) -> TenantClass {
    let plans = &app.settings.plans;
    match plans.source(tenant, LimitName::EventsPerSecond) {
        LimitSource::Tenant | LimitSource::Plan => TenantClass::Limited,
        LimitSource::Server => TenantClass::Default,
    }
}

fn endpoint_disabled() -> Problem {
    Problem::new(
        Code::EndpointDisabled,
        "The endpoint is disabled. Enable it first.",
    )
}

fn conflict(events: usize, positions: &[usize]) -> Problem {
    let mut problem = Problem::new(
        Code::IdempotencyConflict,
        "This idempotency key was used before with a different body. Nothing was accepted; use a new key for a different body.",
    );
    if events > 1 {
        let mut errors = ValidationErrors::default();
        for position in positions {
            let field = format!("events[{position}].idempotency_key");
            errors.add(field, "was used before with a different body");
        }
        let named: Vec<String> = errors.iter().map(|it| it.field.clone()).collect();
        let detail = format!(
            "These idempotency keys were used before with different bodies: {}. Nothing was accepted; use new keys for different bodies.",
            named.join(", ")
        );
        problem = Problem::new(Code::IdempotencyConflict, detail);
        problem.errors = Some(errors);
    }
    problem
}

/// `GET …/events`.
async fn list(call: Call) -> Result<Response<Body>, Problem> {
    let mut query = call.query();
    let page = query.page();
    let by_type: Option<EventType> = query.parsed("type");
    let by_event_type: Option<EventType> = query.parsed("event_type");
    // `type` is an alias. No event has two types.
    let has_contradiction =
        matches!((&by_type, &by_event_type), (Some(one), Some(other)) if one != other);
    let event_type = by_type.or(by_event_type);
    let filter = EventFilter {
        event_type,
        since: query.parsed("since"),
        until: query.parsed("until"),
    };
    query.finish()?;
    let tenant = call.tenant().tenant.id.clone();
    let found = match has_contradiction {
        true => Page {
            items: Vec::new(),
            next: None,
        },
        false => call.app.store.events(tenant, filter, page).await?,
    };
    Ok(paging::answer(found, |event| EventSummary::from(&event)))
}

/// `GET …/events/{event}`.
async fn get(call: Call) -> Result<Response<Body>, Problem> {
    let app = &call.app;
    let tenant = &call.tenant().tenant.id;
    let id: EventId = call.id("event", ResourceKind::Event)?;
    let stored = app.store.event(tenant.clone(), id).await?;
    let stored = stored.ok_or_else(|| Problem::missing(ResourceKind::Event))?;
    let mut deliveries: Vec<EventDelivery> = Vec::new();
    let mut before = None;
    while deliveries.len() < MAX_DELIVERIES_SHOWN {
        let page = PageRequest {
            limit: paging::MAX_LIMIT,
            before,
        };
        let filter = DeliveryFilter {
            event: Some(id),
            ..DeliveryFilter::default()
        };
        let found = app.store.deliveries(tenant.clone(), filter, page).await?;
        let in_flight = app.owner_router.in_flight(&found.items).await;
        deliveries.extend(found.items.iter().map(|stored| EventDelivery {
            id: stored.delivery.id().to_string(),
            endpoint_id: stored.delivery.facts().endpoint.to_string(),
            status: status_now(stored, in_flight.contains(&stored.delivery.id())),
        }));
        before = found.next;
        if before.is_none() {
            break;
        }
    }
    // In the order of the response to the event.
    deliveries.reverse();
    Ok(body::answer(
        StatusCode::OK,
        &Event::new(&stored, deliveries),
    ))
}
