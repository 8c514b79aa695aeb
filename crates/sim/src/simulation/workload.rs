//! The workload: applications that send events, and operators who change endpoints and deliveries.
//!
//! Applications send events in bursts, repeat old idempotency keys, and schedule some deliveries for later.
//! Operators pause, disable, delete and edit endpoints, and cancel, replay and retry deliveries. The workload never
//! changes the watched endpoint. When the fault phase ends, it enables all paused endpoints.

use std::convert::Infallible;
use std::sync::Arc;

use posthaste_core::delivery::{Delivery, OrderingKey, Status};
use posthaste_core::dispatcher::Input;
use posthaste_core::id::{DeliveryId, EndpointId, EventId};
use posthaste_core::ingest::{self, EventDecision, Fingerprint};
use posthaste_core::lane::{EndpointStatus, Health, LaneSettings};
use posthaste_core::time::{Span, Timestamp};

use super::{Event, World};
use crate::mutations::Mutation;
use crate::scenario::{self, FAULT_PHASE_MS};

impl World {
    /// Sends an event and schedules the next one.
    pub(super) fn produce(&mut self) {
        self.produced += 1;
        if self.produced < self.scenario.events {
            // Bursts and quiet periods.
            let mean_ms = FAULT_PHASE_MS / u64::from(self.scenario.events);
            if self.burst_left == 0 && self.rng.random_ratio(1, 20) {
                self.burst_left = self.rng.between(1, 80);
            }
            let gap_ms = if self.burst_left > 0 {
                self.burst_left -= 1;
                self.rng.between(0, 20)
            } else {
                self.rng.between(0, 5 * mean_ms)
            };
            if self.event_queue.now_ms() + gap_ms < FAULT_PHASE_MS {
                self.event_queue.schedule(gap_ms, Event::Produce);
            }
        }
        let Some(epoch) = self
            .process
            .as_ref()
            .filter(|process| !process.stopping)
            .map(|process| process.epoch)
        else {
            return;
        };
        if self.fault_occurs(self.scenario.faults.disk_error) {
            // The event is refused, so nothing was acknowledged.
            return;
        }
        // One event in ten repeats an old idempotency key, as a client does after a lost response.
        let old = self.rng.random_ratio(1, 10);
        let key = if old {
            self.rng.between(0, u64::from(self.produced))
        } else {
            u64::from(self.produced)
        };
        let content = Fingerprint::of(&[
            &key.to_be_bytes(),
            &[u8::from(self.rng.random_ratio(1, 50))],
        ]);
        let forgets = self.mutation == Some(Mutation::ForgetsKeys);
        let stored_under =
            |key| Ok::<_, Infallible>(self.keys.get(&key).copied().filter(|_| !forgets));
        let Ok(plan) = ingest::plan([Some((key, content))], stored_under);
        // A conflict is refused, so it makes no event.
        let Ok([decision]) = plan.as_deref() else {
            return;
        };
        match *decision {
            EventDecision::Store => {
                let wall = self.now().wall;
                let event: EventId = self.id_generator.next(wall);
                self.keys.insert(key, (event, content));
                let deliveries = self.route(event, wall);
                self.checker.answered(key, event);
                // The hand-over may be late, but keeps the order of acceptance.
                let late_ms = *self.rng.pick(&[0, 0, 1, 2, 3, 300]);
                let due_ms = self.event_queue.now_ms() + self.rng.between(0, late_ms);
                self.last_hand_over_ms = self.last_hand_over_ms.max(due_ms);
                let delay_ms = self.last_hand_over_ms - self.event_queue.now_ms();
                self.event_queue
                    .schedule(delay_ms, Event::HandOver { epoch, deliveries });
            }
            EventDecision::Stored(event) => self.checker.answered(key, event),
            EventDecision::SameAs(_) => unreachable!("the request has one event"),
        }
    }

    /// Persists one delivery for each endpoint that wants the event.
    fn route(&mut self, event: EventId, wall: Timestamp) -> Vec<Delivery> {
        let scheduled = self.rng.random_ratio(1, 10);
        let due_at = if scheduled {
            wall.after(Span::from_secs(self.rng.between(1, 3_600)))
        } else {
            wall
        };
        let key = OrderingKey(self.rng.between(0, 3));
        let wanted: Vec<(EndpointId, Arc<LaneSettings>)> = self
            .disk
            .endpoints()
            .filter(|(_, row)| {
                matches!(row.status, EndpointStatus::Enabled | EndpointStatus::Paused)
            })
            .map(|(endpoint, row)| (*endpoint, row.settings.clone()))
            .collect();
        let mut deliveries = Vec::new();
        for (endpoint, settings) in wanted {
            if !self.rng.random_ratio(1, 2) {
                continue;
            }
            let id: DeliveryId = self.id_generator.next(wall);
            let give_up_after = settings.policy.give_up_after;
            let delivery =
                Delivery::schedule(id, event, endpoint, Some(key), due_at, give_up_after);
            self.disk.accept(delivery.clone());
            self.checker.accepted(&delivery);
            deliveries.push(delivery);
        }
        deliveries
    }

    /// An operator changes an endpoint or a delivery.
    pub(super) fn act_as_operator(&mut self) {
        if self.process.as_ref().is_none_or(|process| process.stopping) {
            return;
        }
        // Accepted deliveries are handed over before the application gets its response. So no action on them
        // can come before that.
        let hand_overs_ms = self
            .last_hand_over_ms
            .saturating_sub(self.event_queue.now_ms());
        if hand_overs_ms > 0 {
            self.event_queue.schedule(hand_overs_ms, Event::Intervene);
            return;
        }
        match self.rng.between(0, 9) {
            0 | 1 => self.disable_one(EndpointStatus::Paused),
            2 => self.disable_one(EndpointStatus::Disabled),
            3 => self.disable_one(EndpointStatus::Deleted),
            4 | 5 => self.open_one(),
            6 => self.cancel_some(),
            7 => self.replay_some(),
            8 => self.retry_some_now(),
            9.. => self.edit_one(),
        }
    }

    /// Returns any endpoint except the watched one.
    fn any_endpoint(&mut self) -> EndpointId {
        let number = self.rng.between(1, self.scenario.sites.len() as u64 - 1);
        self.scenario.sites[number as usize].endpoint
    }

    fn status(&self, endpoint: EndpointId) -> EndpointStatus {
        self.disk
            .endpoint(endpoint)
            .map_or(EndpointStatus::Deleted, |row| row.status)
    }

    fn disable_one(&mut self, status: EndpointStatus) {
        let endpoint = self.any_endpoint();
        let is = self.status(endpoint);
        let goes = match status {
            EndpointStatus::Paused => {
                is == EndpointStatus::Enabled || is == EndpointStatus::Disabled
            }
            EndpointStatus::Disabled => {
                is == EndpointStatus::Enabled || is == EndpointStatus::Paused
            }
            // Rarely, because nothing more happens at a deleted endpoint.
            EndpointStatus::Deleted => is != EndpointStatus::Deleted && self.rng.random_ratio(1, 4),
            EndpointStatus::Enabled => false,
        };
        if goes {
            self.request_status(endpoint, status);
        }
    }

    fn open_one(&mut self) {
        let endpoint = self.any_endpoint();
        self.open(endpoint);
    }

    fn open(&mut self, endpoint: EndpointId) {
        if self.status(endpoint) != EndpointStatus::Deleted {
            self.request_status(endpoint, EndpointStatus::Enabled);
        }
    }

    fn request_status(&mut self, endpoint: EndpointId, status: EndpointStatus) {
        let Some(epoch) = self.running_epoch() else {
            return;
        };
        self.note(|| format!("an operator wants {endpoint} {status:?}"));
        if self.mutation == Some(Mutation::SendsToTheDisabled) {
            self.persist_status(endpoint, status, None);
        } else {
            self.deliver(epoch, Input::SetStatus { endpoint, status });
        }
    }

    /// The dispatcher has applied a status change: persist it and acknowledge the request.
    pub(super) fn persist_status(
        &mut self,
        endpoint: EndpointId,
        status: EndpointStatus,
        health: Option<Health>,
    ) {
        // A breaker that trips without an attempt is persisted with the status. No operator enabled the endpoint.
        let is_trip = health.as_ref().is_some_and(|health| health.trip.is_some());
        if let Some(row) = self.disk.endpoint_mut(endpoint) {
            row.status = status;
            if let Some(health) = health {
                row.health.update(&health);
            }
        }
        match status {
            EndpointStatus::Enabled if is_trip => {}
            EndpointStatus::Enabled => self
                .checker
                .endpoint_enabled(endpoint, self.event_queue.now_ms()),
            EndpointStatus::Paused | EndpointStatus::Disabled | EndpointStatus::Deleted => {
                self.checker.status_acknowledged(endpoint)
            }
        }
    }

    /// Enables all paused endpoints at the end of the fault phase.
    pub(super) fn resume_everything(&mut self) {
        let paused: Vec<EndpointId> = self
            .disk
            .endpoints()
            .filter(|(_, row)| row.status == EndpointStatus::Paused)
            .map(|(endpoint, _)| *endpoint)
            .collect();
        for endpoint in paused {
            self.open(endpoint);
        }
    }

    /// Returns some deliveries for which `fits` returns true.
    fn some_deliveries(
        &mut self,
        fits: impl Fn(&Delivery) -> bool,
    ) -> Vec<(DeliveryId, EndpointId)> {
        let fitting: Vec<_> = self
            .disk
            .deliveries()
            .filter(|delivery| {
                delivery.facts().endpoint != self.scenario.sites[0].endpoint && fits(delivery)
            })
            .map(|delivery| (delivery.id(), delivery.facts().endpoint))
            .collect();
        if fitting.is_empty() {
            return Vec::new();
        }
        let count = self.rng.between(1, 10);
        (0..count).map(|_| *self.rng.pick(&fitting)).collect()
    }

    fn cancel_some(&mut self) {
        for (delivery, endpoint) in
            self.some_deliveries(|delivery| delivery.next_attempt_at().is_some())
        {
            let Some(epoch) = self.running_epoch() else {
                return;
            };
            if self.cancelling.contains(&delivery) {
                continue;
            }
            self.note(|| format!("an operator cancels {delivery}"));
            if self.mutation == Some(Mutation::SendsTheCancelled) {
                let now = self.now().wall;
                let _ = self.disk.change(delivery, |delivery| delivery.cancel(now));
                continue;
            }
            self.cancelling.push(delivery);
            self.deliver(epoch, Input::Cancel { endpoint, delivery });
        }
    }

    fn replay_some(&mut self) {
        let since = self
            .rng
            .pick(&[Status::Failed, Status::Succeeded, Status::Cancelled]);
        let since = *since;
        for (delivery, endpoint) in self.some_deliveries(|delivery| delivery.status() == since) {
            let row = self.disk.endpoint(endpoint);
            let open = row.filter(|row| {
                matches!(row.status, EndpointStatus::Enabled | EndpointStatus::Paused)
            });
            let (Some(row), Some(epoch)) = (open, self.running_epoch()) else {
                continue;
            };
            let give_up_after = row.settings.policy.give_up_after;
            let now = self.now().wall;
            let replayed = self
                .disk
                .change(delivery, |delivery| delivery.replay(now, give_up_after));
            if replayed.is_ok() {
                self.note(|| format!("an operator replays {delivery}"));
                self.checker.replayed(
                    self.disk
                        .delivery(delivery)
                        .expect("the replayed delivery is in the store"),
                );
                self.deliver(epoch, Input::Work { endpoint, due: now });
            }
        }
    }

    fn retry_some_now(&mut self) {
        for (delivery, endpoint) in
            self.some_deliveries(|delivery| delivery.next_attempt_at().is_some())
        {
            let Some(epoch) = self.running_epoch() else {
                return;
            };
            let now = self.now().wall;
            if self
                .disk
                .change(delivery, |delivery| delivery.make_due(now))
                .is_ok()
            {
                self.note(|| format!("an operator makes {delivery} due"));
                self.deliver(epoch, Input::Work { endpoint, due: now });
            }
        }
    }

    fn edit_one(&mut self) {
        let endpoint = self.any_endpoint();
        let policy = scenario::policy(&mut self.rng);
        let Some(row) = self.disk.endpoint_mut(endpoint) else {
            return;
        };
        let settings = Arc::new(LaneSettings {
            policy,
            ..(*row.settings).clone()
        });
        row.settings = settings.clone();
        self.checker.edited(endpoint, settings);
        self.note(|| format!("an operator edits {endpoint}"));
        if let (Some(epoch), Some(snapshot)) = (self.running_epoch(), self.disk.snapshot(endpoint))
        {
            self.deliver(epoch, Input::EndpointLoaded(snapshot));
        }
    }
}
