//! The schema of the file, and its migrations.
//!
//! Rows are narrow and indexes are partial, because the cost of a delivered event is the number of pages that it
//! touches. Events and deliveries are appended. The last attempt is stored in the row of its delivery, so a delivery
//! with one attempt needs no other row. A delivery that ends adds no index entry, unless it is dead-lettered. The
//! history index by tenant and endpoint is filled later, in sorted parts.
//!
//! The names of tables and columns are contracts; some are older than the names in the code.
//! `docs/internals/stored-names.md` explains them.
//!
//! The schema version is a number. Each migration step raises it by one, in one transaction.

/// Marks posthaste's files: `psth`.
pub(super) const APPLICATION_ID: i32 = 0x7073_7468;

/// The migration steps from an empty file to the newest schema version. Published steps never change.
pub(super) const MIGRATIONS: &[&str] = &[
    FIRST,
    CREDENTIALS,
    DASHBOARD,
    OPERATIONS,
    PROTECTION,
    FAN_OUTS,
    OWNER_EMAILS,
    ONE_OFF_REQUESTS,
    SCHEDULES,
    PAYLOADS,
];

/// The newest schema version that this program knows.
pub(super) const SCHEMA_VERSION: u32 = MIGRATIONS.len() as u32;

/// Names of the numbers in the table `meta`.
pub(super) mod meta {
    /// The last number given to a tenant or an endpoint.
    pub(crate) const LAST_NO: &str = "last_no";
    /// Deliveries up to this key are in the history.
    pub(crate) const DELIVERIES_UP_TO: &str = "deliveries_up_to";
    /// Events up to this key are in the history.
    pub(crate) const EVENTS_UP_TO: &str = "events_up_to";
    /// Maximum skew of an event's key: milliseconds that it is ahead of the event's acceptance time.
    pub(crate) const EVENT_CLOCK_SKEW: &str = "event_lead";
    /// Maximum skew of a delivery's key: milliseconds that it is ahead of its event's acceptance time.
    pub(crate) const DELIVERY_CLOCK_SKEW: &str = "delivery_lead";
    /// The last key used before rows were deleted. Keys up to it are never generated again.
    pub(crate) const LAST_KEY: &str = "last_key";
    /// The time of the machine's clock at which the node's time meets it again after it was set back.
    pub(crate) const CLOCK_LEAD_UNTIL: &str = "clock_lead_until";
    /// A recent time of the node, behind which its time does not go back.
    pub(crate) const CLOCK_SAVED_AT: &str = "clock_saved_at";
    /// The time of the last write probe.
    pub(crate) const PROBED_AT: &str = "probed_at";
    /// Notifications up to this number are processed.
    pub(crate) const LAST_PROCESSED_NOTIFICATION: &str = "told";
}

/// Unattended operation: plans, retention periods, stats, alerts, notifications, emails, usage and trace contexts.
const OPERATIONS: &str = include_str!("fourth.sql");

/// Protection settings of tenants and endpoints, and defaults for endpoints.
const PROTECTION: &str = include_str!("fifth.sql");

/// Requests whose deliveries are stored in pieces and not complete.
///
/// The keys of the events and deliveries of a request are consecutive: they begin with `first_event` and end with
/// `last_key`. The deliveries up to `stored_up_to` are stored.
const FAN_OUTS: &str = "
CREATE TABLE fan_outs (
    first_event INTEGER PRIMARY KEY,
    last_event INTEGER NOT NULL,
    last_key INTEGER NOT NULL,
    tenant_no INTEGER NOT NULL,
    stored_up_to INTEGER NOT NULL
);
";
/// Confirmation of owner addresses, and emails per tenant and day.
const OWNER_EMAILS: &str = include_str!("owner_emails.sql");

/// One-off requests: origin endpoints, the keys of tenants, and the request of an event.
const ONE_OFF_REQUESTS: &str = include_str!("one_off_requests.sql");

/// Schedules and their runs, and the occurrence of an event.
const SCHEDULES: &str = include_str!("schedules.sql");

/// Payloads of large requests.
const PAYLOADS: &str = include_str!("payloads.sql");

/// Signature styles and credentials of endpoints.
const CREDENTIALS: &str = "
ALTER TABLE endpoints ADD COLUMN signature_style INTEGER NOT NULL DEFAULT 0;
ALTER TABLE endpoints ADD COLUMN sealed_credentials BLOB NOT NULL DEFAULT x'';
";

/// The dashboard: sessions, the audit log, dead letters by failure kind, and endpoints that need attention.
///
/// The audit log stores a tenant twice: by its id, for readers of the whole log, and by its number, so that a later
/// tenant with the same id cannot read the entry.
const DASHBOARD: &str = "
CREATE TABLE passes (
    id BLOB PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    tenant_no INTEGER,
    key_hash BLOB,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX passes_by_tenant ON passes (tenant_no, id) WHERE tenant_no IS NOT NULL;
CREATE INDEX passes_by_key ON passes (key_hash) WHERE key_hash IS NOT NULL;
CREATE INDEX passes_by_end ON passes (expires_at);

CREATE TABLE audit (
    no INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    actor_key BLOB,
    via INTEGER NOT NULL,
    source TEXT,
    action TEXT NOT NULL,
    tenant TEXT,
    tenant_no INTEGER,
    resource TEXT NOT NULL,
    outcome INTEGER,
    code TEXT
);
CREATE INDEX audit_by_name ON audit (tenant, id) WHERE tenant IS NOT NULL;
CREATE INDEX audit_by_tenant ON audit (tenant_no, id) WHERE tenant_no IS NOT NULL;

CREATE INDEX dead_by_kind ON deliveries (endpoint_no, kind) WHERE status = 3;
CREATE INDEX troubled ON endpoints (tenant_no, id, standing)
    WHERE standing = 0 AND tripped = 1 OR standing = 1 OR standing = 2 AND reason <> '\"manual\"';
";

const FIRST: &str = "
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta (name, value) VALUES
    ('last_no', 0), ('deliveries_up_to', 0), ('events_up_to', 0), ('event_lead', 0),
    ('delivery_lead', 0), ('last_key', 0), ('probed_at', 0);

CREATE TABLE tenants (
    no INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    policy TEXT,
    limits TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    deleted INTEGER NOT NULL
);
CREATE UNIQUE INDEX tenants_by_id ON tenants (id) WHERE deleted = 0;
CREATE INDEX tenants_by_age ON tenants (created_at, id) WHERE deleted = 0;

CREATE TABLE keys (
    id BLOB PRIMARY KEY,
    scope INTEGER NOT NULL,
    name TEXT NOT NULL,
    hash BLOB NOT NULL UNIQUE,
    created_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX keys_by_scope ON keys (scope, id);

CREATE TABLE endpoints (
    no INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    tenant_no INTEGER NOT NULL,
    standing INTEGER NOT NULL,
    reason TEXT,
    tripped INTEGER NOT NULL,
    health_revision INTEGER NOT NULL,
    health TEXT NOT NULL,
    url TEXT NOT NULL,
    description TEXT NOT NULL,
    event_types TEXT NOT NULL,
    policy TEXT,
    timeout_ms INTEGER NOT NULL,
    max_in_flight INTEGER NOT NULL,
    per_second REAL NOT NULL,
    burst INTEGER NOT NULL,
    ordered INTEGER NOT NULL,
    sealed_headers BLOB NOT NULL,
    sealed_keys BLOB NOT NULL,
    owner_email TEXT,
    created_at INTEGER NOT NULL,
    revision INTEGER NOT NULL
);
CREATE INDEX endpoints_by_tenant ON endpoints (tenant_no, id);

CREATE TABLE events (
    key INTEGER PRIMARY KEY,
    tail INTEGER NOT NULL,
    tenant_no INTEGER NOT NULL,
    type TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    deliver_at INTEGER,
    ordering INTEGER,
    test INTEGER NOT NULL,
    content_type TEXT,
    idempotency_key TEXT,
    deliveries BLOB NOT NULL,
    payload BLOB NOT NULL
);
CREATE TABLE idempotency (
    tenant_no INTEGER NOT NULL,
    key TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    event_key INTEGER NOT NULL,
    event_tail INTEGER NOT NULL,
    PRIMARY KEY (tenant_no, key)
) WITHOUT ROWID;

CREATE TABLE deliveries (
    key INTEGER PRIMARY KEY,
    tail INTEGER NOT NULL,
    endpoint_no INTEGER NOT NULL,
    event_key INTEGER NOT NULL,
    event_tail INTEGER NOT NULL,
    status INTEGER NOT NULL,
    due INTEGER,
    trigger INTEGER NOT NULL,
    first_due INTEGER NOT NULL,
    give_up_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    spent INTEGER NOT NULL,
    delay_ms INTEGER,
    granted TEXT,
    ordering INTEGER,
    ended_at INTEGER,
    reason INTEGER,
    kind INTEGER,
    last TEXT
);
CREATE INDEX due ON deliveries (endpoint_no, due) WHERE due IS NOT NULL;
CREATE INDEX ordered ON deliveries (endpoint_no, ordering)
    WHERE due IS NOT NULL AND ordering IS NOT NULL;
CREATE INDEX retrying ON deliveries (first_due) WHERE status = 1;
CREATE INDEX dead ON deliveries (endpoint_no) WHERE status = 3;

CREATE TABLE attempts (
    delivery_key INTEGER NOT NULL,
    number INTEGER NOT NULL,
    entry TEXT NOT NULL,
    PRIMARY KEY (delivery_key, number)
) WITHOUT ROWID;

CREATE TABLE delivery_history (
    scope INTEGER NOT NULL, key INTEGER NOT NULL, PRIMARY KEY (scope, key)
) WITHOUT ROWID;
CREATE TABLE event_history (
    scope INTEGER NOT NULL, key INTEGER NOT NULL, PRIMARY KEY (scope, key)
) WITHOUT ROWID;

CREATE TABLE replays (
    key INTEGER PRIMARY KEY,
    tail INTEGER NOT NULL,
    tenant_no INTEGER NOT NULL,
    status INTEGER NOT NULL,
    scope INTEGER NOT NULL,
    endpoint BLOB,
    event_type TEXT,
    kind INTEGER,
    since INTEGER,
    until INTEGER,
    total INTEGER NOT NULL,
    replayed INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    finished_at INTEGER
);
CREATE INDEX replays_by_tenant ON replays (tenant_no);
CREATE INDEX running ON replays (status) WHERE status = 0;
CREATE TABLE replay_targets (
    replay_key INTEGER NOT NULL, piece INTEGER NOT NULL, targets BLOB NOT NULL,
    PRIMARY KEY (replay_key, piece)
) WITHOUT ROWID;

CREATE TABLE notices (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    endpoint_no INTEGER NOT NULL,
    at INTEGER NOT NULL,
    name TEXT NOT NULL,
    detail TEXT NOT NULL
);
";
