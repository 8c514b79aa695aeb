//! Handlers of deliveries: lists, shows, retries and cancels them.
//!
//! The store knows every delivery but not which ones are in flight; the engines know those. `list` therefore reads
//! from the store or, for `status=in_flight`, from the engines of all nodes. `retry` and `cancel` pass through the
//! owner of the endpoint, which may be another node.

mod filter;
mod held_after_faults;
mod holds;
mod id_prefix;
mod matching;
mod policies;
mod routes;

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_core::delivery::Status;
use posthaste_core::id::{DeliveryId, TenantId};
use posthaste_engine::CancelResult;
use posthaste_store::{AttemptEntry, Page, PageRequest, RetryResult, StoredDelivery, Tenant};

use super::App;
use super::body;
use super::code::Code;
use super::paging;
use super::problem::{Problem, ResourceKind};
use super::resources::{Delivery, DeliverySummary, held_status, status_now};
use super::route::Call;
use filter::DeliveryQuery;
use held_after_faults::add_held;
use holds::DeliveryHolds;

pub(super) use filter::{ended_status, error_kind};
pub(super) use policies::Policies;
pub(super) use routes::GROUP;

/// Number of parallel store reads when deliveries are read one by one.
const MAX_PARALLEL_READS: usize = 16;

/// `GET …/deliveries`.
async fn list(call: Call) -> Result<Response<Body>, Problem> {
    let mut parameters = call.query();
    let page = parameters.page();
    let query = DeliveryQuery::read(&mut parameters);
    parameters.finish()?;
    let app = &call.app;
    let tenant = &call.tenant().tenant;
    let mut found = match query.status {
        Some(Status::InProgress) => in_flight(app, &tenant.id, &query, page).await?,
        Some(Status::Held) => {
            let held = stored(app, &tenant.id, &query, page).await?;
            add_held(app, &tenant.id, &query, page, held).await?
        }
        Some(_) | None => stored(app, &tenant.id, &query, page).await?,
    };
    let (in_flight, held) = tokio::join!(
        app.owner_router.in_flight(&found.items),
        app.owner_router.quarantined(&found.items),
    );
    let is_in_flight = |item: &StoredDelivery| in_flight.contains(&item.delivery.id());
    let is_held = |item: &StoredDelivery| held.contains(&item.delivery.id());
    // A delivery in flight has the status `in_progress`, so it does not match another status.
    if let Some(status) = query.status {
        found.items.retain(|item| {
            let shown = status_now(item, is_in_flight(item));
            held_status(shown, is_held(item)) == status
        });
    }
    let mut policies = Policies::new(app, tenant);
    for item in &found.items {
        policies.look_up(item.delivery.facts().endpoint).await?;
    }
    let waiting = found.items.iter().filter(|item| !is_in_flight(item));
    let holds = DeliveryHolds::look_up(app, &policies, waiting).await;
    Ok(paging::answer(found, |item| {
        let in_flight = is_in_flight(&item);
        let policy = policies.of(&item.delivery);
        let mut summary =
            DeliverySummary::new(&item, in_flight, &policy, holds.of(&item, in_flight));
        if is_held(&item) {
            summary.hold_after_faults();
        }
        summary
    }))
}

/// Returns deliveries from the store.
async fn stored(
    app: &App,
    tenant: &TenantId,
    query: &DeliveryQuery,
    page: PageRequest<DeliveryId>,
) -> Result<Page<StoredDelivery, DeliveryId>, Problem> {
    if let Some(named) = &query.named {
        return id_prefix::find(app, tenant, named, &query.filter, page).await;
    }
    let filter = query.filter.clone();
    Ok(app.store.deliveries(tenant.clone(), filter, page).await?)
}

/// Returns deliveries in flight. Only the engines know them, and they know those of all tenants. The cursor
/// is therefore always a delivery of this tenant, so that it reveals nothing about others. Each engine bounds
/// the number of deliveries to check.
async fn in_flight(
    app: &App,
    tenant: &TenantId,
    query: &DeliveryQuery,
    page: PageRequest<DeliveryId>,
) -> Result<Page<StoredDelivery, DeliveryId>, Problem> {
    let mut all_in_flight = app.owner_router.all_in_flight().await;
    all_in_flight.retain(|id| page.before.is_none_or(|before| *id < before));
    let mut items: Vec<StoredDelivery> = Vec::new();
    for ids in all_in_flight.chunks(MAX_PARALLEL_READS) {
        let read = |id: &DeliveryId| app.store.delivery(tenant.clone(), *id);
        let reads: Vec<_> = ids.iter().map(read).collect();
        for found in reads {
            let Some((stored, _)) = found.await? else {
                continue;
            };
            if !query.matches(&stored) {
                continue;
            }
            if items.len() == page.limit {
                let next = items.last().map(|last| last.delivery.facts().id);
                return Ok(Page { items, next });
            }
            items.push(stored);
        }
    }
    Ok(Page { items, next: None })
}

/// `GET …/deliveries/{delivery}`.
async fn get(call: Call) -> Result<Response<Body>, Problem> {
    let id = call.id("delivery", ResourceKind::Delivery)?;
    show(&call.app, &call.tenant().tenant, id, StatusCode::OK).await
}

/// `POST …/deliveries/{delivery}/retry`.
async fn retry(mut call: Call) -> Result<Response<Body>, Problem> {
    call.take_nothing().await?;
    let app = &call.app;
    let id: DeliveryId = call.id("delivery", ResourceKind::Delivery)?;
    let tenant = &call.tenant().tenant.id;
    // A delivery of another tenant is not found, in flight or not.
    let (stored, _) = find(app, tenant, id).await?;
    if app.owner_router.is_in_flight(&stored).await {
        return Err(in_progress());
    }
    let now = app.clock.wall();
    let endpoint = match app.store.retry(now, tenant.clone(), id).await? {
        RetryResult::DueNow { endpoint } | RetryResult::Replayed { endpoint } => endpoint,
        RetryResult::EndpointDisabled => {
            let detail = "The endpoint is disabled. Enable it first, then retry.";
            return Err(Problem::new(Code::EndpointDisabled, detail));
        }
        RetryResult::EndpointDeleted => {
            let detail = "The endpoint was deleted, so this delivery cannot be sent.";
            return Err(Problem::new(Code::EndpointDeleted, detail));
        }
        RetryResult::PayloadDeleted => {
            let detail = "The payload was removed after its retention period.";
            return Err(Problem::new(Code::PayloadGone, detail));
        }
        RetryResult::NoSuchDelivery => return Err(Problem::missing(ResourceKind::Delivery)),
    };
    app.engine.work(endpoint, now);
    let shown = show(&call.app, &call.tenant().tenant, id, StatusCode::ACCEPTED).await;
    shown.map_err(Problem::after_change)
}

/// `POST …/deliveries/{delivery}/cancel`.
async fn cancel(mut call: Call) -> Result<Response<Body>, Problem> {
    call.take_nothing().await?;
    let app = &call.app;
    let id: DeliveryId = call.id("delivery", ResourceKind::Delivery)?;
    let tenant = &call.tenant().tenant.id;
    let (stored, _) = find(app, tenant, id).await?;
    if !stored.delivery.status().is_terminal() {
        let endpoint = stored.delivery.facts().endpoint;
        let cancelling = app.owner_router.cancel(endpoint, id, call.answer_by);
        match cancelling.await? {
            CancelResult::Done => {
                let shown = show(&call.app, &call.tenant().tenant, id, StatusCode::OK).await;
                return shown.map_err(Problem::after_change);
            }
            CancelResult::TooLate => return Err(in_progress()),
            CancelResult::Ended => {}
        }
    }
    let (stored, _) = find(app, tenant, id).await?;
    match stored.delivery.status() {
        Status::Cancelled => show(&call.app, &call.tenant().tenant, id, StatusCode::OK).await,
        Status::Succeeded | Status::Failed => {
            let detail = format!(
                "The delivery has already {}.",
                stored.delivery.status().name()
            );
            Err(Problem::new(Code::AlreadyFinished, detail))
        }
        // The engine has a final result that is not recorded yet.
        Status::Pending | Status::Retrying | Status::Held | Status::InProgress => {
            Err(in_progress())
        }
    }
}

fn in_progress() -> Problem {
    Problem::new(
        Code::DeliveryInProgress,
        "The delivery is in progress. Retry when the attempt has finished.",
    )
}

async fn find(
    app: &App,
    tenant: &TenantId,
    id: DeliveryId,
) -> Result<(StoredDelivery, Vec<AttemptEntry>), Problem> {
    let found = app.store.delivery(tenant.clone(), id).await?;
    found.ok_or_else(|| Problem::missing(ResourceKind::Delivery))
}

async fn show(
    app: &App,
    tenant: &Tenant,
    id: DeliveryId,
    status: StatusCode,
) -> Result<Response<Body>, Problem> {
    let (mut stored, mut attempts) = find(app, &tenant.id, id).await?;
    let in_flight = app.owner_router.is_in_flight(&stored).await;
    if !stored.delivery.status().is_terminal() {
        // The engine is asked before the row is read again, so that a delivery that ends in between is shown as ended.
        (stored, attempts) = find(app, &tenant.id, id).await?;
    }
    let endpoint = stored.delivery.facts().endpoint;
    let mut policies = Policies::new(app, tenant);
    policies.look_up(endpoint).await?;
    let policy = policies.of(&stored.delivery);
    let holds = DeliveryHolds::look_up(app, &policies, [&stored]).await;
    let hold = holds.of(&stored, in_flight);
    let mut delivery = Delivery::new(&stored, &attempts, in_flight, &policy, hold, holds.now());
    let held = app.owner_router.quarantined(std::slice::from_ref(&stored));
    if held.await.contains(&id) {
        delivery.summary.hold_after_faults();
    }
    Ok(body::answer(status, &delivery))
}
