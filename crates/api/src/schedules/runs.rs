//! Runs of a schedule: starts one by hand, and lists them.

use axum::body::Body;
use bytes::Bytes;
use http::{Response, StatusCode};
use posthaste_core::id::{DeliveryId, EventId, ScheduleId};
use posthaste_core::schedule::ScheduledRun;
use posthaste_core::time::Timestamp;
use posthaste_store::{
    AcceptedEvent, AdvancedBy, DeliveryFilter, NewRun, NewRunOutcome, PageRequest, RunStatus,
    ScheduleAdvance, StoredRun, StoredSchedule, Tenant,
};

use super::handlers::{contended, find};
use super::view::{prepared, state_of};
use crate::events::AdvanceOutcome;
use crate::problem::{Problem, ResourceKind};
use crate::resources::{MAX_RUN_DELIVERIES, ScheduleRun};
use crate::route::Call;
use crate::tenants::MAX_TRIES;
use crate::{App, audit_writer, body, paging};

/// `POST …/schedules/{schedule}/run`.
pub(super) async fn run(mut call: Call) -> Result<Response<Body>, Problem> {
    call.take_nothing().await?;
    let (app, tenant) = (call.app.clone(), call.tenant().clone());
    for _ in 0..MAX_TRIES {
        let stored = find(&call).await?;
        let now = app.clock.wall();
        let advance = advance_by_hand(&app, &tenant.tenant, now, &stored).await?;
        match app.advance_schedule(&tenant, now, advance).await? {
            AdvanceOutcome::Done(events) => {
                let [event] = events.as_slice() else {
                    return Err(Problem::internal(&"a run was stored without its event"));
                };
                let answer = body::answer(StatusCode::ACCEPTED, &created(now, event));
                return Ok(audit_writer::with_created_id(event.id, answer));
            }
            AdvanceOutcome::Superseded => {}
            AdvanceOutcome::Wait(_, problem) | AdvanceOutcome::Refused(problem) => {
                return Err(problem);
            }
        }
    }
    Err(contended())
}

/// Returns the decision to run a schedule once, now. Its next occurrence stays.
async fn advance_by_hand(
    app: &App,
    tenant: &Tenant,
    now: Timestamp,
    stored: &StoredSchedule,
) -> Result<ScheduleAdvance, Problem> {
    let schedule = prepared(stored)?;
    let run = ScheduledRun {
        schedule: stored.id.clone(),
        scheduled_for: now,
    };
    let target = &schedule.definition().target;
    let payload = Bytes::copy_from_slice(&target.body().bytes);
    let event = app.event_of_run(tenant, now, target, payload, run).await?;
    let state = schedule.ran_by_hand(now, &state_of(stored));
    Ok(ScheduleAdvance {
        tenant: stored.tenant.clone(),
        schedule: stored.id.clone(),
        version: stored.version(),
        by: AdvancedBy::Request,
        runs: vec![NewRun {
            scheduled_for: now,
            outcome: NewRunOutcome::Create(Box::new(event)),
        }],
        status: state.status,
        next_run_at: state.next_run_at,
        last_run_at: state.last_run_at,
        run_count: state.run_count,
        failed_runs: stored.failed_runs,
        progress: Some(state.progress.stored()),
    })
}

fn created(now: Timestamp, event: &AcceptedEvent) -> ScheduleRun {
    let deliveries = event.deliveries.iter().take(MAX_RUN_DELIVERIES);
    ScheduleRun {
        scheduled_for: now.to_string(),
        started_at: now.to_string(),
        status: RunStatus::Created.into(),
        event_id: Some(event.id.to_string()),
        deliveries: deliveries.map(|delivery| delivery.id.to_string()).collect(),
        reason: None,
    }
}

/// `GET …/schedules/{schedule}/runs`.
pub(super) async fn list(call: Call) -> Result<Response<Body>, Problem> {
    let id: ScheduleId = call.id("schedule", ResourceKind::Schedule)?;
    let mut query = call.query();
    let page = query.page();
    query.finish()?;
    let (app, tenant) = (&call.app, &call.tenant().tenant);
    find(&call).await?;
    let page = app.store.schedule_runs(tenant.id.clone(), id, page).await?;
    let mut shown = Vec::with_capacity(page.items.len());
    for run in &page.items {
        shown.push(describe(app, tenant, run).await?);
    }
    let mut shown = shown.into_iter();
    Ok(paging::answer(page, |_| shown.next()))
}

async fn describe(app: &App, tenant: &Tenant, run: &StoredRun) -> Result<ScheduleRun, Problem> {
    let deliveries = match run.event {
        Some(event) => deliveries_of(app, tenant, event).await?,
        None => Vec::new(),
    };
    Ok(ScheduleRun {
        scheduled_for: run.scheduled_for.to_string(),
        started_at: run.started_at.to_string(),
        status: run.status.into(),
        event_id: run.event.map(|event| event.to_string()),
        deliveries: deliveries.iter().map(DeliveryId::to_string).collect(),
        reason: run.reason.clone(),
    })
}

/// Returns the deliveries of an event, in the order of their creation.
async fn deliveries_of(
    app: &App,
    tenant: &Tenant,
    event: EventId,
) -> Result<Vec<DeliveryId>, Problem> {
    let filter = DeliveryFilter {
        event: Some(event),
        ..DeliveryFilter::default()
    };
    let page = PageRequest {
        limit: MAX_RUN_DELIVERIES,
        before: None,
    };
    let found = app
        .store
        .deliveries(tenant.id.clone(), filter, page)
        .await?;
    let newest_first = found.items.into_iter();
    Ok(newest_first.rev().map(|row| row.delivery.id()).collect())
}
