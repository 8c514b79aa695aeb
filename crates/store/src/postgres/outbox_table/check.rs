//! Checks an outbox table for the operator: connection, table, columns, rights, index, trigger, and a trial run.
//!
//! [`check`] makes the checks of `posthaste outbox check` in order and stops after a failure without which the later
//! ones make no sense. It changes nothing: the trial run locks a row and rolls back.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::time::Tick;
use tokio::time::timeout;

use super::sql::FIND_TABLE;
use super::{BatchRequest, BeginResult, CHANNEL, OutboxError, OutboxSource, OutboxTable};
use crate::postgres::connection::{PgConnection, connect};
use crate::postgres::db_error::DbError;
use crate::postgres::settings::PostgresSettings;

/// Time limit for a `NOTIFY` message to arrive.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(2);

/// The columns with the types that they may have.
const COLUMNS: [(&str, &[&str]); 11] = [
    ("id", &["bigint", "integer"]),
    ("tenant", TEXT),
    ("type", TEXT),
    ("payload", &["json", "jsonb", "text"]),
    ("deliver_at", &["timestamp with time zone"]),
    ("ordering_key", TEXT),
    ("idempotency_key", &["text", "character varying", "uuid"]),
    ("created_at", &["timestamp with time zone"]),
    ("event_id", &["text", "character varying"]),
    ("accepted_at", &["timestamp with time zone"]),
    ("error", &["text"]),
];
const TEXT: &[&str] = &["text", "character varying", "uuid"];

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckState {
    /// Everything is as it should be.
    Ok,
    /// The outbox works, but not as well as it could.
    Warning,
    /// The outbox does not work.
    Failed,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxCheck {
    /// The subject of the check, such as `permissions`.
    pub subject: &'static str,
    /// The result.
    pub state: CheckState,
    /// The finding, and the remedy if something is missing.
    pub detail: String,
}

/// Checks an outbox, up to the first check without which the later ones make no sense. Changes nothing.
pub async fn check(source: &OutboxSource) -> Vec<OutboxCheck> {
    let mut checks = Checks::default();
    // A check that failed has been noted.
    let _ = checks.run(source).await;
    checks.done
}

#[derive(Default)]
struct Checks {
    done: Vec<OutboxCheck>,
}

/// A check failed, and the later ones make no sense.
struct Stop;

impl Checks {
    fn note(&mut self, subject: &'static str, state: CheckState, detail: impl Into<String>) {
        self.done.push(OutboxCheck {
            subject,
            state,
            detail: detail.into(),
        });
    }

    fn fail(&mut self, subject: &'static str, detail: impl Into<String>) -> Stop {
        self.note(subject, CheckState::Failed, detail);
        Stop
    }

    /// Returns the answer of the database, or notes that this check failed.
    fn answered<T>(
        &mut self,
        subject: &'static str,
        answer: Result<T, DbError>,
    ) -> Result<T, Stop> {
        answer.map_err(|fault| self.fail(subject, fault.to_string()))
    }

    async fn run(&mut self, source: &OutboxSource) -> Result<(), Stop> {
        let clock = Arc::new(Tick::default);
        let settings = PostgresSettings::new(source.server.clone(), source.dial.clone(), clock);
        let (conn, driver) = match connect(&settings, &source.server).await {
            Ok(connected) => connected,
            Err(why) => return Err(self.fail("connection", why.to_string())),
        };
        let driver = tokio::spawn(async move {
            // The next statement on the connection reports its end.
            let _ = driver.await;
        });
        let found = self.read_catalog(source, &conn).await;
        driver.abort();
        found?;
        self.try_batch(source).await
    }

    /// Reads the catalog.
    async fn read_catalog(
        &mut self,
        source: &OutboxSource,
        conn: &PgConnection,
    ) -> Result<(), Stop> {
        let version = conn
            .query_one(
                "SELECT current_setting('server_version'), current_setting('server_encoding'), current_user::text",
                &[],
            )
            .await;
        let row = self.answered("connection", version)?;
        let (version, encoding, user): (String, String, String) =
            (row.get(0), row.get(1), row.get(2));
        let detail = format!("{} as {user}, PostgreSQL {version}", source.server);
        self.note("connection", CheckState::Ok, detail);
        if encoding == "SQL_ASCII" {
            self.note(
                "encoding",
                CheckState::Warning,
                "the database has the encoding SQL_ASCII: rows whose text is not UTF-8 get an error",
            );
        }
        let table = &source.table;
        let quoted = table.quoted();
        let found = conn.query_opt(FIND_TABLE, &[&quoted]).await;
        let Some(found) = self.answered("table", found)? else {
            let detail = format!(
                "there is no table {table}, or its schema is not accessible: create it with `posthaste outbox sql \
                 --table {table}`, and grant USAGE on its schema to {user}"
            );
            return Err(self.fail("table", detail));
        };
        self.note("table", CheckState::Ok, found.get::<_, String>(0));
        self.columns(conn, &quoted).await?;
        self.rights(conn, source, &quoted, &user).await?;
        self.check_index_and_trigger(conn, &quoted).await?;
        self.rows(conn, &quoted).await
    }

    async fn columns(&mut self, conn: &PgConnection, table: &str) -> Result<(), Stop> {
        let found = conn
            .query(
                "SELECT attname::text, format_type(atttypid, NULL) FROM pg_attribute \
                 WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped",
                &[&table],
            )
            .await;
        let found = self.answered("columns", found)?;
        let found: Vec<(String, String)> =
            found.iter().map(|row| (row.get(0), row.get(1))).collect();
        let mut wrong = Vec::new();
        for (name, types) in COLUMNS {
            match found.iter().find(|(column, _)| column == name) {
                None => wrong.push(format!("{name} is missing ({})", types[0])),
                Some((_, found)) if !types.contains(&found.as_str()) => {
                    wrong.push(format!("{name} is {found} and must be {}", types[0]));
                }
                Some(_) => {}
            }
        }
        if !wrong.is_empty() {
            return Err(self.fail("columns", wrong.join("; ")));
        }
        self.note("columns", CheckState::Ok, "all there");
        if found
            .iter()
            .any(|(name, kind)| name == "payload" && kind == "jsonb")
        {
            self.note(
                "payload",
                CheckState::Warning,
                "payload is jsonb, which changes spaces and the order of names; json keeps the bytes",
            );
        }
        Ok(())
    }

    async fn rights(
        &mut self,
        conn: &PgConnection,
        source: &OutboxSource,
        table: &str,
        user: &str,
    ) -> Result<(), Stop> {
        let row = conn
            .query_one(
                "SELECT has_table_privilege($1::text, 'SELECT'), \
                 has_column_privilege($1::text, 'error', 'UPDATE'), \
                 has_column_privilege($1::text, 'accepted_at', 'UPDATE') \
                 AND has_column_privilege($1::text, 'event_id', 'UPDATE'), \
                 has_table_privilege($1::text, 'DELETE'), \
                 (SELECT relrowsecurity FROM pg_class WHERE oid = to_regclass($1::text))",
                &[&table],
            )
            .await;
        let row = self.answered("permissions", row)?;
        let [select, mark_error, mark_accepted, delete, row_security] =
            [0, 1, 2, 3, 4].map(|column| row.get::<_, bool>(column));
        let mut lacks = Vec::new();
        if !select {
            lacks.push("SELECT");
        }
        if !mark_error || source.keep && !mark_accepted {
            lacks.push("UPDATE");
        }
        if !source.keep && !delete {
            lacks.push("DELETE");
        }
        if !lacks.is_empty() {
            let lacks = lacks.join(", ");
            let detail = format!(
                "{user} lacks {lacks}: run `GRANT {lacks} ON {table} TO {user}` as the owner of the table"
            );
            return Err(self.fail("permissions", detail));
        }
        self.note(
            "permissions",
            CheckState::Ok,
            "rows can be read, removed and marked",
        );
        if row_security {
            self.note(
                "row security",
                CheckState::Warning,
                "the table has row-level security: rows that a policy hides from posthaste are never sent",
            );
        }
        Ok(())
    }

    /// Looks for the index and the trigger.
    async fn check_index_and_trigger(
        &mut self,
        conn: &PgConnection,
        table: &str,
    ) -> Result<(), Stop> {
        let index = conn
            .query_one(
                "SELECT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = to_regclass($1) AND i.indisvalid \
                 AND i.indpred IS NOT NULL AND pg_get_indexdef(i.indexrelid, 1, true) = 'id' \
                 AND pg_get_expr(i.indpred, i.indrelid) LIKE '%accepted_at%error%')",
                &[&table],
            )
            .await;
        match self.answered("index", index)?.get(0) {
            true => self.note("index", CheckState::Ok, "waiting rows are found by their index"),
            false => self.note(
                "index",
                CheckState::Warning,
                "the index of waiting rows is missing, so reading slows down with the number of rows: `posthaste \
                 outbox sql` creates it",
            ),
        }
        let trigger = conn
            .query_one(
                "SELECT EXISTS (SELECT 1 FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid \
                 WHERE t.tgrelid = to_regclass($1) AND t.tgenabled IN ('O', 'A') AND NOT t.tgisinternal \
                 AND p.prosrc LIKE '%' || $2::text || '%')",
                &[&table, &CHANNEL],
            )
            .await;
        match self.answered("trigger", trigger)?.get(0) {
            true => self.note("trigger", CheckState::Ok, "new rows are announced"),
            false => self.note(
                "trigger",
                CheckState::Warning,
                "the trigger is missing, so new rows wait up to a second: `posthaste outbox sql` creates it",
            ),
        }
        Ok(())
    }

    async fn rows(&mut self, conn: &PgConnection, table: &str) -> Result<(), Stop> {
        let counted = conn
            .query_one(
                &format!(
                    "SELECT (SELECT count(*) FROM {table} WHERE accepted_at IS NULL AND error IS NULL), \
                     (SELECT count(*) FROM {table} WHERE accepted_at IS NULL AND error IS NOT NULL)"
                ),
                &[],
            )
            .await;
        let row = self.answered("rows", counted)?;
        let (waiting, refused): (i64, i64) = (row.get(0), row.get(1));
        let state = match refused {
            0 => CheckState::Ok,
            _ => CheckState::Warning,
        };
        let detail = format!("{waiting} waiting, {refused} with an error");
        self.note("rows", state, detail);
        Ok(())
    }

    /// Locks a row, rolls back, and waits for a `NOTIFY` message.
    async fn try_batch(&mut self, source: &OutboxSource) -> Result<(), Stop> {
        match self.try_reading(source).await {
            Ok(()) => {}
            Err(error) => return Err(self.fail("trial", error.to_string())),
        }
        Ok(())
    }

    async fn try_reading(&mut self, source: &OutboxSource) -> Result<(), OutboxError> {
        let table = OutboxTable::open(source).await?;
        let request = BatchRequest {
            after: i64::MIN,
            without_tenants: Vec::new(),
            max_rows: 1,
            max_bytes: 1,
            max_payload_bytes: 0,
        };
        match table.begin(&request).await? {
            BeginResult::Locked(_) => {
                table.roll_back().await?;
                self.note("trial", CheckState::Ok, "a row can be locked and released");
            }
            BeginResult::OtherReader => {
                self.note("trial", CheckState::Ok, "a server is reading it now");
            }
        }
        // The name of the table is what the trigger sends.
        let name = table
            .conn
            .query_one(FIND_TABLE, &[&source.table.quoted()])
            .await?;
        let name: String = name.get(0);
        table
            .conn
            .execute("SELECT pg_notify($1, $2)", &[&CHANNEL, &name])
            .await?;
        match timeout(NOTIFY_TIMEOUT, table.notified()).await {
            Ok(()) => self.note("notify", CheckState::Ok, "messages arrive"),
            Err(_) => self.note(
                "notify",
                CheckState::Warning,
                "NOTIFY messages do not arrive, probably because of a proxy with transaction pooling: new rows wait up to \
                 a second; set `database` to a URL of the server itself",
            ),
        }
        Ok(())
    }
}
