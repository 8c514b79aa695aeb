//! Stats of all nodes.
//!
//! Stats are in the store, except for what each node has counted since its last write. So every node gives the same
//! answer, also about nodes that have left and endpoints that have moved. If a node writes while it is asked, its
//! counters could be missed or counted twice; then everything is read again.
//!
//! While the store cannot be read, the result is an error: partial stats would look complete.

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::time::Timestamp;
use posthaste_store::{BucketWidth, NodeNo, StatCounters, StoreError, SubjectScope};
use posthaste_telemetry::metrics::window::{Window, WindowCounters};
use posthaste_telemetry::metrics::{RecentAttempts, Series};
use rustc_hash::FxHashMap;
use tokio::time::timeout;

use super::protocol::{NodeRequest, NodeResponse, TextId};
use super::{OwnerRouter, READ_TIMEOUT};

/// Maximum number of failing endpoints in the answer of one node, besides those it is asked for.
pub(super) const MAX_FAILING_REPORTED: usize = 100;
/// Maximum number of reads when nodes write in between. Nodes write for a few milliseconds every two seconds.
const MAX_READS: usize = 4;

/// Counters that a node has not written yet, and the number of its writes.
struct UnwrittenOfNode {
    node: NodeNo,
    flushes: u64,
    minutes: Vec<(Timestamp, StatCounters)>,
}

impl OwnerRouter {
    /// Returns the counters of a scope for each window that ends now.
    pub async fn counters_of(
        &self,
        scope: &SubjectScope,
    ) -> Result<impl Fn(Window) -> StatCounters + use<>, StoreError> {
        let (now, counters) = self.read_counters(scope, &Window::ALL).await?;
        Ok(move |window| counters.over(now, window))
    }

    /// Returns the counters of a scope within one window.
    pub async fn counters(
        &self,
        scope: &SubjectScope,
        window: Window,
    ) -> Result<StatCounters, StoreError> {
        let (now, counters) = self.read_counters(scope, &[window]).await?;
        Ok(counters.over(now, window))
    }

    /// Returns the counters of a scope within one window, by bucket.
    pub async fn series(&self, scope: &SubjectScope, window: Window) -> Result<Series, StoreError> {
        let (now, counters) = self.read_counters(scope, &[window]).await?;
        Ok(Series::new(now, scope, window, &counters))
    }

    /// Reads the counters that these windows are summed from.
    async fn read_counters(
        &self,
        scope: &SubjectScope,
        windows: &[Window],
    ) -> Result<(Timestamp, WindowCounters), StoreError> {
        let now = self.clock.wall();
        let mut reads = 1;
        loop {
            let before = self.unwritten_elsewhere(scope).await;
            let mut counters = self.read_here(now, scope, windows).await?;
            if before.is_empty() {
                return Ok((now, counters));
            }
            let after = self.unwritten_elsewhere(scope).await;
            if reads == MAX_READS || unchanged(&before, &after) {
                counters
                    .pending
                    .extend(after.into_iter().flat_map(|it| it.minutes));
                return Ok((now, counters));
            }
            reads += 1;
        }
    }

    /// Reads the counters of the store and of this node, consistently.
    async fn read_here(
        &self,
        now: Timestamp,
        scope: &SubjectScope,
        windows: &[Window],
    ) -> Result<WindowCounters, StoreError> {
        let unwritten = timeout(READ_TIMEOUT, self.metrics.unwritten()).await;
        let unwritten =
            unwritten.map_err(|_| StoreError::Unavailable("writing stats is slow".to_owned()))?;
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
        counters.pending = unwritten.pending(scope);
        Ok(counters)
    }

    /// Reads what other nodes have not written yet.
    async fn unwritten_elsewhere(&self, scope: &SubjectScope) -> Vec<UnwrittenOfNode> {
        let request = NodeRequest::UnwrittenCounters {
            of: scope.clone().into(),
        };
        let replies = self.ask_each(&request).await.into_iter();
        let unwritten = |(node, reply)| {
            let NodeResponse::UnwrittenCounters { flushes, minutes } = reply else {
                return None;
            };
            Some(UnwrittenOfNode {
                node,
                flushes,
                minutes,
            })
        };
        replies.filter_map(unwritten).collect()
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

/// Returns true if no node wrote between the two answers.
fn unchanged(before: &[UnwrittenOfNode], after: &[UnwrittenOfNode]) -> bool {
    before.iter().all(|it| {
        let mut after = after.iter();
        after.any(|later| later.node == it.node && later.flushes == it.flushes)
    })
}
