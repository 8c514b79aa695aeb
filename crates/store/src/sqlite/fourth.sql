-- What it takes to run it at night: figures by time, alerts, notices and letters, plans, usage, and what is kept for how
-- long. A scope is one number: 0 is everything, else the number of a tenant or of an endpoint.

-- Tenants: the plan they are on.
ALTER TABLE tenants ADD COLUMN plan TEXT;

-- What is kept for how long: an event may outlive what it carried, and a replay counts what it passes over.
ALTER TABLE events ADD COLUMN payload_removed_at INTEGER;
ALTER TABLE replays ADD COLUMN skipped INTEGER NOT NULL DEFAULT 0;

-- Notices may be about anything, not only about endpoints.
ALTER TABLE notices RENAME COLUMN endpoint_no TO scope;

-- Figures: what happened, by time. Written by flushes, so never in the way of an event.
-- Ordered by time, so that what a flush touches lies together.
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

-- Alerts: of one name about one scope, at most one is open.
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

-- The outbox: deliveries that failed and that nobody was told of, summed up by endpoint and cause; letters, by
-- recipient; how far the herald has come.
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
-- Notices of before had nobody to tell them, and are no news any more.
INSERT INTO meta (name, value) SELECT 'told', coalesce(max(number), 0) FROM notices;

-- Events: whose trace they belong to, as the standard writes it.
ALTER TABLE events ADD COLUMN trace TEXT;

-- Usage: how many events came, by tenant and calendar month, counted from January of the year 0.
CREATE TABLE usage (
    tenant_no INTEGER NOT NULL,
    month INTEGER NOT NULL,
    events INTEGER NOT NULL,
    PRIMARY KEY (tenant_no, month)
) WITHOUT ROWID;
CREATE INDEX usage_month ON usage (month);
