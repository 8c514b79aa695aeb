//! Deliveries that were settled or cancelled recently.
//!
//! A fetch may return a delivery before the engine reports its commit as `Accepted`. If the delivery has been sent
//! and settled by then, that report must not send it again. [`RecentlySettled`] therefore remembers such deliveries for
//! a while.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use crate::id::DeliveryId;

/// Maximum number of remembered deliveries over all lanes: several times the largest group commit.
const MAX_REMEMBERED: usize = 8_192;

/// Deliveries whose first attempt was settled, or which were cancelled.
#[derive(Debug, Default)]
pub(super) struct RecentlySettled {
    ids: FxHashSet<DeliveryId>,
    order: VecDeque<DeliveryId>,
}

impl RecentlySettled {
    pub(super) fn remember(&mut self, id: DeliveryId) {
        if self.ids.insert(id) {
            self.order.push_back(id);
        }
        if self.order.len() > MAX_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, id: DeliveryId) -> bool {
        !self.ids.is_empty() && self.ids.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_only_the_latest_deliveries() {
        let mut recent = RecentlySettled::default();
        for id in 0..3 * MAX_REMEMBERED as u128 {
            recent.remember(DeliveryId(id));
            recent.remember(DeliveryId(id));
        }
        let first_kept = 2 * MAX_REMEMBERED as u128;
        assert!(!recent.contains(DeliveryId(first_kept - 1)));
        assert!(recent.contains(DeliveryId(first_kept)));
        assert_eq!(recent.ids.len(), MAX_REMEMBERED);
        assert_eq!(recent.order.len(), MAX_REMEMBERED);
    }
}
