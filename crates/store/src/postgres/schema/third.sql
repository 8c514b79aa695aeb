-- What it takes to run it at night: figures by time, alerts, notices and letters, plans, usage, and what is kept for how
-- long. A scope is one number: 0 is everything, else the number of a tenant or of an endpoint.

-- Tenants: the plan they are on.
ALTER TABLE tenants ADD COLUMN plan text;

-- What is kept for how long: an event may outlive what it carried, and a replay counts what it passes over.
ALTER TABLE events ADD COLUMN payload_removed_at bigint;
ALTER TABLE replays ADD COLUMN skipped bigint NOT NULL DEFAULT 0;

-- Notices may be about anything: notices.endpoint_no holds a scope from now on. It keeps its name, since nodes of the
-- version before write to it for as long as they are being replaced.

-- Figures: what happened, by time. Written by flushes, so never in the way of an event.
-- Ordered by time, so that what a flush touches lies together.
CREATE TABLE figures (
    width smallint NOT NULL,
    bucket bigint NOT NULL,
    scope bigint NOT NULL,
    attempts bigint NOT NULL,
    retries bigint NOT NULL,
    second_attempts bigint NOT NULL,
    second_successes bigint NOT NULL,
    succeeded bigint NOT NULL,
    failed bigint NOT NULL,
    latency_micros bigint NOT NULL,
    slowest_micros bigint NOT NULL,
    PRIMARY KEY (width, bucket, scope)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX figures_failing ON figures (width, bucket) WHERE retries + failed > 0;

-- Flushes: the number of the last figures that each node has added since it was started, and of when the latest of them
-- were. One whose commit nobody heard of is found here, and not added again.
CREATE TABLE flushes (
    flusher uuid PRIMARY KEY,
    number bigint NOT NULL,
    at bigint NOT NULL
) WITH (fillfactor = 50);

-- Alerts: of one name about one scope, at most one is open.
CREATE TABLE alerts (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    scope bigint NOT NULL,
    tenant_no bigint,
    raised_at bigint NOT NULL,
    resolved_at bigint,
    detail text NOT NULL
);
CREATE UNIQUE INDEX alerts_open ON alerts (name, scope) WHERE resolved_at IS NULL;
CREATE INDEX alerts_by_tenant ON alerts (tenant_no, id) WHERE tenant_no IS NOT NULL;
CREATE INDEX alerts_by_end ON alerts (resolved_at) WHERE resolved_at IS NOT NULL;

-- The outbox: deliveries that failed and that nobody was told of, summed up by endpoint and cause; letters, by
-- recipient; how far the herald has come.
CREATE TABLE failures (
    endpoint_no bigint NOT NULL,
    reason smallint NOT NULL,
    kind smallint NOT NULL,
    count bigint NOT NULL,
    first_at bigint NOT NULL,
    last_at bigint NOT NULL,
    example uuid NOT NULL,
    PRIMARY KEY (endpoint_no, reason, kind)
) WITH (fillfactor = 50);
CREATE TABLE letters (
    recipient text COLLATE "C" PRIMARY KEY,
    revision bigint NOT NULL,
    first_at bigint NOT NULL,
    due_at bigint NOT NULL,
    tries integer NOT NULL,
    omitted bigint NOT NULL,
    lines text NOT NULL
);
CREATE INDEX letters_due ON letters (due_at);
-- Notices of before had nobody to tell them, and are no news any more.
INSERT INTO meta (name, value) SELECT 'told', value FROM meta WHERE name = 'last_notice';

-- Events: whose trace they belong to, as the standard writes it.
ALTER TABLE events ADD COLUMN trace text;

-- Usage: how many events came, by calendar month, counted from January of the year 0, and tenant; in a slot for each node.
CREATE TABLE usage (
    month integer NOT NULL,
    tenant_no bigint NOT NULL,
    slot smallint NOT NULL,
    events bigint NOT NULL,
    PRIMARY KEY (month, tenant_no, slot)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Meters: how fast events of limited tenants come. Whoever takes some in holds the row until they are committed.
CREATE TABLE meters (
    tenant_no bigint PRIMARY KEY,
    arrival_ns bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Grants: how many of a limited tenant's attempts each node may have under way, and how many it would.
CREATE TABLE grants (
    tenant_no bigint NOT NULL,
    node bigint NOT NULL,
    slots integer NOT NULL,
    wants integer NOT NULL,
    PRIMARY KEY (tenant_no, node)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
