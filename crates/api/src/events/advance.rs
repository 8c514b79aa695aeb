//! Stores the decisions of the scheduler, with the events that they create.
//!
//! The events of a decision pass the same quotas and the same write queue as those of a request, and are counted in the same
//! way. [`AdvanceOutcome`] tells apart what the caller does next.

use std::time::Instant;

use posthaste_core::time::{Span, Timestamp};
use posthaste_store::{
    AcceptResult, AcceptedEvent, AcceptedOrStored, AdvanceResult, Quotas, RunStatus,
    ScheduleAdvance, StoreError,
};

use super::commit_wait::CommitWait;
use super::{class_of, endpoint_disabled, too_many_deliveries};
use crate::App;
use crate::auth::CachedTenant;
use crate::problem::{Problem, ResourceKind};

/// The result of a decision about a schedule.
#[derive(Debug)]
pub enum AdvanceOutcome {
    /// It is stored, with these events.
    Done(Vec<AcceptedEvent>),
    /// The schedule has changed since it was read, has been deleted, or belongs to another node. Nothing was stored.
    Superseded,
    /// The tenant is over a rate. Nothing was stored; the same decision may be stored after this time.
    Wait(Span, Problem),
    /// Its events cannot be accepted, for this reason. Nothing was stored.
    Refused(Problem),
}

impl App {
    /// Stores a decision about a schedule with its events, within the quotas of the tenant.
    pub async fn advance_schedule(
        &self,
        tenant: &CachedTenant,
        now: Timestamp,
        advance: ScheduleAdvance,
    ) -> Result<AdvanceOutcome, StoreError> {
        let created = advance.runs.iter().map(|run| run.outcome.status());
        let count = created.filter(|it| *it == RunStatus::Created).count();
        let refused = |problem: Problem| match problem.retry_after {
            Some(wait) => AdvanceOutcome::Wait(wait, problem),
            None => AdvanceOutcome::Refused(problem),
        };
        let quotas = match count {
            0 => Quotas::UNLIMITED,
            _ => match self.quotas(tenant, now, count as u64) {
                Ok(quotas) => quotas,
                Err(problem) => return Ok(refused(problem)),
            },
        };
        let asked_at = Instant::now();
        let class = class_of(self, &tenant.tenant);
        let tick = self.clock.now().tick;
        let accept = self.accepts.begin(tick, &tenant.tenant.id, class);
        let answer = self.store.advance_schedule(now, advance, quotas);
        let advanced = CommitWait::new(answer, accept, self.clock.clone(), None).await?;
        let took = asked_at.elapsed();
        Ok(match advanced {
            AdvanceResult::Done(events) => {
                self.metrics.committed(took);
                self.metrics.requests.accept_committed(class, took);
                self.metrics.accepted(events.len() as u64);
                let accepted: Vec<AcceptedOrStored> = events
                    .into_iter()
                    .map(|event| AcceptedOrStored {
                        is_new: true,
                        event,
                    })
                    .collect();
                self.charge(tenant, &accepted);
                AdvanceOutcome::Done(accepted.into_iter().map(|it| it.event).collect())
            }
            AdvanceResult::Superseded => AdvanceOutcome::Superseded,
            AdvanceResult::Refused(AcceptResult::OverLimit { limit, wait }) => {
                refused(self.over_limit(tenant, now, count as u64, (limit, wait)))
            }
            AdvanceResult::Refused(AcceptResult::TooManyDeliveries { deliveries, limit }) => {
                AdvanceOutcome::Refused(too_many_deliveries(count, deliveries, limit))
            }
            AdvanceResult::Refused(AcceptResult::NoSuchEndpoint) => {
                AdvanceOutcome::Refused(endpoint_disabled())
            }
            AdvanceResult::Refused(
                AcceptResult::NoSuchTenant | AcceptResult::Conflict(_) | AcceptResult::Done(_),
            ) => AdvanceOutcome::Refused(Problem::missing(ResourceKind::Tenant)),
        })
    }
}
