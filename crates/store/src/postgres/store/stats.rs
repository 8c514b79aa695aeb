//! Stats ([`Figures`]) of a [`PostgresStore`].

use posthaste_core::time::Timestamp;

use super::PostgresStore;
use crate::postgres::connection::PgConnection;
use crate::postgres::read::readers::ReadKind;
use crate::postgres::write::stats::{self, StatsColumns};
use crate::postgres::write::write_context::WriteContext;
use crate::{Answer, BucketWidth, Figures, Scope, StatEntry, Tally};

impl Figures for PostgresStore {
    fn add_figures(&self, number: u64, happened: Vec<StatEntry>) -> Answer<()> {
        let rows = StatsColumns::of(happened);
        self.write(async move |context: &mut WriteContext| rows.add(context, number).await)
    }

    fn figures(
        &self,
        scope: Scope,
        width: BucketWidth,
        since: Timestamp,
    ) -> Answer<Vec<(Timestamp, Tally)>> {
        self.read_whole(ReadKind::Quick, async move |conn: &PgConnection| {
            stats::read(conn, &scope, width, since).await
        })
    }

    fn failing_figures(
        &self,
        width: BucketWidth,
        since: Timestamp,
        limit: usize,
    ) -> Answer<Vec<(Scope, Tally)>> {
        self.read(ReadKind::Long, async move |conn: &PgConnection| {
            stats::failing(conn, width, since, limit).await
        })
    }
}
