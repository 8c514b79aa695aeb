//! Detects changes of retention settings since the last step of a retention run.
//!
//! Skip ranges and partition plans are valid only while the retention settings that they were computed from stay the
//! same. Changes of tenants are numbered in the change log, so one query returns the tenants that changed since the
//! last step. A tenant that was just created has no rows yet, so it invalidates nothing.

use std::collections::BTreeMap;

use posthaste_core::time::{Span, Timestamp};

use super::run::RunProgress;
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::schema::columns::from_json;
use crate::postgres::write::changelog::{MAX_CHANGES, TENANT};
use crate::{Limits, Retention, RetentionPeriods};

/// Number of changes from which on they are not tracked: all skip ranges and partition plans are dropped.
const MAX_TRACKED_CHANGES: i64 = 1_000;

/// A clock that moves back by more than this was wrong before, so everything that was computed by it is dropped.
const MAX_CLOCK_STEP_BACK: Span = Span::from_mins(1);

/// The retention settings and the change number of the last step.
#[derive(Debug)]
pub(super) struct SeenSettings {
    last: Option<i64>,
    /// The server's settings, for tenants without their own.
    retention: Option<Retention>,
    at: Timestamp,
}

impl Default for SeenSettings {
    fn default() -> SeenSettings {
        SeenSettings {
            last: None,
            retention: None,
            at: Timestamp(0),
        }
    }
}

impl SeenSettings {
    /// Returns whether the server's settings are the same as in the last step, and stores the new ones.
    fn is_kept_as(&mut self, retention: &Retention) -> bool {
        let now = Retention {
            step: 0,
            ..retention.clone()
        };
        let same = self.retention.as_ref() == Some(&now);
        self.retention = Some(now);
        same
    }
}

/// Reads the changes since the last step, and updates or drops what depends on them.
pub(super) async fn apply_changes(
    conn: &PgConnection,
    now: Timestamp,
    retention: &Retention,
    progress: &mut RunProgress,
) -> Result<(), DbError> {
    let since = progress.seen_settings.last.unwrap_or(i64::MAX);
    let rows = conn
        .query(
            "SELECT d.last_change, c.id FROM directory d LEFT JOIN LATERAL (SELECT id FROM changes \
             WHERE no > $1 AND kind = $2 LIMIT $3) c ON true",
            &[&since, &TENANT, &MAX_TRACKED_CHANGES],
        )
        .await?;
    let last: Option<i64> = rows.first().map(|row| row.get(0));
    progress.seen_settings.last = last;
    let same = progress.seen_settings.is_kept_as(retention);
    let missed = last.is_none_or(|last| last < since || last - since > MAX_CHANGES);
    let before = std::mem::replace(&mut progress.seen_settings.at, now);
    let back = now.after(MAX_CLOCK_STEP_BACK) < before;
    if !same || missed || back || rows.len() as i64 >= MAX_TRACKED_CHANGES {
        progress.forget();
        return Ok(());
    }
    let mut changed: BTreeMap<&str, usize> = BTreeMap::new();
    for tenant in rows.iter().filter_map(|row| row.get::<_, Option<&str>>(1)) {
        *changed.entry(tenant).or_default() += 1;
    }
    if changed.is_empty() {
        return Ok(());
    }
    let policies = changed_retention(conn, retention, &changed).await?;
    if !policies.is_empty() {
        progress.policies_changed(&policies);
    }
    Ok(())
}

/// Returns the new retention periods of the changed tenants, given with their numbers of changes. Data of a deleted
/// tenant is kept for the server's periods. These are included if a tenant is not found or changed more than once,
/// because an earlier tenant with the same id may have been deleted.
async fn changed_retention(
    conn: &PgConnection,
    retention: &Retention,
    changed: &BTreeMap<&str, usize>,
) -> Result<Vec<RetentionPeriods>, DbError> {
    let tenants: Vec<&str> = changed.keys().copied().collect();
    let rows = conn
        .query(
            "SELECT id, limits, plan, revision FROM tenants WHERE id = ANY($1) AND NOT deleted",
            &[&tenants],
        )
        .await?;
    let mut policies = Vec::new();
    let mut there = Vec::new();
    for row in &rows {
        there.push(row.get::<_, &str>(0));
        if row.get::<_, i64>(3) > 0 {
            let limits: Limits = from_json(row.get(1))?;
            policies.push(retention.of(&limits, row.get(2)));
        }
    }
    let deleted = |(tenant, times): (&&str, &usize)| *times > 1 || !there.contains(tenant);
    if changed.iter().any(deleted) {
        policies.push(retention.of_deleted_tenant());
    }
    Ok(policies)
}
