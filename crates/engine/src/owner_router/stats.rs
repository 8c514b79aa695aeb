//! Stats, and recent attempts of all nodes.
//!
//! Stats are in the store, which counts as it records. So every node gives the same answer, also about nodes that have
//! left and endpoints that have moved. While the store cannot be read, the result is an error.

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::time::Timestamp;
use posthaste_store::{BucketWidth, StatCounters, StoreError, SubjectScope};
use posthaste_telemetry::metrics::window::{StatsWindow, WindowCounters};
use posthaste_telemetry::metrics::{RecentAttempts, Series};
use rustc_hash::FxHashMap;

use super::OwnerRouter;
use super::protocol::{NodeRequest, NodeResponse, TextId};

/// Maximum number of failing endpoints in the answer of one node, besides those it is asked for.
pub(super) const MAX_FAILING_REPORTED: usize = 100;
impl OwnerRouter {
    /// Returns the counters of a scope for each window that ends now.
    pub async fn counters_of(
        &self,
        scope: &SubjectScope,
    ) -> Result<impl Fn(StatsWindow) -> StatCounters + use<>, StoreError> {
        let (now, counters) = self.read_counters(scope, &StatsWindow::ALL).await?;
        Ok(move |window| counters.over(now, window))
    }

    /// Returns the counters of a scope within one window.
    pub async fn counters(
        &self,
        scope: &SubjectScope,
        window: StatsWindow,
    ) -> Result<StatCounters, StoreError> {
        let (now, counters) = self.read_counters(scope, &[window]).await?;
        Ok(counters.over(now, window))
    }

    /// Returns the counters of a scope within one window, by bucket.
    pub async fn series(
        &self,
        scope: &SubjectScope,
        window: StatsWindow,
    ) -> Result<Series, StoreError> {
        let (now, counters) = self.read_counters(scope, &[window]).await?;
        Ok(Series::new(now, scope, window, &counters))
    }

    /// Reads the counters that these windows are summed from.
    async fn read_counters(
        &self,
        scope: &SubjectScope,
        windows: &[StatsWindow],
    ) -> Result<(Timestamp, WindowCounters), StoreError> {
        let now = self.clock.wall();
        let mut counters = WindowCounters::default();
        for (width, buckets) in [
            (BucketWidth::Minute, &mut counters.minutes),
            (BucketWidth::Quarter, &mut counters.quarters),
        ] {
            let of_width = windows.iter().filter(|window| window.width() == width);
            if let Some(first) = of_width.map(|window| window.first(now)).min() {
                *buckets = self.store.stats(scope.clone(), width, first).await?;
            }
        }
        Ok((now, counters))
    }

    /// Returns summaries of endpoints' recent attempts, from the node that saw the latest attempt: failing endpoints of
    /// all tenants or of one, and the given others as far as a node remembers them.
    pub async fn lately(
        &self,
        tenant: Option<&TenantId>,
        others: &[EndpointId],
    ) -> FxHashMap<EndpointId, RecentAttempts> {
        let mut known: FxHashMap<EndpointId, RecentAttempts> = FxHashMap::default();
        let mut learn = |endpoint: EndpointId, reported: RecentAttempts| {
            let latest = known.entry(endpoint).or_default();
            if reported.last_at >= latest.last_at {
                *latest = reported;
            }
        };
        for (endpoint, recent) in self.recent_attempts_here(tenant, others) {
            learn(endpoint, recent);
        }
        let request = NodeRequest::RecentAttempts {
            tenant: tenant.cloned().map(TextId),
            others: others.iter().copied().map(TextId).collect(),
        };
        for reply in self.ask_all(&request).await {
            if let NodeResponse::RecentAttempts { endpoints } = reply {
                for (TextId(endpoint), recent) in endpoints {
                    learn(endpoint, recent);
                }
            }
        }
        known
    }

    pub(super) fn recent_attempts_here(
        &self,
        tenant: Option<&TenantId>,
        others: &[EndpointId],
    ) -> Vec<(EndpointId, RecentAttempts)> {
        let now: Timestamp = self.clock.wall();
        let mut recent = self
            .metrics
            .failing_endpoints(now, tenant, MAX_FAILING_REPORTED);
        recent.extend(self.metrics.recent_attempts(others));
        recent
    }
}
