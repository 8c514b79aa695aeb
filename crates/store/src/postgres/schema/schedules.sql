-- Schedules and their runs. `due` is the time at which the scheduler decides about an active schedule: that of the next
-- occurrence, unless it was postponed. `runs` counts the runs that were recorded; old ones are deleted.
CREATE SEQUENCE schedule_numbers;
CREATE TABLE schedules (
    no bigint PRIMARY KEY DEFAULT nextval('schedule_numbers'),
    tenant_no bigint NOT NULL,
    created_at bigint NOT NULL,
    due bigint,
    next_run_at bigint,
    last_run_at bigint,
    run_count bigint NOT NULL,
    runs bigint NOT NULL,
    revision bigint NOT NULL,
    failed_runs integer NOT NULL,
    shard smallint NOT NULL,
    status smallint NOT NULL,
    last_event uuid,
    id text COLLATE "C" NOT NULL,
    progress text,
    definition text NOT NULL
);
CREATE UNIQUE INDEX schedules_by_id ON schedules (tenant_no, id);
CREATE INDEX schedules_by_age ON schedules (tenant_no, created_at, id);
CREATE INDEX due_schedules ON schedules (due, no) WHERE due IS NOT NULL;
CREATE INDEX failing_schedules ON schedules (failed_runs) WHERE failed_runs > 2;
CREATE TABLE schedule_runs (
    schedule_no bigint NOT NULL,
    number bigint NOT NULL,
    scheduled_for bigint NOT NULL,
    started_at bigint NOT NULL,
    status smallint NOT NULL,
    event_id uuid,
    reason text,
    PRIMARY KEY (schedule_no, number)
);

-- Number of schedules of a tenant.
ALTER TABLE tenants ADD COLUMN schedules bigint NOT NULL DEFAULT 0;

-- The run that made an event.
ALTER TABLE events ADD COLUMN schedule text;
ALTER TABLE events ADD COLUMN scheduled_for bigint;
