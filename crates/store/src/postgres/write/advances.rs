//! Writes decisions about schedules, together with the events that they make.
//!
//! [`AdvanceColumns`] are the rows of all decisions of a batch. [`ADVANCE`] writes them in one statement, which aborts the
//! transaction if one of the schedules no longer has the version that was decided about. [`drop_superseded`] then finds
//! those, and the batch is planned again without them.

use posthaste_core::time::Timestamp;
use tokio_postgres::types::ToSql;

use super::batch::Batch;
use super::routing_table::RoutingTable;
use crate::codes::{Coded, ms};
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::columns::Id;
use crate::{AcceptedOrStored, MAX_RUNS_KEPT, NewRunOutcome, ScheduleAdvance};

/// Decisions and their runs, as columns.
#[derive(Default)]
pub(super) struct AdvanceColumns<'a> {
    tenants: Vec<i64>,
    ids: Vec<&'a str>,
    created: Vec<i64>,
    revisions: Vec<i64>,
    statuses: Vec<i16>,
    dues: Vec<Option<i64>>,
    next_runs: Vec<Option<i64>>,
    last_runs: Vec<Option<i64>>,
    last_events: Vec<Option<Id>>,
    run_counts: Vec<i64>,
    failed_runs: Vec<i32>,
    progresses: Vec<Option<&'a str>>,
    runs: Vec<i64>,
    run: RunColumns<'a>,
}

/// Rows of `schedule_runs`. `places` are the decisions that they belong to, and `positions` their places in it, both
/// counted from 1.
#[derive(Default)]
struct RunColumns<'a> {
    places: Vec<i64>,
    positions: Vec<i64>,
    scheduled: Vec<i64>,
    started: Vec<i64>,
    statuses: Vec<i16>,
    events: Vec<Option<Id>>,
    reasons: Vec<Option<&'a str>>,
}

impl<'a> AdvanceColumns<'a> {
    /// Returns whether there are no decisions.
    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Adds a decision whose events are accepted.
    pub(super) fn add(
        &mut self,
        now: Timestamp,
        tenant_no: i64,
        advance: &'a ScheduleAdvance,
        events: &[AcceptedOrStored],
    ) {
        let mut accepted = events.iter().map(|it| Id(it.event.id.0));
        let mut last_event = None;
        let place = self.ids.len() as i64 + 1;
        for (index, run) in advance.runs.iter().enumerate() {
            let (event, reason) = match &run.outcome {
                NewRunOutcome::Create(_) => (accepted.next(), None),
                NewRunOutcome::Skip(reason) | NewRunOutcome::Miss(reason) => {
                    (None, Some(reason.as_str()))
                }
            };
            last_event = event.or(last_event);
            let to = &mut self.run;
            to.places.push(place);
            to.positions.push(index as i64 + 1);
            to.scheduled.push(ms(run.scheduled_for));
            to.started.push(ms(now));
            to.statuses.push(run.outcome.status().code() as i16);
            to.events.push(event);
            to.reasons.push(reason);
        }
        self.tenants.push(tenant_no);
        self.ids.push(advance.schedule.as_str());
        self.created.push(ms(advance.version.created_at));
        self.revisions.push(advance.version.revision as i64);
        self.statuses.push(advance.status.code() as i16);
        self.dues.push(advance.due_at().map(ms));
        self.next_runs.push(advance.next_run_at.map(ms));
        self.last_runs.push(advance.last_run_at.map(ms));
        self.last_events.push(last_event);
        self.run_counts.push(advance.run_count as i64);
        self.failed_runs.push(advance.failed_runs as i32);
        self.progresses.push(advance.progress.as_deref());
        self.runs.push(advance.runs.len() as i64);
    }
}

/// Writes decisions: the schedules, their runs, and the deletion of runs that are too many.
pub(super) const ADVANCE: &str = "WITH g AS (SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], \
    $4::bigint[], $5::smallint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::uuid[], $10::bigint[], \
    $11::integer[], $12::text[], $13::bigint[]) WITH ORDINALITY AS g (tenant_no, id, created_at, revision, \
    status, due, next_run_at, last_run_at, last_event, run_count, failed_runs, progress, runs, place)), \
    changed AS (UPDATE schedules s SET status = g.status, due = g.due, next_run_at = g.next_run_at, \
    last_run_at = g.last_run_at, last_event = coalesce(g.last_event, s.last_event), \
    run_count = g.run_count, failed_runs = g.failed_runs, progress = g.progress, \
    runs = s.runs + g.runs, revision = s.revision + 1 FROM g WHERE s.tenant_no = g.tenant_no \
    AND s.id = g.id AND s.created_at = g.created_at AND s.revision = g.revision \
    RETURNING s.no, s.runs, g.runs AS added, g.place), \
    recorded AS (INSERT INTO schedule_runs (schedule_no, number, scheduled_for, started_at, status, \
    event_id, reason) SELECT c.no, c.runs - c.added + r.position, r.scheduled_for, r.started_at, \
    r.status, r.event_id, r.reason FROM unnest($14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], \
    $18::smallint[], $19::uuid[], $20::text[]) AS r (place, position, scheduled_for, started_at, status, \
    event_id, reason) JOIN changed c ON c.place = r.place), \
    trimmed AS (DELETE FROM schedule_runs d USING changed c WHERE d.schedule_no = c.no \
    AND d.number <= c.runs - $21) \
    SELECT demand((SELECT count(*) FROM changed) = (SELECT count(*) FROM g))";

/// Writes decisions.
pub(super) async fn write(conn: &PgConnection, it: &AdvanceColumns<'_>) -> Result<(), DbError> {
    let run = &it.run;
    let kept = MAX_RUNS_KEPT as i64;
    let params: [&(dyn ToSql + Sync); 21] = [
        &it.tenants,
        &it.ids,
        &it.created,
        &it.revisions,
        &it.statuses,
        &it.dues,
        &it.next_runs,
        &it.last_runs,
        &it.last_events,
        &it.run_counts,
        &it.failed_runs,
        &it.progresses,
        &it.runs,
        &run.places,
        &run.positions,
        &run.scheduled,
        &run.started,
        &run.statuses,
        &run.events,
        &run.reasons,
        &kept,
    ];
    conn.execute(ADVANCE, &params).await?;
    Ok(())
}

/// Marks the decisions of a batch whose schedules have changed or were deleted as superseded.
pub(super) async fn drop_superseded(
    conn: &PgConnection,
    routes: &RoutingTable,
    batch: &mut Batch,
) -> Result<(), DbError> {
    let (mut places, mut tenants) = (Vec::new(), Vec::new());
    let (mut ids, mut created, mut revisions) = (Vec::new(), Vec::new(), Vec::new());
    for (place, advance) in batch.current_advances() {
        let tenant = routes.tenant(&advance.tenant);
        places.push(place as i64);
        tenants.push(tenant.map_or(0, |tenant| tenant.no));
        ids.push(advance.schedule.as_str().to_owned());
        created.push(ms(advance.version.created_at));
        revisions.push(advance.version.revision as i64);
    }
    if places.is_empty() {
        return Ok(());
    }
    let sql = "SELECT g.place FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[]) \
         AS g (place, tenant_no, id, created_at, revision) WHERE NOT EXISTS (SELECT 1 FROM schedules s \
         WHERE s.tenant_no = g.tenant_no AND s.id = g.id AND s.created_at = g.created_at \
         AND s.revision = g.revision)";
    let params: [&(dyn ToSql + Sync); 5] = [&places, &tenants, &ids, &created, &revisions];
    for row in conn.query(sql, &params).await? {
        batch.supersede(row.get::<_, i64>(0) as usize);
    }
    Ok(())
}
