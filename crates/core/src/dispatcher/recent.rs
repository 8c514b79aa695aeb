//! What was settled a moment ago.
//!
//! A fetch may see a commit before word of it arrives as `Accepted`. If the delivery has been sent and
//! settled by then, that word must not send it again; so such deliveries are remembered for a while.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use crate::id::DeliveryId;

/// How many are remembered, over all lanes: several times the largest group of commits.
const MAX_REMEMBERED: usize = 8_192;

/// Deliveries whose first attempt was settled, or which were called off.
#[derive(Debug, Default)]
pub(super) struct Recent {
    ids: FxHashSet<DeliveryId>,
    order: VecDeque<DeliveryId>,
}

impl Recent {
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
    fn remembers_the_latest_and_no_more() {
        let mut recent = Recent::default();
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
