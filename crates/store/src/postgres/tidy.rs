//! Removing what has been finished for long enough.
//!
//! A step looks at the next few events in the order of their ids and removes those that are old enough,
//! with everything that hangs on them. The last step of a round removes replays that ended as long ago.
//! What has not ended is never touched, however old it is. A large day is not looked at row by row: it
//! goes as a whole ([`tidy_days`](super::tidy_days)).

use posthaste_core::id::{DeliveryId, moment_of};
use posthaste_core::time::{Span, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};

use super::columns::{Id, at, from_json, most};
use super::events::read_list;
use super::fault::Fault;
use super::link::Link;
use super::partitions::Day;
use super::scene::Scene;
use super::schema::meta;
use super::{alerts, audit, buckets, passes, tidy_days};
use crate::{Limits, Retention, Tidied};

/// An event that a step looks at.
struct Old {
    id: Id,
    tenant_no: i64,
    created_at: Timestamp,
    idempotency_key: Option<String>,
    deliveries: Vec<Id>,
}

/// One step.
pub(super) async fn step(
    scene: &mut Scene,
    now: Timestamp,
    retention: Retention,
) -> Result<Tidied, Fault> {
    if retention.step == 0 {
        return Ok(Tidied {
            events: 0,
            more: false,
        });
    }
    let above = scene.memory.tidied_up_to.map_or(0, |id| id.0);
    let large = tidy_days::next_large(scene, above).await?;
    if let Some(day) = large.filter(|day| day.first_id() <= above.saturating_add(1)) {
        let step = tidy_days::step(scene, now, retention, day).await?;
        if step.over {
            scene.effects.tidied_up_to = Some(Some(Id(day.next().first_id() - 1)));
        }
        return Ok(Tidied {
            events: step.events,
            more: true,
        });
    }
    let below = large.map_or(u128::MAX, Day::first_id);
    let looked_at = look_at(&scene.link, above, below, retention.step).await?;
    let last = looked_at.last().map(|event| event.id);
    let up_to = last
        .filter(|_| looked_at.len() == retention.step)
        .or(large.map(|day| Id(day.first_id() - 1)));
    let removed = remove_old(scene, now, retention, looked_at).await?;
    if up_to.is_none() {
        remove_replays(scene, now, retention).await?;
        tidy_days::drop_empty(scene, now).await?;
    }
    scene.effects.tidied_up_to = Some(up_to);
    Ok(Tidied {
        events: removed,
        more: up_to.is_some(),
    })
}

/// Removes a few passes, figures, entries of the audit and alerts whose time is up, and says whether there may be more.
pub(super) async fn let_go(link: &Link, now: Timestamp, step: usize) -> Result<bool, Fault> {
    let passes = passes::tidy(link, now, step).await?;
    let entries = audit::tidy(link, now, step).await?;
    let alerts = alerts::tidy(link, now, step).await?;
    let figures = buckets::tidy(link, now, step).await?;
    Ok(step > 0 && passes.max(entries).max(alerts).max(figures) == step)
}

async fn look_at(link: &Link, above: u128, below: u128, count: usize) -> Result<Vec<Old>, Fault> {
    let rows = link
        .query(
            "SELECT id, tenant_no, created_at, idempotency_key, deliveries FROM events \
             WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3",
            &[&Id(above), &Id(below), &most(count)],
        )
        .await?;
    let old = rows.iter().map(|row| {
        let accepted = read_list(row.get(4)).into_iter();
        Old {
            id: row.get(0),
            tenant_no: row.get(1),
            created_at: at(row.get(2)),
            idempotency_key: row.get(3),
            deliveries: accepted.map(|delivery| Id(delivery.id.0)).collect(),
        }
    });
    Ok(old.collect())
}

/// How long the plans of some tenants keep things. What is left of a deleted tenant takes the default.
pub(super) async fn retentions(
    link: &Link,
    tenants: &[i64],
    retention: Retention,
) -> Result<FxHashMap<i64, Span>, Fault> {
    let mut kept_for: FxHashMap<i64, Span> = tenants
        .iter()
        .map(|tenant| (*tenant, retention.default))
        .collect();
    let rows = link
        .query(
            "SELECT no, limits FROM tenants WHERE no = ANY($1) AND NOT deleted",
            &[&tenants],
        )
        .await?;
    for row in &rows {
        let limits: Limits = from_json(row.get(1))?;
        if let Some(keep) = limits.retention {
            kept_for.insert(row.get(0), keep);
        }
    }
    Ok(kept_for)
}

/// Removes those of some events that are old enough, and says how many those are.
async fn remove_old(
    scene: &mut Scene,
    now: Timestamp,
    retention: Retention,
    mut events: Vec<Old>,
) -> Result<usize, Fault> {
    let link = scene.link.clone();
    let mut tenants: Vec<i64> = events.iter().map(|event| event.tenant_no).collect();
    tenants.sort_unstable();
    tenants.dedup();
    let kept_for = retentions(&link, &tenants, retention).await?;
    let keep = |event: &Old| kept_for[&event.tenant_no];
    events.retain(|event| event.created_at.after(keep(event)) <= now);
    name_added(&link, &mut events).await?;
    keep_unfinished(&link, now, &mut events, keep).await?;
    if events.is_empty() {
        return Ok(0);
    }
    // Somebody may be sending something of it again right now. Whoever comes after this finds nothing.
    hold(&link, &mut events).await?;
    name_added(&link, &mut events).await?;
    keep_unfinished(&link, now, &mut events, keep).await?;
    remove(scene, &events).await?;
    Ok(events.len())
}

/// Names the deliveries that were added to events later.
async fn name_added(link: &Link, events: &mut [Old]) -> Result<(), Fault> {
    let ids: Vec<Id> = events.iter().map(|event| event.id).collect();
    let rows = link
        .query(
            "SELECT event_id, delivery_id FROM added WHERE event_id = ANY($1)",
            &[&ids],
        )
        .await?;
    for row in &rows {
        let (event, delivery): (Id, Id) = (row.get(0), row.get(1));
        if let Ok(place) = events.binary_search_by_key(&event, |event| event.id)
            && !events[place].deliveries.contains(&delivery)
        {
            events[place].deliveries.push(delivery);
        }
    }
    Ok(())
}

/// Drops from the list whatever still waits, or ended too late.
async fn keep_unfinished(
    link: &Link,
    now: Timestamp,
    events: &mut Vec<Old>,
    keep: impl Fn(&Old) -> Span,
) -> Result<(), Fault> {
    let Some(deliveries) = Among::of(events) else {
        return Ok(());
    };
    let rows = link
        .query(
            "SELECT id, ended_at FROM ended WHERE id = ANY($1) AND id >= $2 AND id <= $3 \
             UNION ALL SELECT id, NULL FROM waiting WHERE id = ANY($1)",
            &[&deliveries.ids, &deliveries.first, &deliveries.last],
        )
        .await?;
    let ends: FxHashMap<Id, Option<Timestamp>> = rows
        .iter()
        .map(|row| (row.get(0), row.get::<_, Option<i64>>(1).map(at)))
        .collect();
    events.retain(|event| {
        let keep = keep(event);
        let mut found = event.deliveries.iter().filter_map(|id| ends.get(id));
        found.all(|end| end.is_some_and(|end| end.after(keep) <= now))
    });
    Ok(())
}

/// Deliveries of some events, and the range they lie in.
struct Among {
    ids: Vec<Id>,
    first: Id,
    last: Id,
}

impl Among {
    fn of(events: &[Old]) -> Option<Among> {
        let mut ids: Vec<Id> = events
            .iter()
            .flat_map(|event| event.deliveries.iter().copied())
            .collect();
        ids.sort_unstable();
        Some(Among {
            first: *ids.first()?,
            last: *ids.last()?,
            ids,
        })
    }
}

/// Keeps others from changing events and what has ended of them until the commit. What is gone already is
/// dropped from the list.
async fn hold(link: &Link, events: &mut Vec<Old>) -> Result<(), Fault> {
    let ids: Vec<Id> = events.iter().map(|event| event.id).collect();
    let (Some(first), Some(last)) = (ids.first(), ids.last()) else {
        return Ok(());
    };
    let rows = link
        .query(
            "SELECT id FROM events WHERE id = ANY($1) AND id >= $2 AND id <= $3 \
             ORDER BY id FOR UPDATE",
            &[&ids, first, last],
        )
        .await?;
    let held: FxHashSet<Id> = rows.iter().map(|row| row.get(0)).collect();
    events.retain(|event| held.contains(&event.id));
    if let Some(deliveries) = Among::of(events) {
        link.execute(
            "SELECT 1 FROM ended WHERE id = ANY($1) AND id >= $2 AND id <= $3 ORDER BY id FOR UPDATE",
            &[&deliveries.ids, &deliveries.first, &deliveries.last],
        )
        .await?;
    }
    Ok(())
}

async fn remove(scene: &mut Scene, events: &[Old]) -> Result<(), Fault> {
    let Some(last) = events.last() else {
        return Ok(());
    };
    let mut greatest = last.id;
    if let Some(deliveries) = Among::of(events) {
        greatest = greatest.max(deliveries.last);
        let ids: Vec<DeliveryId> = deliveries.ids.iter().map(|id| DeliveryId(id.0)).collect();
        remove_deliveries(scene, &ids).await?;
    }
    let link = scene.link.clone();
    let keyed = events
        .iter()
        .filter_map(|event| Some((event.tenant_no, event.idempotency_key.as_deref()?, event.id)));
    let (mut tenants, mut keys, mut of) = (Vec::new(), Vec::new(), Vec::new());
    for (tenant_no, key, event) in keyed {
        tenants.push(tenant_no);
        keys.push(key);
        of.push(event);
    }
    if !keys.is_empty() {
        link.execute(
            "DELETE FROM idempotency i USING unnest($1::bigint[], $2::text[], $3::uuid[]) \
             AS gone (tenant_no, key, event_id) WHERE i.tenant_no = gone.tenant_no \
             AND i.key = gone.key AND i.event_id = gone.event_id",
            &[&tenants, &keys, &of],
        )
        .await?;
    }
    let ids: Vec<Id> = events.iter().map(|event| event.id).collect();
    link.execute("DELETE FROM added WHERE event_id = ANY($1)", &[&ids])
        .await?;
    link.execute(
        "DELETE FROM events WHERE id = ANY($1) AND id >= $2 AND id <= $3",
        &[&ids, &events[0].id, &last.id],
    )
    .await?;
    remember(&link, greatest).await
}

/// Removes deliveries that have ended, with their attempts, and counts the failed ones off.
pub(super) async fn remove_deliveries(scene: &mut Scene, ids: &[DeliveryId]) -> Result<(), Fault> {
    let mut ids: Vec<Id> = ids.iter().map(|id| Id(id.0)).collect();
    ids.sort_unstable();
    let (Some(first), Some(last)) = (ids.first(), ids.last()) else {
        return Ok(());
    };
    let link = scene.link.clone();
    let rows = link
        .query(
            "WITH gone AS (DELETE FROM ended WHERE id = ANY($1) AND id >= $2 AND id <= $3 \
             RETURNING endpoint_no, status) \
             SELECT endpoint_no, count(*) FROM gone WHERE status = 3 GROUP BY endpoint_no",
            &[&ids, first, last],
        )
        .await?;
    for row in &rows {
        scene
            .effects
            .tally
            .add(row.get(0), 0, -row.get::<_, i64>(1));
    }
    link.execute(
        "DELETE FROM attempts WHERE delivery_id = ANY($1) AND delivery_id >= $2 AND delivery_id <= $3",
        &[&ids, first, last],
    )
    .await?;
    Ok(())
}

/// No id up to this one is made again.
pub(super) async fn remember(link: &Link, gone: Id) -> Result<(), Fault> {
    link.execute(
        "UPDATE meta SET value = $2 WHERE name = $1 AND value < $2",
        &[&meta::LAST_MOMENT, &(moment_of(gone.0) as i64)],
    )
    .await?;
    Ok(())
}

/// Removes replays that ended long enough ago. People begin them, so they are few, and their lists went
/// when they ended.
async fn remove_replays(scene: &Scene, now: Timestamp, retention: Retention) -> Result<(), Fault> {
    let link = &scene.link;
    let rows = link
        .query(
            "SELECT id, tenant_no, finished_at FROM replays WHERE finished_at IS NOT NULL",
            &[],
        )
        .await?;
    let mut tenants: Vec<i64> = rows.iter().map(|row| row.get(1)).collect();
    tenants.sort_unstable();
    tenants.dedup();
    let kept_for = retentions(link, &tenants, retention).await?;
    let old = rows.iter().filter(|row| {
        let keep = kept_for[&row.get::<_, i64>(1)];
        at(row.get(2)).after(keep) <= now
    });
    let old: Vec<Id> = old.map(|row| row.get(0)).collect();
    if let Some(last) = old.iter().max() {
        link.execute("DELETE FROM replays WHERE id = ANY($1)", &[&old])
            .await?;
        remember(link, *last).await?;
    }
    Ok(())
}
