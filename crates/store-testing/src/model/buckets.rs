//! Stats by time bucket in the model.
//!
//! Implements [`StatsStore`] for [`ModelStore`], and counts recorded attempts and failed deliveries. Every count is added to the bucket of each width.

use std::collections::BTreeMap;

use posthaste_core::id::EndpointId;
use posthaste_core::lane::EndpointStatus;
use posthaste_core::time::Timestamp;

use super::tables::{StatsSubject, Tables};
use super::{ModelStore, answer};
use posthaste_store::for_other_stores::by_bucket;
use posthaste_store::{Answer, BucketWidth, StatCounters, StatEntry, StatsStore, SubjectScope};

impl StatsStore for ModelStore {
    fn add_stats(&self, happened: Vec<StatEntry>) -> Answer<()> {
        answer(self.write(|tables| tables.add_stats(happened)))
    }

    fn stats(
        &self,
        scope: SubjectScope,
        width: BucketWidth,
        since: Timestamp,
    ) -> Answer<Vec<(Timestamp, StatCounters)>> {
        answer(self.read(|tables| tables.stats(&scope, width, since)))
    }

    fn failing_stats(
        &self,
        width: BucketWidth,
        since: Timestamp,
        limit: usize,
    ) -> Answer<Vec<(SubjectScope, StatCounters)>> {
        answer(self.read(|tables| tables.failing_stats(width, since, limit)))
    }
}

impl Tables {
    fn add_stats(&mut self, happened: Vec<StatEntry>) {
        for ((width, began, scope), counters) in by_bucket(happened) {
            if let Some(whole) = self.whole(&scope) {
                let bucket = self.stats.entry((width, began, whole));
                bucket.or_default().add(&counters);
            }
        }
    }

    /// Counts deliveries to an endpoint that ended or were attempted at this time.
    pub(super) fn count(&mut self, endpoint: EndpointId, at: Timestamp, counters: &StatCounters) {
        let Some(owned) = self.endpoints.get(&endpoint) else {
            return;
        };
        let operational = self.settings.operational_tenant.as_ref();
        let is_operational = operational == Some(&owned.row.endpoint.tenant);
        let mut counted = vec![
            StatsSubject::Tenant(owned.owner),
            StatsSubject::Endpoint(endpoint),
        ];
        if !is_operational {
            counted.push(StatsSubject::Everything);
        }
        for subject in counted {
            for width in BucketWidth::ALL {
                let bucket = self.stats.entry((width, width.begin(at), subject));
                bucket.or_default().add(counters);
            }
        }
    }

    /// Counts a delivery to an endpoint that failed without an attempt.
    pub(super) fn count_failed(&mut self, endpoint: EndpointId, at: Timestamp) {
        let failed = StatCounters {
            failed: 1,
            ..StatCounters::default()
        };
        self.count(endpoint, at, &failed);
    }

    fn stats(
        &self,
        scope: &SubjectScope,
        width: BucketWidth,
        since: Timestamp,
    ) -> Vec<(Timestamp, StatCounters)> {
        let Some(whole) = self.whole(scope) else {
            return Vec::new();
        };
        let buckets = self.stats.iter();
        let theirs = buckets.filter(|((its_width, began, of), _)| {
            *its_width == width && *began >= since && *of == whole
        });
        theirs
            .map(|((_, began, _), counters)| (*began, *counters))
            .collect()
    }

    /// The order of scopes with the same number of failures is not defined.
    fn failing_stats(
        &self,
        width: BucketWidth,
        since: Timestamp,
        limit: usize,
    ) -> Vec<(SubjectScope, StatCounters)> {
        let mut sums: BTreeMap<StatsSubject, StatCounters> = BTreeMap::new();
        for ((its_width, began, of), counters) in &self.stats {
            if *its_width == width && *began >= since {
                sums.entry(*of).or_default().add(counters);
            }
        }
        let wrong = |counters: &StatCounters| counters.retries + counters.failed;
        let mut failing: Vec<(SubjectScope, StatCounters)> = sums
            .into_iter()
            .filter(|(_, counters)| wrong(counters) > 0)
            .filter_map(|(whole, counters)| Some((self.scope(whole)?, counters)))
            .collect();
        failing.sort_by_key(|(_, counters)| std::cmp::Reverse(wrong(counters)));
        failing.truncate(limit);
        failing
    }

    /// Returns the subject of a scope, if it exists now.
    fn whole(&self, scope: &SubjectScope) -> Option<StatsSubject> {
        match scope {
            SubjectScope::Everything => Some(StatsSubject::Everything),
            SubjectScope::Tenant(tenant) => self.owner(tenant).map(StatsSubject::Tenant),
            SubjectScope::Endpoint(endpoint) => {
                let row = &self.endpoints.get(endpoint)?.row;
                (row.status != EndpointStatus::Deleted).then_some(StatsSubject::Endpoint(*endpoint))
            }
        }
    }

    fn scope(&self, whole: StatsSubject) -> Option<SubjectScope> {
        let scope = match whole {
            StatsSubject::Everything => SubjectScope::Everything,
            StatsSubject::Tenant(owner) => {
                let mut tenants = self.tenants.iter();
                let (tenant, _) = tenants.find(|(_, row)| row.owner == owner)?;
                SubjectScope::Tenant(tenant.clone())
            }
            StatsSubject::Endpoint(endpoint) => SubjectScope::Endpoint(endpoint),
        };
        self.whole(&scope).map(|_| scope)
    }

    /// Removes a few buckets whose retention period has passed. Returns true if there may be more.
    pub(super) fn delete_expired_stats(&mut self, now: Timestamp, step: usize) -> bool {
        let mut removed = 0;
        for width in BucketWidth::ALL {
            let buckets = self.stats.keys().copied();
            let old = buckets
                .filter(|(its_width, began, _)| {
                    *its_width == width && *began < width.first_kept(now)
                })
                .take(step);
            let old: Vec<_> = old.collect();
            removed = removed.max(old.len());
            for bucket in old {
                self.stats.remove(&bucket);
            }
        }
        step > 0 && removed == step
    }
}
