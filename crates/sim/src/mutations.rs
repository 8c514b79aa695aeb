//! Mutations: bugs planted on purpose, to prove that the oracles can fail.
//!
//! Each [`Mutation`] changes the inputs or commands between the core and the simulated world, so that both together
//! behave as if the bug were in the core. The core's code does not know about mutations.

use std::sync::Arc;

use posthaste_core::classify::{Outcome, TransportError};
use posthaste_core::delivery::{DeadReason, Delivery, DeliveryData, State, Trigger};
use posthaste_core::dispatcher::{AttemptEnd, Command, EndpointSnapshot, Input, Record};
use posthaste_core::id::EndpointId;
use posthaste_core::lane::{Health, LaneSettings, RateLimit};
use posthaste_core::policy::{Jitter, LateAction, RetryPolicy};
use posthaste_core::time::Span;

use crate::oracle::Oracle;
use crate::records::is_refused_probe;

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Sometimes a result counts as recorded although it was not written.
    ResultLost,
    /// A tripped breaker never sends its probe.
    NeverProbes,
    /// One attempt more in flight than the endpoint allows.
    WindowOffByOne,
    /// One attempt more in flight than the tenant allows.
    TenantOffByOne,
    /// Twice the rate that the endpoint allows.
    TwiceTheRate,
    /// A retry is scheduled although the deadline has passed.
    RetryAfterDeadline,
    /// One attempt more than the policy allows.
    OneAttemptTooMany,
    /// A fault of posthaste itself counts as an attempt.
    CountsOurFaults,
    /// A probe that the receiver refuses fails its delivery.
    RefusedProbeFails,
    /// Retry delays have no jitter.
    NoJitter,
    /// The dispatcher is not informed that an endpoint was paused, disabled or deleted.
    SendsToTheDisabled,
    /// The backlog of one endpoint is never fetched.
    LaneStarved,
    /// A process that was replaced can still write.
    StaleWrites,
    /// The dispatcher is not informed that a delivery was cancelled.
    SendsTheCancelled,
    /// The same idempotency key makes a new event each time.
    ForgetsKeys,
    /// A restart does not load some endpoints.
    ForgetsAfterRestart,
    /// Accepted deliveries are handed over a second time, much later.
    HandsOverTwice,
    /// All endpoints are scheduled as those of one tenant.
    Unfair,
    /// `Retry-After` is ignored.
    IgnoresRetryAfter,
    /// Deliveries are sent after their deadline, although their policy drops them.
    SendsTheLate,
    /// Ordering keys are ignored.
    IgnoresOrder,
    /// After an interruption the accumulated burst is sent at once.
    BurstAfterRecovery,
    /// A restart forgets that a breaker had tripped.
    ForgetsTheTrip,
    /// Retries are fetched an hour before their due time.
    RetriesEarly,
    /// The process reports that it has drained while attempts are in flight.
    DrainsTooSoon,
    /// A late record overwrites a delivery that has ended.
    OverwritesTheEnd,
}

impl Mutation {
    /// Every mutation, with an oracle that must detect it.
    pub const ALL: [(Mutation, Oracle); 26] = [
        (Mutation::ResultLost, Oracle::OneAtATime),
        (Mutation::NeverProbes, Oracle::EverythingEnds),
        (Mutation::WindowOffByOne, Oracle::WithinTheWindow),
        (Mutation::TenantOffByOne, Oracle::WithinTheTenant),
        (Mutation::TwiceTheRate, Oracle::WithinTheRate),
        (
            Mutation::RetryAfterDeadline,
            Oracle::NoRetryBeyondTheDeadline,
        ),
        (Mutation::OneAttemptTooMany, Oracle::AttemptsWithinPolicy),
        (Mutation::CountsOurFaults, Oracle::LocalFaultsCountNoAttempt),
        (
            Mutation::RefusedProbeFails,
            Oracle::RefusedProbesFailNothing,
        ),
        (Mutation::NoJitter, Oracle::NoRetryWave),
        (
            Mutation::SendsToTheDisabled,
            Oracle::NothingAfterStatusChange,
        ),
        (Mutation::LaneStarved, Oracle::EverythingEnds),
        (Mutation::StaleWrites, Oracle::EveryResultIsKept),
        (Mutation::SendsTheCancelled, Oracle::NothingAfterCancel),
        (Mutation::ForgetsKeys, Oracle::OneEventPerKey),
        (Mutation::ForgetsAfterRestart, Oracle::EverythingEnds),
        (Mutation::HandsOverTwice, Oracle::NothingAfterTheEnd),
        (Mutation::Unfair, Oracle::HealthyEndpointUnaffected),
        (Mutation::IgnoresRetryAfter, Oracle::RetryAfterIsHonoured),
        (Mutation::SendsTheLate, Oracle::LateIsDropped),
        (Mutation::IgnoresOrder, Oracle::InOrder),
        (Mutation::BurstAfterRecovery, Oracle::GentleRecovery),
        (Mutation::ForgetsTheTrip, Oracle::OneProbe),
        (Mutation::RetriesEarly, Oracle::NotEarly),
        (Mutation::DrainsTooSoon, Oracle::CleanStop),
        (Mutation::OverwritesTheEnd, Oracle::TerminalStays),
    ];

    /// Changes an input on its way to the dispatcher.
    pub(crate) fn tamper_input(self, input: Input) -> Input {
        match (self, input) {
            (Mutation::CountsOurFaults, Input::Finished { ticket, finish }) => {
                let finish = match finish {
                    AttemptEnd::InternalFault(_) => {
                        AttemptEnd::Completed(Outcome::Failed(TransportError::Unknown))
                    }
                    ran @ AttemptEnd::Completed(_) => ran,
                };
                Input::Finished { ticket, finish }
            }
            (Mutation::IgnoresRetryAfter, Input::Finished { ticket, finish }) => {
                let finish = match finish {
                    AttemptEnd::Completed(Outcome::Answered { status, .. }) => {
                        AttemptEnd::Completed(Outcome::Answered {
                            status,
                            retry_after: None,
                        })
                    }
                    other @ (AttemptEnd::Completed(Outcome::Failed(_) | Outcome::StaleToken)
                    | AttemptEnd::InternalFault(_)) => other,
                };
                Input::Finished { ticket, finish }
            }
            (Mutation::RetryAfterDeadline, Input::Accepted(deliveries)) => {
                Input::Accepted(deliveries.into_iter().map(without_deadline).collect())
            }
            (
                Mutation::RetryAfterDeadline,
                Input::Fetched {
                    ticket,
                    endpoint,
                    mut fetched,
                },
            ) => {
                let deliveries = fetched.deliveries.into_iter();
                fetched.deliveries = deliveries.map(without_deadline).collect();
                Input::Fetched {
                    ticket,
                    endpoint,
                    fetched,
                }
            }
            (mutation, Input::EndpointLoaded(snapshot)) => {
                Input::EndpointLoaded(mutation.tamper_snapshot(snapshot))
            }
            (_, input) => input,
        }
    }

    fn tamper_snapshot(self, snapshot: EndpointSnapshot) -> EndpointSnapshot {
        if self == Mutation::ForgetsTheTrip {
            let health = Health {
                trip: None,
                ..snapshot.health
            };
            return EndpointSnapshot { health, ..snapshot };
        }
        if self == Mutation::Unfair {
            let tenant = "everybody".parse().expect("the tenant name is valid");
            return EndpointSnapshot { tenant, ..snapshot };
        }
        EndpointSnapshot {
            settings: Arc::new(self.tamper_settings((*snapshot.settings).clone())),
            ..snapshot
        }
    }

    fn tamper_settings(self, settings: LaneSettings) -> LaneSettings {
        let policy = settings.policy.clone();
        match self {
            Mutation::WindowOffByOne => LaneSettings {
                max_in_flight: settings.max_in_flight + 1,
                ..settings
            },
            Mutation::TenantOffByOne => LaneSettings {
                tenant_in_flight: settings.tenant_in_flight.map(|most| most + 1),
                ..settings
            },
            Mutation::TwiceTheRate => LaneSettings {
                rate: RateLimit {
                    per_second: settings.rate.per_second * 2.0,
                    burst: settings.rate.burst * 2,
                },
                ..settings
            },
            Mutation::OneAttemptTooMany => LaneSettings {
                policy: RetryPolicy {
                    max_attempts: policy.max_attempts + 1,
                    ..policy
                },
                ..settings
            },
            Mutation::SendsTheLate => LaneSettings {
                policy: RetryPolicy {
                    late: LateAction::Send,
                    ..policy
                },
                ..settings
            },
            Mutation::NoJitter => LaneSettings {
                policy: RetryPolicy {
                    jitter: Jitter::None,
                    ..policy
                },
                ..settings
            },
            Mutation::IgnoresOrder => LaneSettings {
                ordered: false,
                ..settings
            },
            Mutation::BurstAfterRecovery => LaneSettings {
                rate: RateLimit {
                    per_second: settings.rate.per_second + f64::from(settings.rate.burst) / 2.0,
                    burst: 1,
                },
                ..settings
            },
            Mutation::ForgetsTheTrip
            | Mutation::Unfair
            | Mutation::ResultLost
            | Mutation::NeverProbes
            | Mutation::RetryAfterDeadline
            | Mutation::CountsOurFaults
            | Mutation::RefusedProbeFails
            | Mutation::SendsToTheDisabled
            | Mutation::LaneStarved
            | Mutation::StaleWrites
            | Mutation::SendsTheCancelled
            | Mutation::ForgetsKeys
            | Mutation::ForgetsAfterRestart
            | Mutation::HandsOverTwice
            | Mutation::IgnoresRetryAfter
            | Mutation::RetriesEarly
            | Mutation::DrainsTooSoon
            | Mutation::OverwritesTheEnd => settings,
        }
    }

    /// Changes a record on its way to the disk.
    pub(crate) fn tamper_record(self, record: Record) -> Record {
        match (self, record) {
            (Mutation::RefusedProbeFails, Record::Attempt(mut attempt)) => {
                let is_waiting = attempt.delivery.next_attempt_at().is_some();
                if is_waiting && is_refused_probe(&attempt) {
                    let state = State::Failed {
                        at: attempt.settlement.finished_at,
                        reason: DeadReason::Permanent,
                    };
                    attempt.delivery = Delivery::restore(attempt.delivery.facts().clone(), state);
                }
                Record::Attempt(attempt)
            }
            (_, record) => record,
        }
    }

    /// Returns true if a command is dropped on its way to the world.
    pub(crate) fn drops(self, command: &Command) -> bool {
        match (self, command) {
            (Mutation::NeverProbes, Command::Send(attempt)) => attempt.trigger == Trigger::Probe,
            (Mutation::LaneStarved, Command::Fetch { endpoint, .. }) => *endpoint == EndpointId(1),
            (_, _) => false,
        }
    }
}

fn without_deadline(delivery: Delivery) -> Delivery {
    let facts = delivery.facts();
    let give_up_at = facts.give_up_at.after(Span::from_days(30));
    let facts = DeliveryData {
        give_up_at,
        ..facts.clone()
    };
    Delivery::restore(facts, delivery.state())
}
