//! The reasons that hold deliveries of endpoints back, over all lanes.
//!
//! A due delivery is sent when the gate of its endpoint admits it, its tenant is below its in-flight limit, and the
//! server has a free slot. [`Dispatcher::lane`] shows the first of these that fails; [`Dispatcher::held_back_counts`]
//! counts the endpoints by reason; [`Dispatcher::limited`] lists the endpoints that limits have held back for long.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::Dispatcher;
use super::lanes::Lane;
use crate::id::EndpointId;
use crate::lane::{HeldBack, HeldBackBy, LimitsInForce};
use crate::time::{Now, Span};

/// An endpoint whose deliveries a limit holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitedEndpoint {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The limit that held deliveries back last.
    pub by: HeldBackBy,
    /// The time for which limits have held deliveries back without interruption.
    pub duration: Span,
    /// Number of other endpoints of the tenant on this node that limits have held back for longer.
    pub rank: usize,
}

impl Dispatcher {
    /// Counts the endpoints whose deliveries are held back, by reason.
    pub fn held_back_counts(&self, now: Now) -> [(HeldBackBy, usize); HeldBackBy::ALL.len()] {
        let mut counts = HeldBackBy::ALL.map(|by| (by, 0));
        for (_, lane) in &self.lanes {
            let Some(held_back) = self.held_back(now, lane) else {
                continue;
            };
            for (by, count) in &mut counts {
                *count += usize::from(*by == held_back.by);
            }
        }
        counts
    }

    /// Returns the endpoints whose deliveries limits have held back for at least `at_least`, at most `max_endpoints`: first
    /// the one of each tenant that has been held back for longest, then the second of each tenant, and so on. So a tenant with many
    /// such endpoints hides no other tenant's.
    pub fn limited(
        &mut self,
        now: Now,
        at_least: Span,
        max_endpoints: usize,
    ) -> Vec<LimitedEndpoint> {
        let reasons: Vec<(usize, Option<HeldBackBy>)> = self
            .lanes
            .iter()
            .map(|(index, lane)| (index, self.obstacle(now, lane).map(|it| it.by)))
            .collect();
        let mut limited = Vec::new();
        for (index, by) in reasons {
            let lane = &mut self.lanes[index];
            // A lane that waits for its turn is not updated when its tenant or the server reaches a limit.
            let has_due_work = lane.backlog.has_due(now.wall);
            lane.limited_since.note(now.tick, has_due_work, by);
            if let Some((by, duration)) = lane.limited_since.duration(now.tick)
                && duration >= at_least
            {
                let tenant = lane.config.as_ref().map(|config| config.tenant);
                let found = LimitedEndpoint {
                    endpoint: lane.endpoint,
                    by,
                    duration,
                    rank: 0,
                };
                limited.push((tenant, found));
            }
        }
        limited.sort_unstable_by_key(|(_, it)| (Reverse(it.duration), it.endpoint));
        let mut of_tenants: FxHashMap<Option<usize>, usize> = FxHashMap::default();
        let mut limited: Vec<LimitedEndpoint> = limited
            .into_iter()
            .map(|(tenant, it)| {
                let count = of_tenants.entry(tenant).or_default();
                let rank = std::mem::replace(count, *count + 1);
                LimitedEndpoint { rank, ..it }
            })
            .collect();
        limited.sort_by_key(|it| it.rank);
        limited.truncate(max_endpoints);
        limited
    }

    /// Returns what keeps a due delivery of a lane from being sent now.
    pub(super) fn obstacle(&self, now: Now, lane: &Lane) -> Option<HeldBack> {
        let tenant = lane.config.as_ref()?.tenant;
        if lane.is_revoked {
            return None;
        }
        let by_turn = || {
            let spare = self.in_flight.spare();
            if self.turns.is_full(tenant) {
                Some(HeldBackBy::TenantInFlight)
            } else if self.in_flight.free() == 0 || self.turns.has_used_its_slots(tenant, spare) {
                Some(HeldBackBy::ServerInFlight)
            } else {
                None
            }
        };
        let by_gate = lane.gate.held_back(now.tick);
        by_gate.or_else(|| by_turn().map(HeldBack::until_event))
    }

    /// Returns what holds back the deliveries that wait in a lane.
    pub(super) fn held_back(&self, now: Now, lane: &Lane) -> Option<HeldBack> {
        self.obstacle(now, lane)
            .filter(|it| lane.waits_for(now, it.by))
    }
}

impl Lane {
    /// Returns the limits in force.
    pub(super) fn limits_in_force(&self) -> Option<LimitsInForce> {
        let config = self.config.as_ref()?;
        Some(self.gate.limits_in_force(config.settings.rate.per_second))
    }

    /// Notes if a limit of the endpoint holds deliveries back.
    pub(super) fn note_held_back(&mut self, now: Now) {
        let by = self.gate.held_back(now.tick).map(|it| it.by);
        let has_due_work = self.backlog.has_due(now.wall);
        self.limited_since.note(now.tick, has_due_work, by);
    }

    /// Returns true if deliveries wait that this reason holds back.
    fn waits_for(&self, now: Now, by: HeldBackBy) -> bool {
        match by.holds_all() {
            true => self.backlog.has_waiting() || !self.waiting_after_fault.is_empty(),
            false => self.backlog.has_due(now.wall),
        }
    }
}
