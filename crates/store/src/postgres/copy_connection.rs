//! A connection for copying a whole store into this database. It migrates the schema and has no statement timeout.
//!
//! [`CopyConnection`] is what `copy` writes through. It knows the partitions, and creates those of the rows that are
//! copied.

use posthaste_core::time::Tick;
use std::sync::Arc;
use tokio_postgres::Row;

use super::connection::{Params, PgConnection, connect};
use super::db_error::DbError;
use super::schema::columns::Id;
use super::schema::migrate;
use super::schema::partitions::{Day, PARTITIONED, Partitions};
use super::settings::PostgresSettings;
use super::{Dial, ServerUrl};
use crate::OpenError;

/// A connection to copy a store over.
pub(crate) struct CopyConnection {
    conn: PgConnection,
    partitions: Partitions,
}

impl CopyConnection {
    /// Connects, and migrates the database to the newest schema version. Must run inside a `LocalSet`.
    pub(crate) async fn open(
        server: &ServerUrl,
        dial: &Arc<dyn Dial>,
    ) -> Result<CopyConnection, OpenError> {
        let clock = Arc::new(Tick::default);
        let settings = PostgresSettings::new(server.clone(), dial.clone(), clock);
        let connected = connect(&settings, server).await;
        let (conn, driver) =
            connected.map_err(|why| migrate::explain_not_connected(server, &why))?;
        tokio::task::spawn_local(async move {
            // The next statement on the connection reports its end.
            let _ = driver.await;
        });
        migrate::migrate(&conn, server).await?;
        let patient = conn.batch(
            "SET statement_timeout = 0; SET lock_timeout = 0; \
             SET idle_in_transaction_session_timeout = 0",
        );
        let explain = |fault: DbError| migrate::explain(server, &fault);
        patient.await.map_err(explain)?;
        Ok(CopyConnection {
            conn,
            partitions: Partitions::default(),
        })
    }

    /// Returns the first row, if there is one.
    pub(crate) async fn query_opt(
        &self,
        sql: &str,
        params: Params<'_>,
    ) -> Result<Option<Row>, DbError> {
        self.conn.query_opt(sql, params).await
    }

    /// Returns the first row, or an error if there is none.
    pub(crate) async fn query_one(&self, sql: &str, params: Params<'_>) -> Result<Row, DbError> {
        self.conn.query_one(sql, params).await
    }

    /// Runs a statement, and returns the number of affected rows.
    pub(crate) async fn execute(&self, sql: &str, params: Params<'_>) -> Result<u64, DbError> {
        self.conn.execute(sql, params).await
    }

    /// Runs several statements without parameters.
    pub(crate) async fn batch(&self, sql: &str) -> Result<(), DbError> {
        self.conn.batch(sql).await
    }

    /// Creates the partitions for rows with these ids, if the table is partitioned.
    pub(crate) async fn make_partitions(&mut self, table: &str, ids: &[Id]) -> Result<(), DbError> {
        if !PARTITIONED.contains(&table) {
            return Ok(());
        }
        for id in ids {
            self.partitions.make(&self.conn, Day::of(id.0)).await?;
        }
        Ok(())
    }
}
