//! What is removed of a large day before it goes as a whole.
//!
//! A tenant that keeps something for a shorter time than the most patient one on the same day need not wait for it. Its
//! rows are found by their index, tenant after tenant, a few at a time.

use std::collections::BTreeMap;

use posthaste_core::time::{Span, Timestamp};
use rustc_hash::FxHashMap;

use super::columns::{Id, most};
use super::fault::Fault;
use super::link::Link;
use super::partitions::Day;
use super::scene::Scene;
use super::tidy::{OLD, Old, act, read_old};
use crate::retention::is_over;
use crate::stretches::Stretches;
use crate::{Kept, Tidied};

/// So many tenants of whom nothing can go are passed over in one step.
const PASSED_OVER: usize = 50;
/// What goes with its day, and not before.
const WITH_ITS_DAY: Span = Span::from_millis(u64::MAX);

/// How far each is.
#[derive(Debug, Default)]
pub(super) struct Strolls {
    strolls: FxHashMap<(Day, i64), Stroll>,
    /// The last tenant of a day that is done in this round.
    done: Option<(Day, i64)>,
}

/// The way through one tenant's events of one day.
#[derive(Debug)]
struct Stroll {
    early: Kept,
    above: Id,
    stretches: Stretches<Id>,
}

impl Strolls {
    /// Removes some of what goes before its day, of which `whole` goes as a whole. Nothing if that is all for this
    /// round.
    pub(super) async fn step(
        &mut self,
        scene: &mut Scene,
        now: Timestamp,
        step: usize,
        day: Day,
        tenants: &BTreeMap<i64, Kept>,
        whole: Option<Kept>,
    ) -> Result<Option<Tidied>, Fault> {
        let done = self.done.filter(|(of, _)| *of == day);
        let left = tenants
            .iter()
            .filter(|(no, _)| done.is_none_or(|done| done.1 < **no));
        let mut passed_over = 0;
        for (no, kept) in left {
            let early = early(*kept, whole);
            if !is_over(day.begins(), early.shortest(), now) {
                continue;
            }
            let stroll = self.of(day, *no, early);
            let above = stroll.stretches.pass_over(stroll.above, now);
            let events = look_at(&scene.link, day, *no, above, step).await?;
            let last = events.last().map_or(above, |event| event.id);
            let (full, found) = (events.len() == step, !events.is_empty());
            let (tidied, until) = act(scene, now, events, |_| early).await?;
            // What begins anew meanwhile, on any node, ends after now, and its attempts go so long after that.
            let anew = now.after(early.attempts);
            let until = until.known().map(|until| until.min(anew));
            stroll.stretches.looked_at(above, last, until);
            stroll.above = if full { last } else { before(day) };
            if !full {
                self.done = Some((day, *no));
            }
            passed_over += 1;
            if found || passed_over == PASSED_OVER {
                return Ok(Some(tidied));
            }
        }
        self.done = None;
        Ok(None)
    }

    /// A day is gone.
    pub(super) fn forget(&mut self, day: Day) {
        self.strolls.retain(|(of, _), _| *of != day);
    }

    /// The way through one tenant's events of a day. It begins again if they are kept for another time than before.
    fn of(&mut self, day: Day, tenant_no: i64, early: Kept) -> &mut Stroll {
        let fresh = || Stroll {
            early,
            above: before(day),
            stretches: Stretches::default(),
        };
        let stroll = self.strolls.entry((day, tenant_no)).or_insert_with(fresh);
        if stroll.early != early {
            *stroll = fresh();
        }
        stroll
    }
}

fn before(day: Day) -> Id {
    Id(day.first_id() - 1)
}

/// What a tenant keeps for a shorter time than what goes as a whole.
fn early(kept: Kept, whole: Option<Kept>) -> Kept {
    let Some(whole) = whole else {
        return kept;
    };
    let than = |own: Span, whole: Span| if own < whole { own } else { WITH_ITS_DAY };
    Kept {
        deliveries: than(kept.deliveries, whole.deliveries),
        // What events carry lies with them, and goes alone.
        payloads: than(kept.payloads, whole.deliveries),
        attempts: than(kept.attempts, whole.attempts),
    }
}

async fn look_at(
    link: &Link,
    day: Day,
    tenant_no: i64,
    above: Id,
    count: usize,
) -> Result<Vec<Old>, Fault> {
    let sql = format!(
        "SELECT {OLD} FROM {} WHERE tenant_no = $1 AND id > $2 ORDER BY tenant_no, id LIMIT $3",
        day.partition("events")
    );
    let rows = link
        .query(&sql, &[&tenant_no, &above, &most(count)])
        .await?;
    Ok(rows.iter().map(read_old).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(deliveries: u64, payloads: u64, attempts: u64) -> Kept {
        Kept {
            deliveries: Span::from_days(deliveries),
            payloads: Span::from_days(payloads),
            attempts: Span::from_days(attempts),
        }
    }

    #[test]
    fn what_everybody_keeps_as_long_goes_with_its_day() {
        let whole = Some(kept(30, 30, 7));
        let patient = early(kept(30, 30, 7), whole);
        assert_eq!(patient.shortest(), WITH_ITS_DAY);
        let empties = early(kept(30, 2, 7), whole);
        assert_eq!(empties.payloads, Span::from_days(2));
        assert_eq!(empties.shortest(), Span::from_days(2));
        let hasty = early(kept(3, 3, 1), whole);
        assert_eq!(hasty, kept(3, 3, 1));
        // A day that is held up keeps nobody's.
        assert_eq!(early(kept(30, 30, 7), None), kept(30, 30, 7));
    }
}
