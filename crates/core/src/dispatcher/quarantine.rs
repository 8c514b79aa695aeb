//! Deliveries that are quarantined after repeated internal faults.
//!
//! Some deliveries cannot be attempted at all: their content cannot be read, or the attempt panics. Retrying them for ever
//! would only fill the log. After [`FAULTS_TO_QUARANTINE`] internal faults in a row such a delivery is quarantined,
//! until a person retries or cancels it, the endpoint is changed or enabled, another node owns the endpoint, or the
//! process restarts. The quarantine is kept in memory only, so a fault of posthaste never delays a delivery beyond a
//! restart.
//!
//! A fault that other deliveries have too is not the delivery's own, and must quarantine nothing. Faults with the scope
//! [`InternalFaultScope::Shared`](super::InternalFaultScope) never count. The others count, and [`Quarantine::add_fault`]
//! compares the delivery with the others of its lane and of this node. If nothing but two to four deliveries is
//! attempted and all of them fault, each is quarantined in the end, after more faults.

use std::collections::VecDeque;

use super::Dispatcher;
use crate::delivery::{Delivery, ScheduledAttempt, State};
use crate::id::{DeliveryId, EndpointId};
use crate::lane::Fetched;
use crate::time::Now;

/// Number of internal faults in a row after which a delivery is quarantined.
pub const FAULTS_TO_QUARANTINE: u32 = 10;
/// Factor by which each other delivery that has as many faults raises the number of faults after which a delivery is
/// quarantined: the more deliveries fault, the less likely the fault is their own.
const FACTOR_PER_OTHER: u32 = 3;
/// Above this number of other deliveries with faults, the fault is taken for a shared one and quarantines nothing.
const MAX_OTHERS: u64 = 3;
/// Maximum number of quarantined deliveries of one lane. Further ones are retried after growing pauses.
pub const MAX_QUARANTINED_PER_LANE: usize = 64;
/// Maximum number of quarantined deliveries that [`Dispatcher::quarantined`] returns.
pub const MAX_QUARANTINED_LISTED: usize = 1_000;
/// Maximum number of deliveries of one lane whose faults are counted. Beyond it, the oldest count is dropped.
const MAX_STREAKS: usize = 256;

/// A delivery that is quarantined after repeated internal faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuarantinedDelivery {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The delivery.
    pub delivery: DeliveryId,
}

/// Numbers of attempts of one lane, or of all lanes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EndedAttempts {
    /// Attempts that ended normally, with any outcome.
    normal: u64,
    /// Attempts that ended in a fault that may be the delivery's own.
    faults: u64,
}

/// The internal faults in a row of one delivery.
#[derive(Debug)]
struct FaultStreak {
    delivery: DeliveryId,
    faults: u32,
    lane: Comparison,
    node: Comparison,
}

/// The attempts of the other deliveries during a streak.
#[derive(Clone, Copy, Debug)]
struct Comparison {
    /// Number of faults before the streak.
    faults_before: u64,
    /// Number of normal ends at the last fault of the streak.
    normal_before: u64,
}

impl Comparison {
    fn new(ended: EndedAttempts) -> Comparison {
        Comparison {
            faults_before: ended.faults,
            normal_before: ended.normal,
        }
    }

    /// Returns the number of faults in a row after which the delivery is quarantined, or `None` while its faults look
    /// like shared ones. They look like its own if another attempt has ended normally since its last fault. Otherwise
    /// each other delivery that had about as many faults since its first one raises the number.
    fn faults_to_quarantine(self, ended: EndedAttempts, own_faults: u32) -> Option<u32> {
        if ended.normal > self.normal_before {
            return Some(FAULTS_TO_QUARANTINE);
        }
        let own_faults = u64::from(own_faults.max(1));
        let faults_of_others = (ended.faults - self.faults_before).saturating_sub(own_faults);
        let others = match faults_of_others {
            0 => 0,
            1.. => ((faults_of_others + own_faults / 2) / own_faults).max(1),
        };
        (others <= MAX_OTHERS).then(|| FAULTS_TO_QUARANTINE * FACTOR_PER_OTHER.pow(others as u32))
    }
}

/// The internal faults and the quarantined deliveries of one lane.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    ended: EndedAttempts,
    streaks: VecDeque<FaultStreak>,
    deliveries: Vec<Delivery>,
}

impl Quarantine {
    /// Counts an attempt that ended normally. It ends the streak of its delivery.
    fn ended_normally(&mut self, delivery: DeliveryId, node: &mut EndedAttempts) {
        self.ended.normal += 1;
        node.normal += 1;
        self.forget(delivery);
    }

    /// Counts a fault of a delivery. Returns true if the delivery must be quarantined now.
    fn add_fault(&mut self, delivery: DeliveryId, node: &mut EndedAttempts) -> bool {
        let mut streaks = self.streaks.iter();
        let known = streaks.position(|streak| streak.delivery == delivery);
        let index = known.unwrap_or_else(|| {
            if self.streaks.len() >= MAX_STREAKS {
                self.streaks.pop_front();
            }
            self.streaks.push_back(FaultStreak {
                delivery,
                faults: 0,
                lane: Comparison::new(self.ended),
                node: Comparison::new(*node),
            });
            self.streaks.len() - 1
        });
        self.ended.faults += 1;
        node.faults += 1;
        let streak = &mut self.streaks[index];
        streak.faults = streak.faults.saturating_add(1);
        let in_lane = streak.lane.faults_to_quarantine(self.ended, streak.faults);
        let on_node = streak.node.faults_to_quarantine(*node, streak.faults);
        let enough = in_lane.zip(on_node).map(|(lane, node)| lane.max(node));
        streak.lane.normal_before = self.ended.normal;
        streak.node.normal_before = node.normal;
        let is_enough = enough.is_some_and(|enough| streak.faults >= enough);
        is_enough && !self.is_full()
    }

    /// Returns true if the lane has as many quarantined deliveries as it may.
    pub(super) fn is_full(&self) -> bool {
        self.deliveries.len() >= MAX_QUARANTINED_PER_LANE
    }

    /// Forgets the faults of a delivery, so that it is quarantined after ten further ones.
    fn forget(&mut self, delivery: DeliveryId) {
        self.streaks.retain(|streak| streak.delivery != delivery);
    }

    pub(super) fn has_deliveries(&self) -> bool {
        !self.deliveries.is_empty()
    }
}

impl Dispatcher {
    /// Returns the deliveries that are quarantined after repeated internal faults, at most [`MAX_QUARANTINED_LISTED`].
    pub fn quarantined(&self) -> Vec<QuarantinedDelivery> {
        let of_lanes = self.lanes.iter().flat_map(|(_, lane)| {
            lane.quarantine
                .deliveries
                .iter()
                .map(|delivery| QuarantinedDelivery {
                    endpoint: lane.endpoint,
                    delivery: delivery.id(),
                })
        });
        of_lanes.take(MAX_QUARANTINED_LISTED).collect()
    }

    /// Returns true if [`Dispatcher::quarantined`] may have changed since the last call. Resets the flag.
    pub fn take_quarantine_changed(&mut self) -> bool {
        std::mem::take(&mut self.quarantine_changed)
    }

    /// Notes that an attempt ended normally.
    pub(super) fn note_normal_end(&mut self, lane: usize, delivery: DeliveryId) {
        let quarantine = &mut self.lanes[lane].quarantine;
        quarantine.ended_normally(delivery, &mut self.ended);
    }

    /// Counts an internal fault that may be the delivery's own, and quarantines the delivery if it was one too many.
    /// Returns true if it is quarantined.
    pub(super) fn quarantine_after_fault(
        &mut self,
        now: Now,
        lane: usize,
        delivery: &Delivery,
    ) -> bool {
        let entry = &mut self.lanes[lane];
        if !entry.quarantine.add_fault(delivery.id(), &mut self.ended) {
            return false;
        }
        // The quarantined delivery explains the faults, so the others of the lane need not wait for long.
        entry.reset_faults(now.tick);
        self.quarantine(lane, delivery);
        true
    }

    /// Quarantines a delivery whose content cannot be read, unless the lane has as many as it may. Returns true if it is
    /// quarantined.
    pub(super) fn quarantine_unreadable(&mut self, lane: usize, delivery: &Delivery) -> bool {
        let quarantine = &mut self.lanes[lane].quarantine;
        quarantine.forget(delivery.id());
        if quarantine.is_full() {
            return false;
        }
        self.quarantine(lane, delivery);
        true
    }

    /// Quarantines a delivery that is not in flight any more.
    pub(super) fn quarantine(&mut self, lane: usize, delivery: &Delivery) {
        let entry = &mut self.lanes[lane];
        entry.quarantine.deliveries.push(delivery.clone());
        entry.backlog.quarantine(delivery);
        self.quarantine_changed = true;
    }

    /// Releases one quarantined delivery, which gets its tries anew.
    pub(super) fn release_quarantined(&mut self, now: Now, lane: usize, delivery: DeliveryId) {
        let entry = &mut self.lanes[lane];
        entry.quarantine.forget(delivery);
        let mut held = entry.quarantine.deliveries.iter();
        let index = held.position(|held| held.id() == delivery);
        if let Some(index) = index {
            let delivery = entry.quarantine.deliveries.remove(index);
            entry.backlog.return_quarantined(&delivery, now.wall);
            self.quarantine_changed = true;
        }
    }

    /// Releases all quarantined deliveries of a lane, and forgets its faults.
    pub(super) fn release_all_quarantined(&mut self, now: Now, lane: usize) {
        let entry = &mut self.lanes[lane];
        entry.quarantine.streaks.clear();
        for delivery in entry.quarantine.deliveries.drain(..) {
            entry.backlog.return_quarantined(&delivery, now.wall);
            self.quarantine_changed = true;
        }
    }

    /// Releases the quarantined deliveries that were retried by hand: their rows have another due time or trigger.
    pub(super) fn release_retried(&mut self, now: Now, lane: usize, fetched: &Fetched) {
        if !self.lanes[lane].quarantine.has_deliveries() {
            return;
        }
        for row in &fetched.deliveries {
            let is_retried = |held: &Delivery| held.id() == row.id() && turn(held) != turn(row);
            if self.lanes[lane]
                .quarantine
                .deliveries
                .iter()
                .any(is_retried)
            {
                self.release_quarantined(now, lane, row.id());
            }
        }
    }
}

/// Returns the attempt that a delivery waits for.
fn turn(delivery: &Delivery) -> Option<ScheduledAttempt> {
    match delivery.state() {
        State::Pending(turn) | State::Retrying(turn) | State::Held(turn) => Some(turn),
        State::InProgress { .. }
        | State::Succeeded { .. }
        | State::Failed { .. }
        | State::Cancelled { .. } => None,
    }
}
