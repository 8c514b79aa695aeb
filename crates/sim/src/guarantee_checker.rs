//! Observes a simulation from outside and checks every [`Oracle`].
//!
//! [`GuaranteeChecker`] knows nothing of the core's internals. It sees which deliveries were accepted, which attempts
//! were sent, which results came back, what is on disk, and what was acknowledged to callers. The first
//! violated guarantee ends the run.

mod turns;

use std::collections::BTreeMap;
use std::sync::Arc;

use posthaste_core::classify::{Classification, Outcome, classify};
use posthaste_core::delivery::{Delivery, Status, Trigger};
use posthaste_core::dispatcher::{Attempt, AttemptRecord};
use posthaste_core::id::{DeliveryId, EndpointId, EventId, TenantId};
use posthaste_core::lane::LaneSettings;
use posthaste_core::policy::Jitter;
use posthaste_core::time::{Span, Timestamp};

use crate::disk::{Disk, Epoch};
use crate::oracle::{BrokenGuarantee, Oracle};
use crate::records::{DeliveryRecord, EndpointRecord, is_failed_by_attempt, is_refused_probe};
use crate::scenario::SimEndpoint;

/// Maximum wait of a first attempt on an endpoint without faults. In a burst, a lane that keeps only one ready
/// delivery reads each one from the disk, which takes up to 40 ms each; that delay is legitimate. Delays caused
/// by other endpoints are in the order of seconds.
const UNDISTURBED_MS: u64 = 400;
/// Number of retries with the same nominal delay that are needed to check for a retry wave.
const WAVE_SAMPLES: usize = 20;
/// Minimum nominal delay. Shorter ones are too coarse to distinguish a wave from chance.
const WAVE_NOMINAL: Span = Span::from_secs(10);

/// Checks the guarantees during a simulation.
#[derive(Debug)]
pub struct GuaranteeChecker {
    delivery_records: BTreeMap<DeliveryId, DeliveryRecord>,
    endpoint_records: BTreeMap<EndpointId, EndpointRecord>,
    event_of_key: BTreeMap<u64, EventId>,
    delays_ms: BTreeMap<(EndpointId, u32, u64), Vec<u64>>,
    undisturbed_since_ms: u64,
    clock_jumped: bool,
    latest_wall: Timestamp,
    broken: Option<BrokenGuarantee>,
    sends: u64,
}

impl GuaranteeChecker {
    /// Creates an empty checker for these endpoints.
    pub fn new(sites: &[SimEndpoint]) -> GuaranteeChecker {
        GuaranteeChecker {
            delivery_records: BTreeMap::new(),
            endpoint_records: sites
                .iter()
                .map(|site| (site.endpoint, EndpointRecord::of(site)))
                .collect(),
            event_of_key: BTreeMap::new(),
            delays_ms: BTreeMap::new(),
            undisturbed_since_ms: 0,
            clock_jumped: false,
            latest_wall: Timestamp::default(),
            broken: None,
            sends: 0,
        }
    }

    /// Returns the first violation.
    pub fn broken(&self) -> Option<&BrokenGuarantee> {
        self.broken.as_ref()
    }

    /// Returns the number of accepted deliveries.
    pub fn accepted_count(&self) -> usize {
        self.delivery_records.len()
    }

    /// Returns the number of attempts.
    pub fn send_count(&self) -> u64 {
        self.sends
    }

    fn breaks(&mut self, oracle: Oracle, detail: impl FnOnce() -> String) {
        if self.broken.is_none() {
            self.broken = Some(BrokenGuarantee {
                oracle,
                detail: detail(),
            });
        }
    }

    fn expect(&mut self, holds: bool, oracle: Oracle, detail: impl FnOnce() -> String) {
        if !holds {
            self.breaks(oracle, detail);
        }
    }

    fn delivery_record(&mut self, id: DeliveryId) -> &mut DeliveryRecord {
        self.delivery_records
            .get_mut(&id)
            .expect("the delivery was accepted")
    }

    fn endpoint_record(&mut self, endpoint: EndpointId) -> &mut EndpointRecord {
        self.endpoint_records
            .get_mut(&endpoint)
            .expect("the ledger has a record of every endpoint")
    }

    /// An event with this idempotency key was acknowledged.
    pub fn answered(&mut self, key: u64, event: EventId) {
        let first = *self.event_of_key.entry(key).or_insert(event);
        self.expect(first == event, Oracle::OneEventPerKey, || {
            format!("key {key} made {first} and {event}")
        });
    }

    /// A delivery was persisted.
    pub fn accepted(&mut self, delivery: &Delivery) {
        let facts = delivery.facts();
        let settled_under = self.endpoint_record(facts.endpoint).settings.clone();
        let delivery_record = DeliveryRecord {
            settled_under,
            ended: None,
            endpoint: facts.endpoint,
            give_up_at: facts.give_up_at,
            spent: 0,
            sends: 0,
            results: 0,
            recorded: 0,
            excuses: 0,
            is_in_flight: false,
            last_write: None,
            replayed: false,
            handed_over_ms: None,
        };
        self.delivery_records.insert(facts.id, delivery_record);
    }

    /// A due delivery was handed over to the dispatcher.
    pub fn handed_over(&mut self, id: DeliveryId, at_ms: u64) {
        let delivery_record = self.delivery_record(id);
        // The first attempt may already have been made, if the dispatcher fetched the delivery from the disk.
        if delivery_record.sends == 0 {
            delivery_record.handed_over_ms = Some(at_ms);
        }
    }

    /// A fault delays all endpoints until `until_ms`.
    pub fn disturbed(&mut self, until_ms: u64) {
        self.undisturbed_since_ms = self.undisturbed_since_ms.max(until_ms);
    }

    /// The fault that delayed all endpoints ends at `at_ms`.
    pub fn settled_at(&mut self, at_ms: u64) {
        self.undisturbed_since_ms = at_ms;
    }

    /// The wall clock jumped.
    pub fn clock_jumped(&mut self) {
        self.clock_jumped = true;
    }

    /// The current wall clock time.
    pub fn wall(&mut self, wall: Timestamp) {
        self.latest_wall = self.latest_wall.max(wall);
    }

    /// An attempt starts.
    pub fn sending(&mut self, attempt: &Attempt, at_ms: u64, disk: &Disk) {
        self.sends += 1;
        let id = attempt.delivery;
        let row = disk
            .delivery(id)
            .expect("a delivery that is sent is in the store")
            .clone();
        let latest_wall = self.latest_wall;
        match row.next_attempt_at() {
            Some(next_attempt_at) => {
                self.expect(next_attempt_at <= latest_wall, Oracle::NotEarly, || {
                    format!("{id} was sent at {latest_wall:?}, wanted at {next_attempt_at:?}")
                })
            }
            None => {
                let oracle = if row.status() == Status::Cancelled {
                    Oracle::NothingAfterCancel
                } else {
                    Oracle::NothingAfterTheEnd
                };
                self.breaks(oracle, || {
                    format!("{id} was sent, but is {:?}", row.status())
                });
            }
        }
        let undisturbed_since_ms = self.undisturbed_since_ms;
        let delivery_record = self.delivery_record(id);
        delivery_record.sends += 1;
        let twice = std::mem::replace(&mut delivery_record.is_in_flight, true);
        let handed_over_ms = delivery_record.handed_over_ms.take();
        self.expect(!twice, Oracle::OneAtATime, || {
            format!("{id} is under way already")
        });
        self.check_late(&row);
        self.check_order(&row, disk);
        self.check_gate(attempt, at_ms);
        if let Some(from_ms) = handed_over_ms
            && self.endpoint_record(attempt.endpoint).watched
            && from_ms >= undisturbed_since_ms
        {
            let waited_ms = at_ms - from_ms;
            self.expect(
                waited_ms <= UNDISTURBED_MS,
                Oracle::HealthyEndpointUnaffected,
                || format!("{id} waited {waited_ms} ms behind others"),
            );
        }
    }

    fn check_gate(&mut self, attempt: &Attempt, at_ms: u64) {
        let endpoint = attempt.endpoint;
        let endpoint_record = self.endpoint_record(endpoint);
        endpoint_record.in_flight += 1;
        endpoint_record.sends_ms.push_back(at_ms);
        while endpoint_record
            .sends_ms
            .front()
            .is_some_and(|sent| sent + 1_000 <= at_ms)
        {
            endpoint_record.sends_ms.pop_front();
        }
        if endpoint_record
            .recovered_ms
            .is_some_and(|recovered| at_ms < recovered + 1_000)
        {
            endpoint_record.sends_since_recovery += 1;
        }
        let probe = attempt.trigger == Trigger::Probe;
        let one_probe = if endpoint_record.tripped {
            probe && !std::mem::replace(&mut endpoint_record.probe_in_flight, true)
        } else {
            !probe
        };
        let endpoint_record = endpoint_record.clone();
        let rate = endpoint_record.settings.rate;
        let most = rate.per_second + f64::from(rate.burst);
        self.expect(
            !endpoint_record.shut,
            Oracle::NothingAfterStatusChange,
            || format!("{} was sent to {endpoint}, which is shut", attempt.delivery),
        );
        self.expect(
            endpoint_record.in_flight <= endpoint_record.settings.max_in_flight,
            Oracle::WithinTheWindow,
            || format!("{} in flight to {endpoint}", endpoint_record.in_flight),
        );
        let of_tenant = self.in_flight_of(&endpoint_record.tenant);
        let most_of_tenant = endpoint_record.settings.tenant_in_flight;
        self.expect(
            most_of_tenant.is_none_or(|most| of_tenant <= most),
            Oracle::WithinTheTenant,
            || format!("{of_tenant} in flight of {}", endpoint_record.tenant),
        );
        self.expect(
            endpoint_record.sends_ms.len() as f64 <= most,
            Oracle::WithinTheRate,
            || {
                format!(
                    "{} within a second to {endpoint}, {most} allowed",
                    endpoint_record.sends_ms.len()
                )
            },
        );
        let gentle = f64::from(endpoint_record.sends_since_recovery) <= rate.per_second + 1.0;
        self.expect(gentle, Oracle::GentleRecovery, || {
            format!(
                "{} to {endpoint} in the second it recovered",
                endpoint_record.sends_since_recovery
            )
        });
        self.expect(one_probe, Oracle::OneProbe, || {
            format!(
                "{} as {:?} to {endpoint}",
                attempt.delivery, attempt.trigger
            )
        });
        self.expect(
            endpoint_record.quiet_until_ms <= at_ms,
            Oracle::RetryAfterIsHonoured,
            || {
                format!(
                    "{endpoint} asked for quiet until {} ms",
                    endpoint_record.quiet_until_ms
                )
            },
        );
    }

    /// Returns the number of a tenant's attempts in flight, over all its endpoints.
    fn in_flight_of(&self, tenant: &TenantId) -> u32 {
        let endpoint_records = self.endpoint_records.values();
        let theirs = endpoint_records.filter(|endpoint_record| endpoint_record.tenant == *tenant);
        theirs
            .map(|endpoint_record| endpoint_record.in_flight)
            .sum()
    }

    /// An attempt ended at the receiver.
    pub fn attempt_ended(&mut self, attempt: &Attempt) {
        let endpoint_record = self.endpoint_record(attempt.endpoint);
        endpoint_record.in_flight -= 1;
        if attempt.trigger == Trigger::Probe {
            endpoint_record.probe_in_flight = false;
        }
    }

    /// The process received this outcome.
    pub fn result(&mut self, attempt: &Attempt, outcome: Outcome, at_ms: u64) {
        let settings = self.endpoint_record(attempt.endpoint).settings.clone();
        let delivery_record = self.delivery_record(attempt.delivery);
        delivery_record.results += 1;
        delivery_record.settled_under = settings;
        let endpoint_record = self.endpoint_record(attempt.endpoint);
        if let Classification::Failure(failure) =
            classify(outcome, endpoint_record.settings.policy.rules())
            && let Some(asked) = failure.retry_after
        {
            let asked_ms = asked
                .min(endpoint_record.settings.retry_after_cap)
                .as_millis();
            endpoint_record.quiet_until_ms = endpoint_record.quiet_until_ms.max(at_ms + asked_ms);
        }
    }

    /// The attempt runner crashed: the missing record of this attempt is excused.
    pub fn excused(&mut self, attempt: &Attempt) {
        let delivery_record = self.delivery_record(attempt.delivery);
        delivery_record.excuses += 1;
        delivery_record.is_in_flight = false;
    }

    /// A record of an attempt was written.
    pub fn written(&mut self, epoch: Epoch, before: &Delivery, record: &AttemptRecord) {
        let after = &record.delivery;
        let (id, endpoint) = (after.id(), after.facts().endpoint);
        self.check_terminal(before, after);
        let delivery_record = self.delivery_record(id);
        delivery_record.is_in_flight = false;
        delivery_record.recorded += 1;
        let is_refused_probe = is_refused_probe(record);
        delivery_record.spent += u32::from(!is_refused_probe);
        delivery_record.last_write = Some((epoch, after.facts().attempts));
        delivery_record.ended = Some(after.state()).filter(|_| after.status().is_terminal());
        let delivery_record = delivery_record.clone();
        let endpoint_record = self.endpoint_record(endpoint);
        if record.disable.is_some() {
            endpoint_record.shut = true;
        }
        let most = endpoint_record.most_attempts;
        let policy = &delivery_record.settled_under.policy;
        self.expect(
            delivery_record.spent <= most,
            Oracle::AttemptsWithinPolicy,
            || {
                format!(
                    "{id} has {} attempts, {most} allowed",
                    delivery_record.spent
                )
            },
        );
        self.expect(
            delivery_record.recorded <= delivery_record.results,
            Oracle::LocalFaultsCountNoAttempt,
            || {
                format!(
                    "{id}: {} counted, {} came back",
                    delivery_record.recorded, delivery_record.results
                )
            },
        );
        let spared = !is_refused_probe || !is_failed_by_attempt(after);
        self.expect(spared, Oracle::RefusedProbesFailNothing, || {
            format!("{id} is {:?} after a refused probe", after.state())
        });
        let Some(next_at) = record.settlement.next_attempt_at else {
            return;
        };
        if is_refused_probe {
            return;
        }
        let give_up_at = delivery_record.give_up_at;
        self.expect(
            next_at <= give_up_at,
            Oracle::NoRetryBeyondTheDeadline,
            || format!("{id} retries at {next_at:?}, deadline {give_up_at:?}"),
        );
        let nominal = policy.backoff.nominal(delivery_record.spent.max(1));
        let spread = policy.jitter != Jitter::None && nominal >= WAVE_NOMINAL;
        if spread && record.settlement.retry_after.is_none() {
            let group = (endpoint, delivery_record.spent, nominal.as_millis());
            let delay = next_at.since(record.settlement.finished_at);
            self.delays_ms
                .entry(group)
                .or_default()
                .push(delay.as_millis());
        }
    }

    /// A record of an attempt was refused as superseded.
    pub fn superseded(&mut self, epoch: Epoch, record: &AttemptRecord) {
        let (id, attempts) = (record.delivery.id(), record.delivery.facts().attempts);
        let repeated = self.delivery_record(id).last_write == Some((epoch, attempts));
        self.expect(repeated, Oracle::EveryResultIsKept, || {
            format!("attempt {attempts} of {id} came back, but its row had moved on")
        });
    }

    fn check_terminal(&mut self, before: &Delivery, after: &Delivery) {
        let stays = !before.status().is_terminal() || before == after;
        self.expect(stays, Oracle::TerminalStays, || {
            format!(
                "{} went from {:?} to {:?}",
                after.id(),
                before.status(),
                after.status()
            )
        });
    }

    /// A waiting delivery was ended by a sweep.
    pub fn swept(&mut self, before: &Delivery, after: &Delivery) {
        self.check_terminal(before, after);
        self.delivery_record(after.id()).ended = Some(after.state());
    }

    /// A pause, disable or delete was acknowledged.
    pub fn status_acknowledged(&mut self, endpoint: EndpointId) {
        self.endpoint_record(endpoint).shut = true;
    }

    /// An endpoint was enabled, which also closes its breaker.
    pub fn endpoint_enabled(&mut self, endpoint: EndpointId, at_ms: u64) {
        let endpoint_record = self.endpoint_record(endpoint);
        let was_away = endpoint_record.shut || endpoint_record.tripped;
        endpoint_record.shut = false;
        endpoint_record.tripped = false;
        endpoint_record.probe_in_flight = false;
        endpoint_record.quiet_until_ms = 0;
        if was_away {
            endpoint_record.recovered_ms = Some(at_ms);
            endpoint_record.sends_since_recovery = 0;
        }
    }

    /// The endpoint's breaker tripped.
    pub fn tripped(&mut self, endpoint: EndpointId) {
        self.endpoint_record(endpoint).tripped = true;
    }

    /// The endpoint's breaker closed.
    pub fn recovered(&mut self, endpoint: EndpointId, at_ms: u64) {
        let endpoint_record = self.endpoint_record(endpoint);
        endpoint_record.tripped = false;
        endpoint_record.recovered_ms = Some(at_ms);
        endpoint_record.sends_since_recovery = 0;
    }

    /// The endpoint's settings were changed.
    pub fn edited(&mut self, endpoint: EndpointId, settings: Arc<LaneSettings>) {
        let endpoint_record = self.endpoint_record(endpoint);
        endpoint_record.most_attempts = endpoint_record
            .most_attempts
            .max(settings.policy.max_attempts);
        endpoint_record.settings = settings;
    }

    /// A delivery was replayed, which starts a new round.
    pub fn replayed(&mut self, delivery: &Delivery) {
        let give_up_at = delivery.facts().give_up_at;
        let delivery_record = self.delivery_record(delivery.id());
        delivery_record.spent = 0;
        delivery_record.ended = None;
        delivery_record.replayed = true;
        delivery_record.give_up_at = give_up_at;
    }

    /// The process crashed. Attempts in flight are excused.
    pub fn crashed(&mut self) {
        for delivery_record in self.delivery_records.values_mut() {
            if std::mem::take(&mut delivery_record.is_in_flight) {
                delivery_record.excuses += 1;
            }
            delivery_record.handed_over_ms = None;
        }
        for endpoint_record in self.endpoint_records.values_mut() {
            endpoint_record.in_flight = 0;
            endpoint_record.probe_in_flight = false;
            endpoint_record.quiet_until_ms = 0;
        }
    }

    /// The process reported that it has drained.
    pub fn stopped(&mut self) {
        let mut records = self.delivery_records.iter();
        let left = records
            .find(|(_, record)| record.is_in_flight)
            .map(|(id, _)| *id);
        self.expect(left.is_none(), Oracle::CleanStop, || {
            format!("{left:?} was left over")
        });
    }

    /// A new process started from the disk.
    pub fn restarted(&mut self, disk: &Disk, at_ms: u64, wall: Timestamp) {
        for (endpoint, row) in disk.endpoints() {
            let quiet = row
                .health
                .quiet_until
                .map_or(Span::ZERO, |until| until.since(wall));
            // The `Retry-After` time is stored as wall clock time, so it is meaningless after a clock jump.
            let quiet_ms = if self.clock_jumped {
                0
            } else {
                quiet.as_millis()
            };
            let endpoint_record = self.endpoint_record(*endpoint);
            endpoint_record.tripped = row.health.trip.is_some();
            endpoint_record.quiet_until_ms = at_ms + quiet_ms;
        }
    }

    /// Makes the final checks at the end of the run.
    pub fn close(&mut self, disk: &Disk) {
        let delivery_records = std::mem::take(&mut self.delivery_records);
        for (id, delivery_record) in &delivery_records {
            let kept = delivery_record.sends <= delivery_record.recorded + delivery_record.excuses;
            self.expect(kept, Oracle::EveryResultIsKept, || {
                format!(
                    "{id} to {}: {} sent, {} recorded, {} excused",
                    delivery_record.endpoint,
                    delivery_record.sends,
                    delivery_record.recorded,
                    delivery_record.excuses
                )
            });
        }
        for (id, delivery_record) in &delivery_records {
            let state = disk.delivery(*id).map(Delivery::state);
            let stays = delivery_record.ended.is_none() || delivery_record.ended == state;
            self.expect(stays, Oracle::TerminalStays, || {
                format!(
                    "{id} ended as {:?} and is now {state:?}",
                    delivery_record.ended
                )
            });
            let status = state.map(|state| state.status());
            let ended = status.is_some_and(Status::is_terminal);
            self.expect(ended, Oracle::EverythingEnds, || {
                format!("{id} is {status:?}")
            });
        }
        self.delivery_records = delivery_records;
        self.check_waves();
    }

    fn check_waves(&mut self) {
        let groups = std::mem::take(&mut self.delays_ms);
        for ((endpoint, attempt, nominal_ms), mut delays_ms) in groups {
            if delays_ms.len() < WAVE_SAMPLES {
                continue;
            }
            delays_ms.sort_unstable();
            let most = delays_ms.chunk_by(|a, b| a == b).map(<[u64]>::len).max();
            let most = most.unwrap_or(0);
            self.expect(most * 4 <= delays_ms.len(), Oracle::NoRetryWave, || {
                format!(
                    "{most} of {} retries after attempt {attempt} to {endpoint} waited the same \
                     ({nominal_ms} ms nominal)",
                    delays_ms.len()
                )
            });
        }
    }
}
