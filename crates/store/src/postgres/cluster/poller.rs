//! Follows the change log, and looks for work that other nodes committed.
//!
//! Changes are numbered in commit order, so a node that has read up to a number has missed nothing before it.
//! [`follow_change_log`] reads them when a `NOTIFY` message arrives, and at least twice a second. [`look_for_work`]
//! looks for waiting deliveries every few seconds, because a `NOTIFY` message may be lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::membership::Membership;
use crate::postgres::connection::PgConnection;
use crate::postgres::db_error::DbError;
use crate::postgres::read::fetch;
use crate::postgres::write::changelog;
use crate::read_duration::ReadDuration;
use crate::{Change, StoreError};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste_store::postgres::changes";

/// Interval of reading changes.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The same while `NOTIFY` messages do not arrive.
const POLL_INTERVAL_WITHOUT_NOTIFY: Duration = Duration::from_millis(250);
/// Interval of looking for work.
const WORK_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The same while `NOTIFY` messages do not arrive.
const WORK_POLL_INTERVAL_WITHOUT_NOTIFY: Duration = Duration::from_secs(1);
/// Maximum number of changes per read.
const MAX_AT_ONCE: i64 = 1_000;

/// Reads the last assigned number, and the changes after a number.
const READ: &str = "SELECT d.last_change, c.no, c.kind, c.id FROM directory d LEFT JOIN LATERAL \
     (SELECT no, kind, id FROM changes WHERE no > $1 ORDER BY no LIMIT $2) c ON true ORDER BY c.no";

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
struct ReadResult {
    /// The last number that was assigned.
    last: i64,
    /// Changes with their numbers; `None` for a kind that a later version wrote.
    changes: Vec<(i64, Option<Change>)>,
}

/// The consequence of a read.
#[derive(Debug, PartialEq, Eq)]
struct Evaluation {
    changed: Vec<Change>,
    missed: bool,
    /// The number up to which all changes are known.
    seen: i64,
    /// Set if there may be more changes.
    more: bool,
}

/// Evaluates a read by a node that knows all changes up to `seen`.
fn evaluate(seen: i64, found: ReadResult) -> Evaluation {
    let numbers = || found.changes.iter().map(|(no, _)| *no);
    let whole = numbers().zip(seen + 1..).all(|(no, next)| no == next);
    let reached = numbers().next_back().unwrap_or(seen);
    let more = found.changes.len() as i64 >= MAX_AT_ONCE;
    // Some changes were trimmed, or the database was restored from an older copy.
    let missed = !whole || found.last < seen || (!more && reached < found.last);
    let unread = found.changes.iter().any(|(_, change)| change.is_none());
    Evaluation {
        missed: missed || unread,
        seen: if missed { found.last } else { reached },
        more: more && !missed,
        changed: found
            .changes
            .into_iter()
            .filter_map(|(_, change)| change)
            .collect(),
    }
}

/// Follows the changes until the store is closed.
pub(super) async fn follow_change_log(membership: Arc<Membership>) {
    let mut seen = None;
    while !membership.is_closing() {
        let since = membership.now();
        let more = match read(&membership, seen).await {
            Ok((evaluation, first)) => {
                let cluster_events = &membership.shared.cluster_events;
                if evaluation.missed {
                    tracing::info!(target: LOG_TARGET, "missed changes of the directory; reloading it");
                }
                // Before the first read no change was reported, so cached data may be out of date.
                if evaluation.missed || first {
                    cluster_events.missed();
                }
                if !evaluation.changed.is_empty() {
                    cluster_events.changed(evaluation.changed);
                }
                seen = Some(evaluation.seen);
                if !evaluation.more {
                    membership.set_informed_at(since);
                }
                evaluation.more
            }
            Err(why) => {
                tracing::debug!(target: LOG_TARGET, %why, "cannot read changes");
                false
            }
        };
        if more {
            continue;
        }
        let pause = if membership.receives_notify() {
            POLL_INTERVAL
        } else {
            POLL_INTERVAL_WITHOUT_NOTIFY
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = membership.changed.notified() => {}
        }
    }
}

/// Reads the changes after `seen`. The first read returns only the last number, and `true`.
async fn read(
    membership: &Membership,
    seen: Option<i64>,
) -> Result<(Evaluation, bool), StoreError> {
    let (after, limit) = seen.map_or((0, 0), |seen| (seen, MAX_AT_ONCE));
    let query = async move |conn: &PgConnection| {
        let rows = conn.query(READ, &[&after, &limit]).await?;
        let last = rows
            .first()
            .map(|row| row.get(0))
            .ok_or_else(|| DbError::Corrupt("cannot load the directory".to_owned()))?;
        let changes = rows.iter().filter_map(|row| {
            let no: Option<i64> = row.get(1);
            no.map(|no| (no, changelog::read(row.get(2), row.get(3))))
        });
        let changes = changes.collect();
        Ok(ReadResult { last, changes })
    };
    let found = read_with(membership, ReadDuration::Quick, query).await?;
    Ok(match seen {
        Some(seen) => (evaluate(seen, found), false),
        None => {
            let evaluation = Evaluation {
                changed: Vec::new(),
                missed: false,
                seen: found.last,
                more: false,
            };
            (evaluation, true)
        }
    })
}

/// Looks for work that other nodes left, until the store is closed.
pub(super) async fn look_for_work(membership: Arc<Membership>) {
    loop {
        let pause = if membership.receives_notify() {
            WORK_POLL_INTERVAL
        } else {
            WORK_POLL_INTERVAL_WITHOUT_NOTIFY
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = membership.work.notified() => {}
        }
        if membership.is_closing() {
            return;
        }
        if membership.owned_shards.shards().is_empty() {
            continue;
        }
        let due_watermarks = membership.shared.due_watermarks.clone();
        let query = async move |conn: &PgConnection| {
            fetch::endpoints_with_work(conn, &due_watermarks).await
        };
        match read_with(&membership, ReadDuration::Long, query).await {
            Ok(mut found) => {
                found.retain(|(endpoint, _)| membership.owned_shards.owns(*endpoint));
                if !found.is_empty() {
                    membership.shared.cluster_events.work(found);
                }
            }
            Err(why) => tracing::debug!(target: LOG_TARGET, %why, "cannot poll for work"),
        }
    }
}

/// Reads through the readers.
async fn read_with<T, F>(
    membership: &Membership,
    duration: ReadDuration,
    read: F,
) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: AsyncFn(&PgConnection) -> Result<T, DbError> + Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    let done = Box::new(move |result| {
        // The receiver is alive: it awaits this result.
        let _ = sender.send(result);
    });
    membership.shared.readers.read(duration, false, read, done);
    receiver.await.unwrap_or(Err(StoreError::Closed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::id::EndpointId;

    fn found(last: i64, numbers: &[i64]) -> ReadResult {
        let change = |no: &i64| (*no, Some(Change::Endpoint(EndpointId(*no as u128))));
        ReadResult {
            last,
            changes: numbers.iter().map(change).collect(),
        }
    }

    #[test]
    fn consecutive_changes_are_reported() {
        let evaluation = evaluate(4, found(6, &[5, 6]));
        assert_eq!(evaluation.changed.len(), 2);
        assert!(!evaluation.missed);
        assert_eq!((evaluation.seen, evaluation.more), (6, false));
        let nothing = evaluate(6, found(6, &[]));
        assert_eq!((nothing.missed, nothing.seen), (false, 6));
    }

    #[test]
    fn a_gap_is_reported_as_missed() {
        for (seen, last, numbers) in [
            (4, 8, vec![7, 8]),
            (4, 8, vec![]),
            (4, 8, vec![5, 6]),
            (4, 9, vec![5, 7, 8, 9]),
            (9, 3, vec![]),
        ] {
            let evaluation = evaluate(seen, found(last, &numbers));
            assert!(evaluation.missed, "{seen} {last} {numbers:?}");
            assert_eq!(evaluation.seen, last);
        }
    }

    #[test]
    fn unreadable_changes_are_reported_as_missed() {
        let mut odd = found(5, &[5]);
        odd.changes[0].1 = None;
        let evaluation = evaluate(4, odd);
        assert!(evaluation.missed);
        assert_eq!(evaluation.seen, 5);
    }

    #[test]
    fn a_full_page_is_followed_by_another_read() {
        let numbers: Vec<i64> = (1..=MAX_AT_ONCE).collect();
        let evaluation = evaluate(0, found(MAX_AT_ONCE + 7, &numbers));
        assert!(evaluation.more && !evaluation.missed);
        assert_eq!(evaluation.seen, MAX_AT_ONCE);
    }
}
