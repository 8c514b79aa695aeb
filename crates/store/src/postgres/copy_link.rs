//! A connection for whoever carries a whole store here: the format is brought up to date, and statements may take long.

use posthaste_core::time::Tick;
use std::sync::Arc;
use tokio_postgres::Row;

use super::columns::Id;
use super::fault::Fault;
use super::link::{Given, Link, connect};
use super::open;
use super::partitions::{Day, PARTITIONED, Partitions};
use super::settings::PostgresSettings;
use crate::OpenError;
use crate::copy::Destination;

/// A connection that carries a store.
pub(crate) struct CopyLink {
    link: Link,
    partitions: Partitions,
}

impl CopyLink {
    /// Connects, and brings the database into the newest format. Wants a set of local tasks to run in.
    pub(crate) async fn open(to: &Destination) -> Result<CopyLink, OpenError> {
        let clock = Arc::new(Tick::default);
        let settings = PostgresSettings::new(to.server.clone(), to.dial.clone(), clock);
        let connected = connect(&settings, &to.server).await;
        let (link, pump) = connected.map_err(|why| open::explain_unlinked(&to.server, &why))?;
        tokio::task::spawn_local(async move {
            // Whoever uses the connection hears of its end by itself.
            let _ = pump.await;
        });
        open::migrate(&link, &to.server).await?;
        let patient = link.batch(
            "SET statement_timeout = 0; SET lock_timeout = 0; \
             SET idle_in_transaction_session_timeout = 0",
        );
        let explain = |fault: Fault| open::explain(&to.server, &fault);
        patient.await.map_err(explain)?;
        Ok(CopyLink {
            link,
            partitions: Partitions::default(),
        })
    }

    /// A row, if there is one.
    pub(crate) async fn query_opt(
        &self,
        sql: &str,
        given: Given<'_>,
    ) -> Result<Option<Row>, Fault> {
        self.link.query_opt(sql, given).await
    }

    /// A row that is there.
    pub(crate) async fn query_one(&self, sql: &str, given: Given<'_>) -> Result<Row, Fault> {
        self.link.query_one(sql, given).await
    }

    /// Does something, and says to how many rows.
    pub(crate) async fn execute(&self, sql: &str, given: Given<'_>) -> Result<u64, Fault> {
        self.link.execute(sql, given).await
    }

    /// Does several things that are given nothing.
    pub(crate) async fn batch(&self, sql: &str) -> Result<(), Fault> {
        self.link.batch(sql).await
    }

    /// There are partitions for rows of this table with these ids, if it has some.
    pub(crate) async fn make_room(&mut self, table: &str, ids: &[Id]) -> Result<(), Fault> {
        if !PARTITIONED.contains(&table) {
            return Ok(());
        }
        for id in ids {
            self.partitions.make(&self.link, Day::of(id.0)).await?;
        }
        Ok(())
    }
}
