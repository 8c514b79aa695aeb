//! Random inputs in any order; in the end everything is answered, and all deliveries must end.
//!
//! The bench checks each attempt: the delivery is waiting, is in flight only once, overtakes nothing, its endpoint
//! accepts attempts, and no limit is exceeded.

use proptest::prelude::*;

use super::bench::Bench;
use super::fixture::{down, ok, refused, settings, throttled, unlimited_rate};
use crate::classify::Outcome;
use crate::delivery::Delivery;
use crate::dispatcher::{DispatcherLimits, Input, Ticket};
use crate::id::{DeliveryId, EndpointId};
use crate::lane::{BreakerSettings, EndpointStatus, LaneSettings};
use crate::rng::Rng;
use crate::time::{Span, Tick};

/// Maximum delay of an `Accepted` input. An idle lane is forgotten after a minute, together with its recent
/// deliveries.
const LATEST: Span = Span::from_secs(20);

struct RandomRun {
    bench: Bench,
    rng: Rng,
    endpoints: Vec<EndpointId>,
    /// Committed deliveries that the dispatcher has not been informed of yet.
    unreported: Vec<(Tick, Delivery)>,
    /// Written records that the dispatcher has not been informed of yet.
    written: Vec<Ticket>,
    /// Tickets that were answered long ago, to be answered again.
    old: Vec<Ticket>,
}

fn lane_settings() -> [LaneSettings; 4] {
    [
        LaneSettings {
            max_in_flight: 2,
            tenant_in_flight: Some(2),
            ..settings()
        },
        LaneSettings {
            ordered: true,
            max_in_flight: 3,
            tenant_in_flight: Some(2),
            ..unlimited_rate()
        },
        LaneSettings {
            breaker: BreakerSettings {
                consecutive_failures: 2,
                ..BreakerSettings::default()
            },
            ..settings()
        },
        LaneSettings {
            ordered: true,
            breaker: BreakerSettings {
                consecutive_failures: 3,
                ..BreakerSettings::default()
            },
            ..settings()
        },
    ]
}

impl RandomRun {
    fn new(seed: u64) -> RandomRun {
        let mut bench = Bench::limited(DispatcherLimits {
            max_in_flight: 6,
            ready_per_lane: 3,
        });
        bench.manual.fetches = true;
        bench.manual.records = true;
        bench.manual.sweeps = true;
        let tenants = ["acme", "acme", "globex", "globex"];
        let endpoints = tenants
            .into_iter()
            .zip(lane_settings())
            .map(|(tenant, settings)| bench.endpoint_of(tenant, settings))
            .collect();
        RandomRun {
            bench,
            rng: Rng::seeded(seed),
            endpoints,
            unreported: Vec::new(),
            written: Vec::new(),
            old: Vec::new(),
        }
    }

    fn step(&mut self) {
        let endpoint = *self.rng.pick(&self.endpoints);
        match self.rng.between(0, 19) {
            0..=3 => self.accept(endpoint),
            4 => self.report_one(),
            5..=7 => self.answer_fetch(),
            8..=10 => self.finish_attempt(),
            11..=13 => self.answer_record(),
            14 => self.cancel(),
            15 => self.replay(),
            16 => self.set_status(endpoint),
            17 => self.answer_sweep(),
            18 => self.repeat(endpoint),
            19.. => self.advance(),
        }
    }

    fn accept(&mut self, endpoint: EndpointId) {
        let key = self.rng.between(0, 3);
        let late = self.rng.random_ratio(1, 4);
        // During a sweep it is undefined on which side of it a commit falls.
        if self.is_sweeping(endpoint) {
            return;
        }
        if late {
            let delivery = self.bench.commit(endpoint, None);
            self.unreported.push((self.bench.now.tick, delivery));
        } else if key == 0 {
            self.bench.accept(endpoint, 2);
        } else {
            self.bench.accept_keyed(endpoint, key);
        }
    }

    fn report_one(&mut self) {
        if !self.unreported.is_empty() {
            let (_, delivery) = self.unreported.remove(0);
            self.bench.handle(Input::Accepted(vec![delivery]));
        }
    }

    fn report_all(&mut self, which: impl Fn(&(Tick, Delivery)) -> bool) {
        let reported: Vec<_> = self.unreported.extract_if(.., |it| which(it)).collect();
        for (_, delivery) in reported {
            self.bench.handle(Input::Accepted(vec![delivery]));
        }
    }

    fn answer_fetch(&mut self) {
        if self.bench.fetches.is_empty() {
            // Work that another node accepted.
            let endpoint = *self.rng.pick(&self.endpoints);
            let due = self.bench.now.wall;
            self.bench.handle(Input::Work { endpoint, due });
            return;
        }
        let any = self.rng.between(0, self.bench.fetches.len() as u64 - 1);
        self.bench.fetches.swap(0, any as usize);
        match self.rng.between(0, 4) {
            0 => self.bench.fail_fetch(),
            1 | 2 => {
                self.bench.refresh_fetch();
                self.bench.answer_fetch();
            }
            3.. => self.bench.answer_fetch(),
        }
    }

    fn outcome(&mut self) -> Outcome {
        let asked = Span::from_secs(self.rng.between(1, 30));
        *self.rng.pick(&[
            ok(),
            ok(),
            ok(),
            down(),
            down(),
            refused(),
            throttled(asked),
        ])
    }

    fn finish_attempt(&mut self) {
        let flying: Vec<DeliveryId> = self.bench.flying.keys().copied().collect();
        if flying.is_empty() {
            return;
        }
        let id = *self.rng.pick(&flying);
        self.old.push(self.bench.ticket(id));
        if self.rng.random_ratio(1, 8) {
            self.bench.fail_internally(id);
        } else {
            let outcome = self.outcome();
            self.bench.finish(id, outcome);
        }
    }

    fn answer_record(&mut self) {
        if !self.written.is_empty() && self.rng.random_ratio(1, 2) {
            let ticket = self.written.remove(0);
            self.bench.handle(Input::Recorded { ticket });
            self.old.push(ticket);
            return;
        }
        if self.bench.records.is_empty() {
            return;
        }
        match self.rng.between(0, 5) {
            0 => {
                self.bench.fail_record();
            }
            1 => {
                let ticket = self.bench.write();
                self.written.push(ticket);
            }
            2.. => self.bench.answer_record(),
        }
    }

    fn cancel(&mut self) {
        let unreported: Vec<DeliveryId> = self.unreported.iter().map(|(_, it)| it.id()).collect();
        let rows = self.bench.disk.rows();
        let waiting: Vec<DeliveryId> = rows
            .filter(|row| row.next_attempt_at().is_some() && !unreported.contains(&row.id()))
            .map(Delivery::id)
            .collect();
        if !waiting.is_empty() {
            let id = *self.rng.pick(&waiting);
            self.bench.cancel(id);
        }
    }

    fn replay(&mut self) {
        let rows = self.bench.disk.rows();
        let ended: Vec<DeliveryId> = rows
            .filter(|row| row.status().is_terminal())
            .filter(|row| !self.is_sweeping(row.facts().endpoint))
            // An ordered lane keeps the order of deliveries, not that of their replays.
            .filter(|row| row.facts().ordering.is_none())
            .map(Delivery::id)
            .collect();
        if !ended.is_empty() {
            let id = *self.rng.pick(&ended);
            self.bench.replay(id);
        }
    }

    fn is_sweeping(&self, endpoint: EndpointId) -> bool {
        let lane = self.bench.dispatcher.lane(self.bench.now, endpoint);
        self.bench.status(endpoint) == EndpointStatus::Disabled
            || lane.is_some_and(|lane| lane.status == EndpointStatus::Disabled)
    }

    fn set_status(&mut self, endpoint: EndpointId) {
        use EndpointStatus::{Disabled, Enabled, Paused};
        let status = *self
            .rng
            .pick(&[Enabled, Enabled, Enabled, Paused, Disabled]);
        if status == Disabled {
            // Accepted deliveries are handed over before a caller can ask to disable their endpoint.
            self.report_all(|(_, it)| it.facts().endpoint == endpoint);
        }
        self.bench.set_status(endpoint, status);
    }

    fn answer_sweep(&mut self) {
        if !self.bench.sweeps.is_empty() {
            self.bench.answer_sweep();
        }
    }

    /// Repeats inputs that were sent before.
    fn repeat(&mut self, endpoint: EndpointId) {
        self.bench.load_endpoint(endpoint);
        self.bench.handle(Input::NoSuchEndpoint(endpoint));
        if !self.is_sweeping(endpoint) {
            self.bench.handle(Input::Swept {
                ticket: 0,
                endpoint,
            });
        }
        if !self.old.is_empty() {
            let ticket = *self.rng.pick(&self.old);
            let pending = self.bench.records.iter().any(|(it, _)| *it == ticket);
            if !pending && !self.written.contains(&ticket) {
                self.bench.handle(Input::RecordFailed { ticket });
            }
        }
    }

    fn advance(&mut self) {
        let span = Span::from_millis(self.rng.between(0, 8_000));
        let now = self.bench.now.tick;
        self.report_all(|(since, _)| now.since(*since).plus(span) > LATEST);
        self.bench.advance(span);
    }

    /// Answers everything and lets all receivers succeed.
    fn finish_everything(&mut self) {
        self.report_all(|_| true);
        self.bench.manual = Default::default();
        for ticket in std::mem::take(&mut self.written) {
            self.bench.handle(Input::Recorded { ticket });
        }
        while !self.bench.records.is_empty() {
            self.bench.answer_record();
        }
        while !self.bench.fetches.is_empty() {
            self.bench.answer_fetch();
        }
        while !self.bench.sweeps.is_empty() {
            self.bench.answer_sweep();
        }
        for endpoint in self.endpoints.clone() {
            self.bench.set_status(endpoint, EndpointStatus::Enabled);
        }
        self.bench.run(Span::from_mins(10), ok());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_inputs_start_no_wrong_attempt_and_every_delivery_ends(seed: u64, steps in 50usize..600) {
        let mut run = RandomRun::new(seed);
        for _ in 0..steps {
            run.step();
        }
        run.finish_everything();
        for row in run.bench.disk.rows() {
            prop_assert!(row.status().is_terminal(), "the delivery has not ended: {:?}", row);
            prop_assert!(row.facts().spent <= 5);
        }
        prop_assert_eq!(run.bench.dispatcher.in_flight_count(), 0);
        run.bench.advance(Span::from_mins(2));
        prop_assert_eq!(run.bench.dispatcher.lane_count(), 0);
    }
}
