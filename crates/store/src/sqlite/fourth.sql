-- Unattended operation: stats, alerts, notifications, emails, plans, usage and retention. A scope is one number: 0 for
-- everything, else the number of a tenant or of an endpoint.

-- The plan of a tenant.
ALTER TABLE tenants ADD COLUMN plan TEXT;

-- Retention: an event may outlive its payload, and a replay counts the deliveries that it skips.
ALTER TABLE events ADD COLUMN payload_removed_at INTEGER;
ALTER TABLE replays ADD COLUMN skipped INTEGER NOT NULL DEFAULT 0;

-- Notifications may be about any scope, not only about endpoints.
ALTER TABLE notices RENAME COLUMN endpoint_no TO scope;

-- Stats by time bucket. Written in intervals, so that they never delay an event.
-- Ordered by time, so that one write touches adjacent rows.
CREATE TABLE figures (
    width INTEGER NOT NULL,
    bucket INTEGER NOT NULL,
    scope INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    retries INTEGER NOT NULL,
    second_attempts INTEGER NOT NULL,
    second_successes INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    latency_micros INTEGER NOT NULL,
    slowest_micros INTEGER NOT NULL,
    PRIMARY KEY (width, bucket, scope)
) WITHOUT ROWID;
CREATE INDEX figures_failing ON figures (width, bucket) WHERE retries + failed > 0;

-- Alerts: at most one active alert per name and scope.
CREATE TABLE alerts (
    no INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL,
    scope INTEGER NOT NULL,
    tenant_no INTEGER,
    raised_at INTEGER NOT NULL,
    resolved_at INTEGER,
    detail TEXT NOT NULL
);
CREATE UNIQUE INDEX alerts_open ON alerts (name, scope) WHERE resolved_at IS NULL;
CREATE INDEX alerts_by_tenant ON alerts (tenant_no, id) WHERE tenant_no IS NOT NULL;
CREATE INDEX alerts_by_end ON alerts (resolved_at) WHERE resolved_at IS NOT NULL;

-- Notifications to send: failed deliveries that are not notified yet, summed up by endpoint and cause; pending emails by
-- recipient; the last processed notification.
CREATE TABLE failures (
    endpoint_no INTEGER NOT NULL,
    reason INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    count INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    example BLOB NOT NULL,
    UNIQUE (endpoint_no, reason, kind)
);
CREATE TABLE letters (
    recipient TEXT NOT NULL UNIQUE,
    revision INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    omitted INTEGER NOT NULL,
    lines TEXT NOT NULL
);
CREATE INDEX letters_due ON letters (due_at);
-- Older notifications are not sent: before this version there was no recipient.
INSERT INTO meta (name, value) SELECT 'told', coalesce(max(number), 0) FROM notices;

-- The W3C trace context of an event.
ALTER TABLE events ADD COLUMN trace TEXT;

-- Usage: number of events by tenant and calendar month. Months are counted from January of the year 0.
CREATE TABLE usage (
    tenant_no INTEGER NOT NULL,
    month INTEGER NOT NULL,
    events INTEGER NOT NULL,
    PRIMARY KEY (tenant_no, month)
) WITHOUT ROWID;
CREATE INDEX usage_month ON usage (month);
