//! [`AuditLog`] of a [`PostgresStore`].

use posthaste_core::id::AuditId;
use posthaste_core::time::Timestamp;

use super::PostgresStore;
use crate::audit::fitted;
use crate::postgres::connection::PgConnection;
use crate::postgres::write::audit;
use crate::postgres::write::write_context::WriteContext;
use crate::read_duration::ReadDuration;
use crate::{
    Answer, AuditCompletion, AuditEntry, AuditFilter, AuditLog, AuditOutcome, CreateResult, Page,
    PageRequest,
};

impl AuditLog for PostgresStore {
    fn begin_audit(&self, _now: Timestamp, entry: AuditEntry) -> Answer<CreateResult> {
        let entry = entry.truncated();
        self.write(async move |context: &mut WriteContext| audit::begin(context, &entry).await)
    }

    fn finish_audit(
        &self,
        entry: AuditId,
        outcome: AuditOutcome,
        made: Option<String>,
    ) -> Answer<AuditCompletion> {
        let (outcome, made) = (outcome.fitted(), fitted(made));
        self.write(async move |context: &mut WriteContext| {
            audit::finish(context, entry, &outcome, made.as_deref()).await
        })
    }

    fn audit(
        &self,
        filter: AuditFilter,
        page: PageRequest<AuditId>,
    ) -> Answer<Page<AuditEntry, AuditId>> {
        self.read(ReadDuration::Long, async move |conn: &PgConnection| {
            audit::list(conn, &filter, page).await
        })
    }
}
