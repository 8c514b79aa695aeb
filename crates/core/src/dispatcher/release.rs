//! Release of endpoints: one by one to the next owner, or all at once when the node has lost them.
//!
//! A lane that is being released starts no attempt. Its unsent deliveries stay in the store, where the next owner
//! finds them. When its attempts in flight are recorded, the lane is forgotten and `Command::ReadyToRelease` is issued.
//!
//! When the lease has ended, `forget_all` drops every lane at once. Results that arrive later are ignored.

use super::command::Command;
use super::lanes::Sweep;
use super::scheduler::FairScheduler;
use super::timers::Timers;
use super::{Dispatcher, Phase};
use crate::id::EndpointId;
use crate::time::Now;

impl Dispatcher {
    pub(super) fn revoke(&mut self, now: Now, endpoint: EndpointId, commands: &mut Vec<Command>) {
        match self.find(endpoint) {
            Some(lane) => {
                self.lanes[lane].is_revoked = true;
                self.update_lane(now, lane, commands);
            }
            None => commands.push(Command::ReadyToRelease(endpoint)),
        }
    }

    /// Handles a lane that is being released: returns its unsent deliveries to the store, and forgets the lane when
    /// its attempts in flight are recorded.
    pub(super) fn release_lane(&mut self, now: Now, lane: usize, commands: &mut Vec<Command>) {
        self.dequeue_lane(lane);
        self.disarm(lane);
        let entry = &mut self.lanes[lane];
        while let Some((_, delivery)) = entry.waiting_after_fault.pop_front() {
            entry.backlog.return_unsent(&delivery, now.wall);
        }
        self.release_all_quarantined(now, lane);
        let entry = &mut self.lanes[lane];
        // Everything is in the store, where the next owner finds it.
        entry.backlog.forget_stored();
        let swept = match entry.sweep {
            Sweep::Idle => true,
            Sweep::AwaitsRecord | Sweep::UnderWay(_) => false,
        };
        if entry.backlog.is_idle() && swept && entry.requested_status.is_none() {
            let endpoint = entry.endpoint;
            self.forget(lane);
            commands.push(Command::ReadyToRelease(endpoint));
        }
    }

    fn dequeue_lane(&mut self, lane: usize) {
        let entry = &mut self.lanes[lane];
        if std::mem::take(&mut entry.queued)
            && let Some(config) = &entry.config
        {
            self.turns.withdraw(config.tenant, lane);
        }
        if std::mem::take(&mut entry.in_fetch_queue) {
            self.fetch_queue.retain(|other| *other != lane);
        }
    }

    /// Forgets everything except the recently settled deliveries. Results that arrive later are ignored because
    /// their tickets are unknown.
    pub(super) fn forget_all(&mut self) {
        self.lanes.clear();
        self.by_endpoint.clear();
        self.turns = FairScheduler::sharing(self.turns.shares());
        self.in_flight.clear();
        self.ticks = Timers::new();
        self.dues = Timers::new();
        self.unwritten.clear();
        self.single_attempt = None;
        self.fetches.clear();
        self.fetch_queue.clear();
        self.quarantine_changed = true;
        debug_assert_ne!(
            self.phase,
            Phase::Drained,
            "endpoints must not be dropped after the dispatcher has drained"
        );
    }
}
