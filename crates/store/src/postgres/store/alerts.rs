//! [`Alerts`] of a [`PostgresStore`].

use std::collections::BTreeMap;

use posthaste_core::alert::AlertName;
use posthaste_core::id::AlertId;
use posthaste_core::time::Timestamp;

use super::PostgresStore;
use crate::codes::at;
use crate::postgres::connection::PgConnection;
use crate::postgres::write::alerts;
use crate::postgres::write::write_context::WriteContext;
use crate::read_duration::ReadDuration;
use crate::{Alert, AlertFilter, Alerts, Answer, CreateResult, Page, PageRequest};

impl Alerts for PostgresStore {
    fn raise_alert(&self, now: Timestamp, alert: Alert) -> Answer<CreateResult> {
        self.write(async move |context: &mut WriteContext| {
            alerts::raise(context, now, &alert).await
        })
    }

    fn resolve_alert(&self, now: Timestamp, alert: AlertId) -> Answer<Option<Alert>> {
        self.write(async move |context: &mut WriteContext| {
            alerts::resolve(context, now, alert).await
        })
    }

    fn alerts(
        &self,
        filter: AlertFilter,
        page: PageRequest<AlertId>,
    ) -> Answer<Page<Alert, AlertId>> {
        self.read_whole(ReadDuration::Long, async move |conn: &PgConnection| {
            alerts::list(conn, &filter, page).await
        })
    }

    fn open_alerts(&self) -> Answer<BTreeMap<AlertName, u64>> {
        self.read(ReadDuration::Long, async |conn: &PgConnection| {
            alerts::open(conn).await
        })
    }

    fn stored_bytes(&self) -> Answer<Option<u64>> {
        self.read(ReadDuration::Long, async |conn: &PgConnection| {
            let sql = "SELECT pg_database_size(current_database())";
            let bytes: i64 = conn.query_one(sql, &[]).await?.get(0);
            Ok(u64::try_from(bytes).ok())
        })
    }

    fn oldest_pending_notification(&self) -> Answer<Option<Timestamp>> {
        self.read(ReadDuration::Long, async |conn: &PgConnection| {
            let sql = "SELECT at FROM notices WHERE number > \
                       (SELECT value FROM meta WHERE name = 'told') ORDER BY number LIMIT 1";
            let oldest = conn.query_opt(sql, &[]).await?;
            Ok(oldest.map(|row| at(row.get(0))))
        })
    }

    fn unsent_since(&self, recipients: Vec<String>) -> Answer<Option<Timestamp>> {
        self.read(ReadDuration::Long, async move |conn: &PgConnection| {
            let sql = "SELECT min(first_at) FROM letters WHERE tries > 0 AND recipient = ANY ($1)";
            let oldest: Option<i64> = conn.query_one(sql, &[&recipients]).await?.get(0);
            Ok(oldest.map(at))
        })
    }
}
