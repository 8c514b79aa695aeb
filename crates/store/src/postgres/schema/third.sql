-- Unattended operation: stats, alerts, notifications, emails, plans, usage and retention. A scope is one number: 0 for
-- everything, else the number of a tenant or of an endpoint.

-- The plan of a tenant.
ALTER TABLE tenants ADD COLUMN plan text;

-- Retention: an event may outlive its payload, and a replay counts the deliveries that it skips.
ALTER TABLE events ADD COLUMN payload_removed_at bigint;
ALTER TABLE replays ADD COLUMN skipped bigint NOT NULL DEFAULT 0;

-- Notifications may be about any scope: notices.endpoint_no holds a scope from now on. The column keeps its name, because
-- nodes of the previous version write to it during a rolling upgrade.

-- Stats by time bucket. Written in intervals, so that they never delay an event.
-- Ordered by time, so that one write touches adjacent rows.
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

-- The number of the last stats that each process has added since its start, and their time. Stats whose commit was not
-- answered are found here, and not added again.
CREATE TABLE flushes (
    flusher uuid PRIMARY KEY,
    number bigint NOT NULL,
    at bigint NOT NULL
) WITH (fillfactor = 50);

-- Alerts: at most one active alert per name and scope.
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

-- Notifications to send: failed deliveries that are not notified yet, summed up by endpoint and cause; pending emails by
-- recipient; the last processed notification.
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
-- Older notifications are not sent: before this version there was no recipient.
INSERT INTO meta (name, value) SELECT 'told', value FROM meta WHERE name = 'last_notice';

-- The W3C trace context of an event.
ALTER TABLE events ADD COLUMN trace text;

-- Usage: number of events by calendar month and tenant, with one slot per node. Months are counted from January of the year 0.
CREATE TABLE usage (
    month integer NOT NULL,
    tenant_no bigint NOT NULL,
    slot smallint NOT NULL,
    events bigint NOT NULL,
    PRIMARY KEY (month, tenant_no, slot)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Rate meters of tenants with quotas. A transaction that accepts events of a tenant locks its row until the commit.
CREATE TABLE meters (
    tenant_no bigint PRIMARY KEY,
    arrival_ns bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Concurrency shares: the attempts in flight that each node may have for a limited tenant, and the number that it wants.
CREATE TABLE grants (
    tenant_no bigint NOT NULL,
    node bigint NOT NULL,
    slots integer NOT NULL,
    wants integer NOT NULL,
    PRIMARY KEY (tenant_no, node)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
