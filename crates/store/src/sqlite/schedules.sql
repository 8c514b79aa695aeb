-- Schedules and their runs. `due` is the time at which the scheduler decides about an active schedule: that of the next
-- occurrence, unless it was postponed. `runs` counts the runs that were recorded; old ones are deleted.
CREATE TABLE schedules (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_no INTEGER NOT NULL,
    id TEXT NOT NULL,
    status INTEGER NOT NULL,
    due INTEGER,
    next_run_at INTEGER,
    last_run_at INTEGER,
    last_event BLOB,
    run_count INTEGER NOT NULL,
    failed_runs INTEGER NOT NULL,
    runs INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    progress TEXT,
    definition TEXT NOT NULL
);
CREATE UNIQUE INDEX schedules_by_id ON schedules (tenant_no, id);
CREATE INDEX schedules_by_age ON schedules (tenant_no, created_at, id);
CREATE INDEX due_schedules ON schedules (due) WHERE due IS NOT NULL;
CREATE INDEX failing_schedules ON schedules (failed_runs) WHERE failed_runs > 2;
CREATE TABLE schedule_runs (
    schedule_no INTEGER NOT NULL,
    number INTEGER NOT NULL,
    scheduled_for INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    status INTEGER NOT NULL,
    event BLOB,
    reason TEXT,
    PRIMARY KEY (schedule_no, number)
) WITHOUT ROWID;

-- Number of schedules of a tenant.
ALTER TABLE tenants ADD COLUMN schedules INTEGER NOT NULL DEFAULT 0;

-- The occurrence that an event was made for.
ALTER TABLE events ADD COLUMN schedule TEXT;
ALTER TABLE events ADD COLUMN scheduled_for INTEGER;
