//! Figures of all nodes.
//!
//! What happened is in the store, but for what each node has seen since it last wrote. So every node says the same, also
//! of a node that is gone and of an endpoint that moved. A node that writes while it is asked would be missed or counted
//! twice; then all is read again.
//!
//! While the store cannot be read nothing is told: half of a figure looks like a whole one.

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::time::Timestamp;
use posthaste_store::{NodeNo, Scope, StoreError, Tally, Width};
use rustc_hash::FxHashMap;
use tokio::time::timeout;

use super::question::{Named, Question, Reply};
use super::{Switchboard, TELLING};
use crate::observe::window::{Gathered, Window};
use crate::observe::{Lately, Series};

/// The most endpoints of which one node tells how they did lately, beside those it is asked for.
pub(super) const MAX_FAILING_TOLD: usize = 100;
/// How often all is read again because somebody wrote in the meantime. Nodes write for a few milliseconds every two
/// seconds.
const MAX_ROUNDS: usize = 4;

/// What a node has not written yet, and how often it has written.
struct Unwritten {
    node: NodeNo,
    flushes: u64,
    minutes: Vec<(Timestamp, Tally)>,
}

impl Switchboard {
    /// What happened to a scope within each window that ends now.
    pub async fn tallies(
        &self,
        scope: &Scope,
    ) -> Result<impl Fn(Window) -> Tally + use<>, StoreError> {
        let (now, seen) = self.gather(scope, &Window::ALL).await?;
        Ok(move |window| seen.over(now, window))
    }

    /// What happened to a scope within one window.
    pub async fn tally(&self, scope: &Scope, window: Window) -> Result<Tally, StoreError> {
        let (now, seen) = self.gather(scope, &[window]).await?;
        Ok(seen.over(now, window))
    }

    /// The same, bucket by bucket.
    pub async fn series(&self, scope: &Scope, window: Window) -> Result<Series, StoreError> {
        let (now, seen) = self.gather(scope, &[window]).await?;
        Ok(Series::new(now, scope, window, &seen))
    }

    /// What these windows are made of.
    async fn gather(
        &self,
        scope: &Scope,
        windows: &[Window],
    ) -> Result<(Timestamp, Gathered), StoreError> {
        let now = self.clock.wall();
        let mut round = 1;
        loop {
            let before = self.unwritten(scope).await;
            let mut seen = self.gather_here(now, scope, windows).await?;
            if before.is_empty() {
                return Ok((now, seen));
            }
            let after = self.unwritten(scope).await;
            if round == MAX_ROUNDS || nobody_wrote(&before, &after) {
                seen.pending
                    .extend(after.into_iter().flat_map(|it| it.minutes));
                return Ok((now, seen));
            }
            round += 1;
        }
    }

    /// What the store and this node know, as of one moment.
    async fn gather_here(
        &self,
        now: Timestamp,
        scope: &Scope,
        windows: &[Window],
    ) -> Result<Gathered, StoreError> {
        let still = timeout(TELLING, self.observe.still()).await;
        let still = still.map_err(|_| {
            StoreError::Unavailable("figures are being written, which takes long".to_owned())
        })?;
        let mut seen = Gathered::default();
        for (width, buckets) in [
            (Width::Minute, &mut seen.minutes),
            (Width::Quarter, &mut seen.quarters),
        ] {
            let of_width = windows.iter().filter(|window| window.width() == width);
            if let Some(first) = of_width.map(|window| window.first(now)).min() {
                *buckets = self.store.figures(scope.clone(), width, first).await?;
            }
        }
        seen.pending = still.pending(scope);
        Ok(seen)
    }

    /// What other nodes have not written yet.
    async fn unwritten(&self, scope: &Scope) -> Vec<Unwritten> {
        let question = Question::Pending {
            of: scope.clone().into(),
        };
        let replies = self.ask_each(&question).await.into_iter();
        let unwritten = |(node, reply)| match reply {
            Reply::Pending { flushes, minutes } => Some(Unwritten {
                node,
                flushes,
                minutes,
            }),
            _ => None,
        };
        replies.filter_map(unwritten).collect()
    }

    /// How endpoints did lately, by whichever node saw them last: those that fail, of everybody or of
    /// one tenant, and these others as far as anybody remembers them.
    pub async fn lately(
        &self,
        tenant: Option<&TenantId>,
        others: &[EndpointId],
    ) -> FxHashMap<EndpointId, Lately> {
        let mut known: FxHashMap<EndpointId, Lately> = FxHashMap::default();
        let mut learn = |endpoint: EndpointId, told: Lately| {
            let lately = known.entry(endpoint).or_default();
            if told.last_at >= lately.last_at {
                *lately = told;
            }
        };
        for (endpoint, lately) in self.lately_here(tenant, others) {
            learn(endpoint, lately);
        }
        let question = Question::Lately {
            tenant: tenant.cloned().map(Named),
            others: others.iter().copied().map(Named).collect(),
        };
        for reply in self.ask_everybody(&question).await {
            if let Reply::Lately { endpoints } = reply {
                for (Named(endpoint), lately) in endpoints {
                    learn(endpoint, lately);
                }
            }
        }
        known
    }

    pub(super) fn lately_here(
        &self,
        tenant: Option<&TenantId>,
        others: &[EndpointId],
    ) -> Vec<(EndpointId, Lately)> {
        let now: Timestamp = self.clock.wall();
        let mut lately = self.observe.failing(now, tenant, MAX_FAILING_TOLD);
        lately.extend(self.observe.lately(others));
        lately
    }
}

/// Whether nobody wrote between the first telling and the second.
fn nobody_wrote(before: &[Unwritten], after: &[Unwritten]) -> bool {
    before.iter().all(|it| {
        let mut after = after.iter();
        after.any(|later| later.node == it.node && later.flushes == it.flushes)
    })
}
