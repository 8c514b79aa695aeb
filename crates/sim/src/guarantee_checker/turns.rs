//! Checks of a delivery's turn: its ordering key and its deadline.
//!
//! [`GuaranteeChecker::check_order`] and [`GuaranteeChecker::check_late`] look at every attempt that starts,
//! [`GuaranteeChecker::expired`] at every delivery that is dropped. A delivery is late if its turn comes after its
//! deadline; a policy that drops late deliveries is obeyed, and only late deliveries are dropped.

use posthaste_core::delivery::Delivery;
use posthaste_core::id::DeliveryId;
use posthaste_core::policy::LateAction;

use super::GuaranteeChecker;
use crate::disk::Disk;
use crate::oracle::Oracle;

impl GuaranteeChecker {
    pub(super) fn check_order(&mut self, row: &Delivery, disk: &Disk) {
        let facts = row.facts();
        let ordered = self.endpoint_record(facts.endpoint).settings.ordered;
        let Some(key) = facts.ordering.filter(|_| ordered) else {
            return;
        };
        // A replay intentionally sends an old delivery again after younger ones.
        if self.delivery_record(facts.id).replayed {
            return;
        }
        let older: Vec<DeliveryId> = disk
            .unfinished_of_key(facts.endpoint, key)
            .take_while(|id| *id < facts.id)
            .collect();
        for id in older {
            let replayed = self.delivery_record(id).replayed;
            self.expect(replayed, Oracle::InOrder, || {
                format!("{} was sent before {id}", facts.id)
            });
        }
    }

    /// An attempt of this delivery starts. A clock that jumps makes deliveries late before the dispatcher sees it.
    pub(super) fn check_late(&mut self, row: &Delivery) {
        let policy = self
            .endpoint_record(row.facts().endpoint)
            .settings
            .policy
            .clone();
        let (latest_wall, clock_jumped) = (self.latest_wall, self.clock_jumped);
        let late = row.is_dropped_at(latest_wall, &policy);
        self.expect(!late || clock_jumped, Oracle::LateIsDropped, || {
            let (id, give_up_at) = (row.id(), row.facts().give_up_at);
            format!("{id} was sent at {latest_wall:?}, deadline {give_up_at:?}")
        });
    }

    /// A delivery was dropped because its turn came after its deadline.
    pub fn expired(&mut self, before: &Delivery, after: &Delivery) {
        self.check_terminal(before, after);
        let id = after.id();
        let policy = &self.endpoint_record(after.facts().endpoint).settings.policy;
        let drops = policy.late == LateAction::Drop;
        let latest_wall = self.latest_wall;
        let give_up_at = self.delivery_record(id).give_up_at;
        let may_drop = drops && latest_wall > give_up_at;
        self.expect(may_drop, Oracle::LateIsDropped, || {
            format!("{id} was dropped at {latest_wall:?}, deadline {give_up_at:?}, drops: {drops}")
        });
        let is_in_flight = self.delivery_record(id).is_in_flight;
        self.expect(!is_in_flight, Oracle::OneAtATime, || {
            format!("{id} was dropped while it was sent")
        });
        self.delivery_record(id).ended = Some(after.state());
    }
}
