//! Stats by time bucket in the model.
//!
//! Implements [`Figures`] for [`ModelStore`]. Every entry is added to the bucket of each width. The highest number
//! of a set that was added is remembered, so that a repeated set adds nothing.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::Timestamp;

use super::tables::{StatsSubject, Tables};
use super::{ModelStore, answer};
use posthaste_store::rules::by_bucket;
use posthaste_store::{Answer, BucketWidth, Figures, Scope, StatEntry, Tally};

impl Figures for ModelStore {
    fn add_figures(&self, number: u64, happened: Vec<StatEntry>) -> Answer<()> {
        answer(self.write(|tables| {
            if self.flushed.fetch_max(number, Ordering::SeqCst) < number {
                tables.add_figures(happened);
            }
        }))
    }

    fn figures(
        &self,
        scope: Scope,
        width: BucketWidth,
        since: Timestamp,
    ) -> Answer<Vec<(Timestamp, Tally)>> {
        answer(self.read(|tables| tables.figures(&scope, width, since)))
    }

    fn failing_figures(
        &self,
        width: BucketWidth,
        since: Timestamp,
        limit: usize,
    ) -> Answer<Vec<(Scope, Tally)>> {
        answer(self.read(|tables| tables.failing_figures(width, since, limit)))
    }
}

impl Tables {
    fn add_figures(&mut self, happened: Vec<StatEntry>) {
        for ((width, began, scope), tally) in by_bucket(happened) {
            if let Some(whole) = self.whole(&scope) {
                let bucket = self.figures.entry((width, began, whole));
                bucket.or_default().add(&tally);
            }
        }
    }

    fn figures(
        &self,
        scope: &Scope,
        width: BucketWidth,
        since: Timestamp,
    ) -> Vec<(Timestamp, Tally)> {
        let Some(whole) = self.whole(scope) else {
            return Vec::new();
        };
        let buckets = self.figures.iter();
        let theirs = buckets.filter(|((its_width, began, of), _)| {
            *its_width == width && *began >= since && *of == whole
        });
        theirs
            .map(|((_, began, _), tally)| (*began, *tally))
            .collect()
    }

    /// The order of scopes with the same number of failures is not defined.
    fn failing_figures(
        &self,
        width: BucketWidth,
        since: Timestamp,
        limit: usize,
    ) -> Vec<(Scope, Tally)> {
        let mut sums: BTreeMap<StatsSubject, Tally> = BTreeMap::new();
        for ((its_width, began, of), tally) in &self.figures {
            if *its_width == width && *began >= since {
                sums.entry(*of).or_default().add(tally);
            }
        }
        let wrong = |tally: &Tally| tally.retries + tally.failed;
        let mut failing: Vec<(Scope, Tally)> = sums
            .into_iter()
            .filter(|(_, tally)| wrong(tally) > 0)
            .filter_map(|(whole, tally)| Some((self.scope(whole)?, tally)))
            .collect();
        failing.sort_by_key(|(_, tally)| std::cmp::Reverse(wrong(tally)));
        failing.truncate(limit);
        failing
    }

    /// Returns the subject of a scope, if it exists now.
    fn whole(&self, scope: &Scope) -> Option<StatsSubject> {
        match scope {
            Scope::Everything => Some(StatsSubject::Everything),
            Scope::Tenant(tenant) => self.owner(tenant).map(StatsSubject::Tenant),
            Scope::Endpoint(endpoint) => {
                let row = &self.endpoints.get(endpoint)?.row;
                (row.standing != EndpointStatus::Deleted)
                    .then_some(StatsSubject::Endpoint(*endpoint))
            }
        }
    }

    fn scope(&self, whole: StatsSubject) -> Option<Scope> {
        let scope = match whole {
            StatsSubject::Everything => Scope::Everything,
            StatsSubject::Tenant(owner) => {
                let mut tenants = self.tenants.iter();
                let (tenant, _) = tenants.find(|(_, row)| row.owner == owner)?;
                Scope::Tenant(tenant.clone())
            }
            StatsSubject::Endpoint(endpoint) => Scope::Endpoint(endpoint),
        };
        self.whole(&scope).map(|_| scope)
    }

    /// Removes a few buckets whose retention period has passed. Returns true if there may be more.
    pub(super) fn tidy_figures(&mut self, now: Timestamp, step: usize) -> bool {
        let mut removed = 0;
        for width in BucketWidth::ALL {
            let buckets = self.figures.keys().copied();
            let old = buckets
                .filter(|(its_width, began, _)| {
                    *its_width == width && *began < width.first_kept(now)
                })
                .take(step);
            let old: Vec<_> = old.collect();
            removed = removed.max(old.len());
            for bucket in old {
                self.figures.remove(&bucket);
            }
        }
        step > 0 && removed == step
    }
}
