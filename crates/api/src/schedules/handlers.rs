//! Creates, shows, changes and deletes schedules.

use axum::body::Body;
use http::{Response, StatusCode};
use posthaste_core::cluster::Feature;
use posthaste_core::id::ScheduleId;
use posthaste_core::schedule::{
    Schedule, ScheduleProgress, ScheduleState, ScheduleStatus, ScheduleTiming, Timing,
};
use posthaste_core::time::Timestamp;
use posthaste_core::validation::ValidationErrors;
use posthaste_store::{CreateResult, ReplaceResult, StoredSchedule};

use super::form;
use super::timing::{GivenTiming, read_time, read_timing, read_zone};
use super::view::{describe, prepared, state_of, with_state};
use crate::code::Code;
use crate::events::event_bytes;
use crate::paging;
use crate::problem::{Problem, ResourceKind};
use crate::quota::too_many_schedules;
use crate::resources::{SchedulePreview, times};
use crate::route::Call;
use crate::tenants::MAX_TRIES;
use crate::{audit_writer, body, body_fields};

/// Number of occurrences in a preview that asks for no number.
const DEFAULT_PREVIEW: u32 = 5;
/// Maximum number of occurrences in a preview.
const MAX_PREVIEW: u32 = 100;

/// `POST …/schedules`.
pub(super) async fn create(mut call: Call) -> Result<Response<Body>, Problem> {
    let (app, tenant) = (call.app.clone(), call.tenant().clone());
    app.check_feature(Feature::Schedules, "schedules")?;
    body::check_json_type(call.headers())?;
    let bytes = call.take_body(event_bytes(&app, &tenant.tenant)).await?;
    let now = app.clock.wall();
    let form = form::read(&app, &tenant.tenant, now, body::text(&bytes)?, None).await?;
    let id = form.id.unwrap_or_else(|| app.new_id());
    let mut definition = form.definition;
    if definition.name.is_empty() {
        definition.name = id.to_string();
    }
    let stored = new_schedule(&tenant.tenant.id, id, now, definition)?;
    let at_most = app.limits_of(&tenant.tenant).schedules.unwrap_or(u32::MAX);
    match app
        .store
        .create_schedule(now, stored.clone(), at_most)
        .await?
    {
        CreateResult::Created => {
            let shown = describe(&app, &tenant.tenant, now, &stored).await?;
            let answer = body::answer(StatusCode::CREATED, &shown);
            Ok(audit_writer::with_created_id(&stored.id, answer))
        }
        CreateResult::Taken => {
            let detail = format!(
                "The schedule {} already exists. Choose another id, or update that schedule.",
                stored.id
            );
            Err(Problem::new(Code::AlreadyExists, detail))
        }
        CreateResult::NoSuchTenant => Err(Problem::missing(ResourceKind::Tenant)),
        CreateResult::TooMany => Err(too_many_schedules(at_most)),
    }
}

fn new_schedule(
    tenant: &posthaste_core::id::TenantId,
    id: ScheduleId,
    now: Timestamp,
    definition: posthaste_core::schedule::ScheduleDefinition,
) -> Result<StoredSchedule, Problem> {
    let stored = definition.stored();
    let schedule = Schedule::new(definition).map_err(|error| Problem::internal(&error))?;
    let state = ScheduleState {
        status: ScheduleStatus::Active,
        next_run_at: None,
        last_run_at: None,
        run_count: 0,
        created_at: now,
        progress: ScheduleProgress::default(),
    };
    let state = schedule.restart(now, &state);
    Ok(StoredSchedule {
        tenant: tenant.clone(),
        id,
        definition: stored,
        progress: None,
        status: state.status,
        next_run_at: state.next_run_at,
        last_run_at: None,
        last_event: None,
        run_count: 0,
        failed_runs: 0,
        created_at: now,
        revision: 0,
    })
}

/// `GET …/schedules`.
pub(super) async fn list(call: Call) -> Result<Response<Body>, Problem> {
    let mut query = call.query();
    let page = query.page();
    query.finish()?;
    let (app, tenant) = (&call.app, &call.tenant().tenant);
    let now = app.clock.wall();
    let page = app.store.schedules(tenant.id.clone(), page).await?;
    let mut shown = Vec::with_capacity(page.items.len());
    for stored in &page.items {
        shown.push(describe(app, tenant, now, stored).await?);
    }
    let mut shown = shown.into_iter();
    Ok(paging::answer(page, |_| shown.next()))
}

/// `GET …/schedules/{schedule}`.
pub(super) async fn get(call: Call) -> Result<Response<Body>, Problem> {
    let stored = find(&call).await?;
    answer(&call, &stored).await
}

/// `PATCH …/schedules/{schedule}`.
pub(super) async fn change(mut call: Call) -> Result<Response<Body>, Problem> {
    let (app, tenant) = (call.app.clone(), call.tenant().clone());
    body::check_json_type(call.headers())?;
    let bytes = call.take_body(event_bytes(&app, &tenant.tenant)).await?;
    let text = body::text(&bytes)?;
    for _ in 0..MAX_TRIES {
        let stored = find(&call).await?;
        let now = app.clock.wall();
        let current = prepared(&stored)?;
        let old = current.definition();
        let form = form::read(&app, &tenant.tenant, now, text, Some(old)).await?;
        let mut definition = form.definition;
        if definition.name.is_empty() {
            definition.name = stored.id.to_string();
        }
        let has_other_times = definition.timing != old.timing
            || definition.timezone != old.timezone
            || definition.starts_at != old.starts_at;
        let has_other_limits =
            definition.ends_at != old.ends_at || definition.max_runs != old.max_runs;
        let text = definition.stored();
        let changed = Schedule::new(definition).map_err(|error| Problem::internal(&error))?;
        let state = match (has_other_times, has_other_limits) {
            (true, _) => changed.restart(now, &state_of(&stored)),
            (false, true) => changed.with_other_limits(now, &state_of(&stored)),
            (false, false) => state_of(&stored),
        };
        let replacement = with_state(&stored, text, &state);
        if replace(&call, now, &replacement).await? {
            return answer(&call, &replacement).await;
        }
    }
    Err(contended())
}

/// `DELETE …/schedules/{schedule}`.
pub(super) async fn delete(call: Call) -> Result<Response<Body>, Problem> {
    let id: ScheduleId = call.id("schedule", ResourceKind::Schedule)?;
    let tenant = call.tenant().tenant.id.clone();
    let now = call.app.clock.wall();
    match call.app.store.delete_schedule(now, tenant, id).await? {
        true => Ok(body::nothing()),
        false => Err(Problem::missing(ResourceKind::Schedule)),
    }
}

/// `POST …/schedules/{schedule}/pause`.
pub(super) async fn pause(call: Call) -> Result<Response<Body>, Problem> {
    set_state(call, |_, _, state| state.paused()).await
}

/// `POST …/schedules/{schedule}/resume`.
pub(super) async fn resume(call: Call) -> Result<Response<Body>, Problem> {
    set_state(call, |schedule, now, state| schedule.resumed(now, state)).await
}

async fn set_state(
    mut call: Call,
    change: fn(&Schedule, Timestamp, &ScheduleState) -> ScheduleState,
) -> Result<Response<Body>, Problem> {
    call.take_nothing().await?;
    for _ in 0..MAX_TRIES {
        let stored = find(&call).await?;
        let now = call.app.clock.wall();
        let state = state_of(&stored);
        if state.status == ScheduleStatus::Finished {
            let detail =
                "The schedule has finished. Change its times, its end or max_runs to run it again.";
            return Err(Problem::new(Code::WrongState, detail));
        }
        let changed = change(&prepared(&stored)?, now, &state);
        if changed == state {
            return answer(&call, &stored).await;
        }
        let replacement = with_state(&stored, stored.definition.clone(), &changed);
        if replace(&call, now, &replacement).await? {
            return answer(&call, &replacement).await;
        }
    }
    Err(contended())
}

/// `POST /v1/schedules/preview`.
pub(super) async fn preview(mut call: Call) -> Result<Response<Body>, Problem> {
    let document = call.take_json().await?;
    let now = call.app.clock.wall();
    let mut errors = ValidationErrors::default();
    let mut read = None;
    body_fields::read(&document, &mut errors, |fields| {
        let from = read_time(fields, "from");
        let count = fields.count("count", 1, MAX_PREVIEW);
        let zone = read_zone(fields);
        // A preview may be of any time, so no time is in the past.
        let timing = match read_timing(fields, Timestamp(0), &[]) {
            GivenTiming::Valid(timing) => Some(timing),
            GivenTiming::Invalid => None,
            GivenTiming::Absent => {
                fields.wrong("cron", "is required, unless every or at is given");
                None
            }
        };
        let count = count.unwrap_or(DEFAULT_PREVIEW);
        read = timing.zip(zone).map(|it| (it, from.unwrap_or(now), count));
    });
    let ((timing, zone), from, count) = errors.into_result(read)?;
    let preview = preview_of(&timing, &zone, from, count)?;
    Ok(body::answer(StatusCode::OK, &preview))
}

fn preview_of(
    timing: &ScheduleTiming,
    zone: &str,
    from: Timestamp,
    count: u32,
) -> Result<SchedulePreview, Problem> {
    let timing = Timing::new(timing, zone).map_err(|error| Problem::internal(&error))?;
    let mut next = Vec::new();
    let mut after = from;
    while next.len() < count as usize {
        let Some(at) = timing.next_after(after, from) else {
            break;
        };
        next.push(at);
        after = at;
    }
    Ok(SchedulePreview {
        description: timing.description(),
        next: times(&next),
    })
}

/// Finds the schedule in the path.
pub(super) async fn find(call: &Call) -> Result<StoredSchedule, Problem> {
    let id: ScheduleId = call.id("schedule", ResourceKind::Schedule)?;
    let tenant = call.tenant().tenant.id.clone();
    let found = call.app.store.schedule(tenant, id).await?;
    found.ok_or_else(|| Problem::missing(ResourceKind::Schedule))
}

async fn answer(call: &Call, stored: &StoredSchedule) -> Result<Response<Body>, Problem> {
    let now = call.app.clock.wall();
    let shown = describe(&call.app, &call.tenant().tenant, now, stored).await?;
    Ok(body::answer(StatusCode::OK, &shown))
}

/// Writes a changed schedule. Returns false if it was changed in between.
async fn replace(call: &Call, now: Timestamp, changed: &StoredSchedule) -> Result<bool, Problem> {
    match call
        .app
        .store
        .replace_schedule(now, changed.clone())
        .await?
    {
        ReplaceResult::Done => Ok(true),
        ReplaceResult::Outdated => Ok(false),
        ReplaceResult::NotFound => Err(Problem::missing(ResourceKind::Schedule)),
    }
}

/// Concurrent changes of the schedule prevented this one.
pub(super) fn contended() -> Problem {
    Problem::new(
        Code::Contended,
        "The schedule is being changed by other requests. Nothing was changed; send the request again.",
    )
}
