//! Checks of every attempt that starts on the bench.
//!
//! [`Bench::start_attempt`] is called for each `Send`. The delivery must be waiting in the store, be in flight only
//! once and not be in cancellation. Its endpoint must be enabled, no limit of the endpoint or tenant may be exceeded,
//! and on an ordered lane no older delivery of its key may be unfinished.

use super::bench::Bench;
use crate::dispatcher::Attempt;
use crate::lane::EndpointStatus;

impl Bench {
    /// Checks an attempt that starts, and adds it to those in flight.
    pub(super) fn start_attempt(&mut self, attempt: Attempt) {
        let id = attempt.delivery;
        let row = self.disk.row(id);
        assert_eq!(row.facts().endpoint, attempt.endpoint);
        assert!(
            row.next_attempt_at().is_some(),
            "{id} is sent in status {}",
            row.status().name()
        );
        assert_eq!(
            attempt.number,
            row.facts().attempts + 1,
            "wrong attempt number of {id}"
        );
        assert_eq!(attempt.event, row.facts().event);
        assert!(
            !self.cancelling.contains(&id),
            "{id} is sent while it is being cancelled"
        );
        let stored = &self.endpoints[&attempt.endpoint];
        assert_eq!(
            stored.status,
            EndpointStatus::Enabled,
            "{id} is sent to an endpoint that is not enabled"
        );
        if stored.settings.ordered {
            let older = self.disk.older_of_its_key(id);
            let overtaken: Vec<_> = older
                .iter()
                .filter(|older| !self.cancelling.contains(older))
                .collect();
            assert!(
                overtaken.is_empty(),
                "{id} is sent before older deliveries of its key: {overtaken:?}"
            );
        }
        let beside = |other: &&Attempt| other.endpoint == attempt.endpoint;
        let in_flight = self.flying.values().filter(beside).count();
        assert!(
            in_flight < stored.settings.max_in_flight as usize,
            "the endpoint has more attempts in flight than its limit"
        );
        if let Some(most) = stored.settings.tenant_in_flight {
            let tenant = &stored.tenant;
            let of_tenant = |other: &&Attempt| self.endpoints[&other.endpoint].tenant == *tenant;
            let in_flight = self.flying.values().filter(of_tenant).count();
            assert!(
                in_flight < most as usize,
                "tenant {tenant} has more attempts in flight than its limit"
            );
        }
        let twin = self.flying.insert(id, attempt);
        assert!(twin.is_none(), "{id} is in flight twice");
        self.sent.push(attempt);
        self.arrivals.push(self.now.tick);
    }
}
