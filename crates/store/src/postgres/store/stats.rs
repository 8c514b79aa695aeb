//! Stats ([`StatsStore`]) of a [`PostgresStore`].

use posthaste_core::time::Timestamp;

use super::PostgresStore;
use crate::postgres::connection::PgConnection;
use crate::postgres::write::stats::{self, StatsColumns};
use crate::postgres::write::write_context::WriteContext;
use crate::read_duration::ReadDuration;
use crate::{Answer, BucketWidth, StatCounters, StatEntry, StatsStore, SubjectScope};

impl StatsStore for PostgresStore {
    fn add_stats(&self, happened: Vec<StatEntry>) -> Answer<()> {
        let rows = StatsColumns::of(happened);
        self.write_in_background(async move |context: &mut WriteContext| {
            rows.add(&context.conn, context.slot()).await
        })
    }

    fn stats(
        &self,
        scope: SubjectScope,
        width: BucketWidth,
        since: Timestamp,
    ) -> Answer<Vec<(Timestamp, StatCounters)>> {
        self.read_whole(ReadDuration::Quick, async move |conn: &PgConnection| {
            stats::read(conn, &scope, width, since).await
        })
    }

    fn failing_stats(
        &self,
        width: BucketWidth,
        since: Timestamp,
        limit: usize,
    ) -> Answer<Vec<(SubjectScope, StatCounters)>> {
        self.read(ReadDuration::Long, async move |conn: &PgConnection| {
            stats::failing(conn, width, since, limit).await
        })
    }
}
