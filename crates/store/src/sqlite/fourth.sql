-- What it takes to run it at night: figures by time, alerts, notices and letters, plans, usage, and what is kept for how
-- long. A scope is one number: 0 is everything, else the number of a tenant or of an endpoint.

-- Tenants: the plan they are on.
ALTER TABLE tenants ADD COLUMN plan TEXT;

-- Notices may be about anything, not only about endpoints.
ALTER TABLE notices RENAME COLUMN endpoint_no TO scope;

-- Figures: what happened, by time. Written by flushes, so never in the way of an event.
CREATE TABLE figures (
    scope INTEGER NOT NULL,
    width INTEGER NOT NULL,
    bucket INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    retries INTEGER NOT NULL,
    second_attempts INTEGER NOT NULL,
    second_successes INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    latency_micros INTEGER NOT NULL,
    slowest_micros INTEGER NOT NULL,
    PRIMARY KEY (scope, width, bucket)
) WITHOUT ROWID;
CREATE INDEX figures_by_age ON figures (width, bucket);

-- Alerts: of one name about one scope, at most one is open.
CREATE TABLE alerts (
    id BLOB PRIMARY KEY,
    name TEXT NOT NULL,
    scope INTEGER NOT NULL,
    raised_at INTEGER NOT NULL,
    resolved_at INTEGER,
    detail TEXT NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX alerts_open ON alerts (name, scope) WHERE resolved_at IS NULL;

-- The outbox: deliveries that failed and that nobody was told of, summed up by endpoint; letters, by recipient; how far
-- the herald has come.
CREATE TABLE failures (
    endpoint_no INTEGER PRIMARY KEY,
    count INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    detail TEXT NOT NULL
);
CREATE TABLE letters (
    recipient TEXT PRIMARY KEY,
    revision INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    omitted INTEGER NOT NULL,
    lines TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX letters_due ON letters (due_at);
INSERT INTO meta (name, value) VALUES ('told', 0);

-- Usage: how many events came, by tenant and calendar month, counted from January of the year 0.
CREATE TABLE usage (
    tenant_no INTEGER NOT NULL,
    month INTEGER NOT NULL,
    events INTEGER NOT NULL,
    PRIMARY KEY (tenant_no, month)
) WITHOUT ROWID;
