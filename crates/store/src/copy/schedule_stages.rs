//! The stages that copy schedules and their runs.

use super::columns::ColumnKind::{Id, Int, Long, ScheduleShard, Small, Text};
use super::stages::{Part, Shape, Stage};

/// Schedules. Those of deleted tenants do not exist any more.
pub(super) const SCHEDULES: Stage = Stage {
    name: "schedules",
    table: "schedules",
    key: "no",
    weight: "length(definition)",
    parts: &[Part {
        table: "schedules",
        columns: &[
            ("no", Long),
            ("tenant_no", Long),
            ("created_at", Long),
            ("due", Long),
            ("next_run_at", Long),
            ("last_run_at", Long),
            ("run_count", Long),
            ("runs", Long),
            ("revision", Long),
            ("failed_runs", Int),
            ("shard", ScheduleShard),
            ("status", Small),
            ("last_event", Id),
            ("id", Text),
            ("progress", Text),
            ("definition", Text),
        ],
        sql: "SELECT s.no, s.tenant_no, s.created_at, s.due, s.next_run_at, s.last_run_at, s.run_count, s.runs, \
              s.revision, s.failed_runs, t.id, s.id, s.status, s.last_event, s.id, s.progress, s.definition \
              FROM schedules s JOIN tenants t ON t.no = s.tenant_no WHERE s.no > ?1 AND s.no <= ?2",
        shape: Shape::Same,
    }],
};

/// Runs of schedules that exist.
pub(super) const SCHEDULE_RUNS: Stage = Stage {
    name: "runs of schedules",
    table: "schedules",
    key: "no",
    weight: "runs * 64",
    parts: &[Part {
        table: "schedule_runs",
        columns: &[
            ("schedule_no", Long),
            ("number", Long),
            ("scheduled_for", Long),
            ("started_at", Long),
            ("status", Small),
            ("event_id", Id),
            ("reason", Text),
        ],
        sql: "SELECT schedule_no, number, scheduled_for, started_at, status, event, reason FROM schedule_runs \
              WHERE schedule_no > ?1 AND schedule_no <= ?2 \
              AND schedule_no IN (SELECT no FROM schedules)",
        shape: Shape::Same,
    }],
};
