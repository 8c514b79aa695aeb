//! Figures of all nodes: each keeps those of what it sent, and an endpoint may have had several owners.

use posthaste_core::id::{EndpointId, TenantId};
use posthaste_core::time::Timestamp;
use rustc_hash::FxHashMap;

use super::Switchboard;
use super::question::{Named, Question, Reply, of_window};
use crate::observe::tally::{Tally, Window};
use crate::observe::{Lately, Scope, Series};

/// The most endpoints of which one node tells how they did lately, beside those it is asked for.
pub(super) const MAX_FAILING_TOLD: usize = 100;

impl Switchboard {
    /// What was seen by all nodes that answer.
    pub async fn tallies(&self, scope: &Scope) -> impl Fn(Window) -> Tally + use<> {
        let mut told = vec![self.observe.tallies(self.clock.now(), scope)];
        let question = match scope {
            Scope::All => Question::Tallies { tenant: None },
            Scope::Tenant(tenant) => Question::Tallies {
                tenant: Some(Named(tenant.clone())),
            },
            Scope::Endpoint(endpoint) => Question::EndpointTallies {
                endpoint: Named(*endpoint),
            },
        };
        for reply in self.ask_everybody(&question).await {
            if let Reply::Tallies { windows } = reply {
                told.push(windows);
            }
        }
        move |window| {
            let mut sum = Tally::default();
            for windows in &told {
                sum.add(&of_window(windows, window));
            }
            sum
        }
    }

    /// The same, bucket by bucket.
    pub async fn series(&self, scope: &Scope, window: Window) -> Series {
        let mut series = self.observe.series(self.clock.now(), scope, window);
        let question = Question::Series {
            of: scope.clone().into(),
            window: window.name().to_owned(),
        };
        for reply in self.ask_everybody(&question).await {
            if let Reply::Series { bucket, buckets } = reply
                && bucket == series.bucket
            {
                series.add(&buckets);
            }
        }
        series
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
