//! A plain database connection for tools: creating a database for benchmarks, and reading server statistics.

use std::sync::Arc;

use posthaste_core::time::Tick;

use super::connection::{PgConnection, connect};
use super::db_error::DbError;
use super::dial::{Dial, ServerUrl};
use super::schema::migrate;
use super::settings::PostgresSettings;
use crate::OpenError;

/// A connection without statement timeouts that runs arbitrary SQL.
pub struct Session {
    conn: PgConnection,
    server: ServerUrl,
}

impl Session {
    /// Connects. Creates and migrates nothing.
    pub async fn open(server: &ServerUrl, dial: &Arc<dyn Dial>) -> Result<Session, OpenError> {
        let clock = Arc::new(Tick::default);
        let settings = PostgresSettings::new(server.clone(), dial.clone(), clock);
        let connected = connect(&settings, server).await;
        let (conn, driver) =
            connected.map_err(|why| migrate::explain_not_connected(server, &why))?;
        tokio::spawn(async move {
            // The next statement on the connection reports its end.
            let _ = driver.await;
        });
        let session = Session {
            conn,
            server: server.clone(),
        };
        session
            .batch(
                "SET statement_timeout = 0; SET lock_timeout = 0; \
                 SET idle_in_transaction_session_timeout = 0",
            )
            .await?;
        Ok(session)
    }

    /// Runs statements without parameters.
    pub async fn batch(&self, sql: &str) -> Result<(), OpenError> {
        let done = self.conn.batch(sql).await;
        done.map_err(|fault| self.explain(&fault))
    }

    /// Returns the `bigint` columns of the single row that the query selects.
    pub async fn numbers(&self, sql: &str) -> Result<Vec<i64>, OpenError> {
        let row = self.conn.query_one(sql, &[]).await;
        let row = row.map_err(|fault| self.explain(&fault))?;
        Ok((0..row.len()).map(|column| row.get(column)).collect())
    }

    /// Returns the text that the query selects.
    pub async fn text(&self, sql: &str) -> Result<String, OpenError> {
        let row = self.conn.query_one(sql, &[]).await;
        Ok(row.map_err(|fault| self.explain(&fault))?.get(0))
    }

    fn explain(&self, fault: &DbError) -> OpenError {
        migrate::explain(&self.server, fault)
    }
}
