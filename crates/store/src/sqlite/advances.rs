//! Writes decisions about schedules, in the transaction that accepts their events.

use posthaste_core::id::EventId;
use posthaste_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::codes::Code;
use super::row_keys::id_bytes;
use crate::codes::ms;
use crate::{MAX_RUNS_KEPT, NewRunOutcome, ScheduleAdvance};

/// The schedule that an advance is about.
pub(super) struct AdvancedSchedule {
    no: i64,
    /// Number of runs that were recorded before.
    runs: u64,
}

/// Returns the schedule that an advance is about, if it still has the version that was decided about.
pub(super) fn find_advanced(
    conn: &Connection,
    tenant_no: i64,
    advance: &ScheduleAdvance,
) -> rusqlite::Result<Option<AdvancedSchedule>> {
    conn.prepare_cached(
        "SELECT no, runs FROM schedules WHERE tenant_no = ?1 AND id = ?2 AND created_at = ?3 \
         AND revision = ?4",
    )?
    .query_row(
        params![
            tenant_no,
            advance.schedule.as_str(),
            ms(advance.version.created_at),
            advance.version.revision as i64,
        ],
        |row| {
            Ok(AdvancedSchedule {
                no: row.get(0)?,
                runs: row.get::<_, i64>(1)? as u64,
            })
        },
    )
    .optional()
}

/// Writes a decision whose events have been accepted.
pub(super) fn advance(
    conn: &Connection,
    now: Timestamp,
    schedule: &AdvancedSchedule,
    advance: &ScheduleAdvance,
    events: &[EventId],
) -> rusqlite::Result<()> {
    let mut accepted = events.iter().copied();
    let mut number = schedule.runs;
    let mut last_event = None;
    let mut insert = conn.prepare_cached(
        "INSERT INTO schedule_runs (schedule_no, number, scheduled_for, started_at, status, event, \
         reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    for run in &advance.runs {
        number += 1;
        let (event, reason) = match &run.outcome {
            NewRunOutcome::Create(_) => (accepted.next(), None),
            NewRunOutcome::Skip(reason) | NewRunOutcome::Miss(reason) => (None, Some(reason)),
        };
        last_event = event.or(last_event);
        insert.execute(params![
            schedule.no,
            number as i64,
            ms(run.scheduled_for),
            ms(now),
            Code(run.outcome.status()),
            event.map(|event| id_bytes(event.0)),
            reason,
        ])?;
    }
    conn.prepare_cached("DELETE FROM schedule_runs WHERE schedule_no = ?1 AND number <= ?2")?
        .execute((schedule.no, number.saturating_sub(MAX_RUNS_KEPT) as i64))?;
    let due_at = advance.due_at();
    conn.prepare_cached(
        "UPDATE schedules SET status = ?2, due = ?3, next_run_at = ?4, last_run_at = ?5, \
         last_event = coalesce(?6, last_event), run_count = ?7, failed_runs = ?8, runs = ?9, \
         progress = ?10, revision = revision + 1 WHERE no = ?1",
    )?
    .execute(params![
        schedule.no,
        Code(advance.status),
        due_at.map(ms),
        advance.next_run_at.map(ms),
        advance.last_run_at.map(ms),
        last_event.map(|event| id_bytes(event.0)),
        advance.run_count as i64,
        advance.failed_runs,
        number as i64,
        advance.progress,
    ])?;
    Ok(())
}
