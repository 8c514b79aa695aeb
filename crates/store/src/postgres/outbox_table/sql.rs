//! The SQL of an outbox table: how it is created, and the statements that read it.
//!
//! [`setup_sql`] is what an operator runs in the database of the application. `Statements` has the statements of the
//! reader for one table; the condition for rows that wait is that of the index, so that finding them reads no other
//! rows.

use super::CHANNEL;
use super::table_name::TableName;

/// First part of the advisory lock of a reader; the second is the table's oid.
const READER_LOCK: i32 = 1_885_892_450;
/// Rows that wait. The same condition is that of the index.
const WAITS: &str = "accepted_at IS NULL AND error IS NULL";
/// Finds a table, and returns its name as the trigger sends it.
pub(super) const FIND_TABLE: &str = "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) \
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)";

/// Columns of a row whose text is limited, besides its payload.
const LIMITED: [&str; 4] = ["tenant", "type", "ordering_key", "idempotency_key"];
/// Maximum size of each of them, in bytes. A longer one is not transferred. No valid value has more.
pub(super) const MAX_TEXT_BYTES: usize = 1_024;

/// Number of milliseconds that stands for `infinity`. In microseconds, the last years of a `timestamptz` exceed it.
const INFINITY_MS: i64 = i64::MAX;

/// The statements for one table.
pub(super) struct Statements {
    /// Takes the advisory lock of the transaction, if it is free.
    pub(super) lock: String,
    /// Locks and reads waiting rows.
    pub(super) read: String,
    /// Reads the ordering keys of waiting rows that the batch does not have.
    pub(super) skipped: String,
    /// Removes or marks accepted rows.
    pub(super) accept: String,
    /// Notes the errors of refused rows.
    pub(super) refuse: String,
    /// Reads the oldest waiting row.
    pub(super) oldest: String,
    /// True if accepted rows are marked.
    pub(super) keep: bool,
}

impl Statements {
    pub(super) fn new(table: &TableName, keep: bool) -> Statements {
        let name = table.quoted();
        let age = "(extract(epoch FROM clock_timestamp() - \
             CASE WHEN isfinite(created_at) THEN created_at ELSE clock_timestamp() END) * 1000)::bigint AS age_ms";
        let limited = LIMITED.map(|column| {
            format!(
                "CASE WHEN octet_length({column}) <= {MAX_TEXT_BYTES} THEN {column} END AS {column}"
            )
        });
        let limited = limited.join(", ");
        let too_long = LIMITED.map(|column| {
            format!("WHEN octet_length({column}) > {MAX_TEXT_BYTES} THEN '{column}'")
        });
        let too_long = format!("CASE {} END AS too_long", too_long.join(" "));
        // A row without a tenant is read as well: it gets an error.
        let of_tenants = "(tenant IS NULL OR tenant::text <> ALL ($2::text[]))";
        Statements {
            lock: format!(
                "SELECT pg_try_advisory_xact_lock({READER_LOCK}, '{name}'::regclass::oid::int)"
            ),
            read: format!(
                "WITH locked AS MATERIALIZED (SELECT id::bigint AS id, tenant::text AS tenant, type::text AS type, \
                 payload::text AS payload, deliver_at, ordering_key::text AS ordering_key, \
                 idempotency_key::text AS idempotency_key, created_at \
                 FROM {name} WHERE {WAITS} AND id > $1::bigint AND {of_tenants} \
                 ORDER BY id LIMIT $3::bigint FOR UPDATE SKIP LOCKED), \
                 sized AS (SELECT *, octet_length(payload)::bigint AS payload_bytes, \
                 sum(octet_length(payload)) OVER (ORDER BY id) AS total_bytes FROM locked) \
                 SELECT id, {limited}, {too_long}, \
                 CASE WHEN payload_bytes <= $5::bigint THEN payload END AS payload, payload_bytes, \
                 CASE WHEN deliver_at = 'infinity' THEN {INFINITY_MS} WHEN isfinite(deliver_at) \
                 THEN floor(extract(epoch FROM deliver_at) * 1000)::bigint \
                 WHEN deliver_at IS NOT NULL THEN 0 END AS deliver_at_ms, \
                 CASE WHEN isfinite(created_at) \
                 THEN least(extract(epoch FROM created_at) * 1000000, {INFINITY_MS})::bigint END \
                 AS created_at_us, {age} \
                 FROM sized WHERE coalesce(total_bytes - payload_bytes < $4::bigint, true) ORDER BY id"
            ),
            // Rows with longer texts are refused, so no other row waits for them.
            skipped: format!(
                "SELECT DISTINCT coalesce(tenant::text, ''), ordering_key::text FROM {name} WHERE {WAITS} \
                 AND id > $1::bigint AND id < $2::bigint AND octet_length(ordering_key::text) <= {MAX_TEXT_BYTES} \
                 AND coalesce(octet_length(tenant::text), 0) <= {MAX_TEXT_BYTES} \
                 AND id <> ALL ($3::bigint[]) AND (tenant IS NULL OR tenant::text <> ALL ($4::text[])) LIMIT $5::bigint"
            ),
            accept: match keep {
                true => format!(
                    "UPDATE {name} AS t SET event_id = e.event, accepted_at = clock_timestamp() \
                     FROM unnest($1::bigint[], $2::text[]) AS e (id, event) WHERE t.id = e.id"
                ),
                false => format!("DELETE FROM {name} WHERE id = ANY ($1::bigint[])"),
            },
            refuse: format!(
                "UPDATE {name} AS t SET error = e.error \
                 FROM unnest($1::bigint[], $2::text[]) AS e (id, error) WHERE t.id = e.id"
            ),
            oldest: format!("SELECT {age} FROM {name} WHERE {WAITS} ORDER BY id LIMIT 1"),
            keep,
        }
    }

    /// Returns every statement.
    pub(super) fn all(&self) -> [&str; 6] {
        [
            &self.lock,
            &self.read,
            &self.skipped,
            &self.accept,
            &self.refuse,
            &self.oldest,
        ]
    }
}

/// Returns the SQL that creates an outbox table with its index and its trigger. It may be run again.
pub fn setup_sql(table: &TableName) -> String {
    let name = table.quoted();
    let index = table.object("_waiting");
    let function = table.beside("_notify");
    let trigger = table.object("_notify");
    let schema = match table.schema() {
        Some(schema) => format!("CREATE SCHEMA IF NOT EXISTS \"{schema}\";\n\n"),
        None => String::new(),
    };
    let usage = match table.schema() {
        Some(schema) => format!("GRANT USAGE ON SCHEMA \"{schema}\" TO posthaste;\n--   "),
        None => String::new(),
    };
    format!(
        "-- The transactional outbox of posthaste. Run it in the application's database, as the owner of its tables.
-- It can be run again: existing objects are not changed.

{schema}CREATE TABLE IF NOT EXISTS {name} (
    id              bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    tenant          text,                               -- required, unless the configuration names the tenant
    type            text        NOT NULL,               -- such as 'invoice.paid'
    payload         json        NOT NULL,               -- sent byte for byte; jsonb would change spaces and order
    deliver_at      timestamptz,                        -- not before this time; at once if absent
    ordering_key    text,                               -- to ordered endpoints, the same key is delivered in the order of id
    idempotency_key text,                               -- by default the identity of the row
    created_at      timestamptz NOT NULL DEFAULT now(),
    event_id        text,                               -- set by posthaste, if accepted rows are kept
    accepted_at     timestamptz,                        -- set by posthaste, if accepted rows are kept
    error           text                                -- set by posthaste: why the row cannot be accepted
);

-- Rows that wait.
CREATE INDEX IF NOT EXISTS {index} ON {name} (id) WHERE {WAITS};

-- Wakes posthaste when rows are committed. Without it, posthaste looks once a second.
CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('{CHANNEL}', quote_ident(TG_TABLE_SCHEMA) || '.' || quote_ident(TG_TABLE_NAME));
    RETURN NULL;
END
$$;
DROP TRIGGER IF EXISTS {trigger} ON {name};
CREATE TRIGGER {trigger} AFTER INSERT ON {name}
    FOR EACH STATEMENT EXECUTE FUNCTION {function}();

-- posthaste connects as a user of its own. It needs these rights, and no others:
--   {usage}GRANT SELECT, UPDATE, DELETE ON {name} TO posthaste;
-- The application needs INSERT.
"
    )
}
