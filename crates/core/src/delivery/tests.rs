//! Tests of the delivery's state machine and of its retries.
//!
//! One test crosses every state with every transition and compares the result with the diagram of the module. The
//! others check the number and times of attempts, the reasons of dead letters, replays, and the forecast. A
//! property test checks that no delivery exceeds the attempts or the deadline of its policy.

use super::*;
use crate::classify::{HttpStatus, Outcome, TransportError};
use crate::policy::{Backoff, Jitter, LateAction, Preset, RetryPolicy};
use crate::rng::Rng;
use proptest::prelude::*;

const DUE: Timestamp = Timestamp(1_000_000);
const GIVE_UP_AFTER: Span = Span::from_hours(72);

fn fresh() -> Delivery {
    Delivery::schedule(
        DeliveryId(1),
        EventId(2),
        EndpointId(3),
        None,
        DUE,
        GIVE_UP_AFTER,
    )
}

fn fixed(seconds: u64, max_attempts: u32) -> RetryPolicy {
    RetryPolicy {
        backoff: Backoff::Fixed {
            interval: Span::from_secs(seconds),
        },
        jitter: Jitter::None,
        max_attempts,
        ..Preset::Recommended.policy()
    }
}

fn status(code: u16, retry_after_s: Option<u64>) -> Outcome {
    Outcome::Answered {
        status: HttpStatus::new(code).unwrap(),
        retry_after: retry_after_s.map(Span::from_secs),
    }
}

/// One attempt at `now` that ends at once.
fn attempt(
    delivery: &mut Delivery,
    now: Timestamp,
    outcome: Outcome,
    policy: &RetryPolicy,
) -> SettledAttempt {
    attempt_or_probe(delivery, now, outcome, policy, false)
}

fn attempt_or_probe(
    delivery: &mut Delivery,
    now: Timestamp,
    outcome: Outcome,
    policy: &RetryPolicy,
    probe: bool,
) -> SettledAttempt {
    let terms = RetrySettings {
        policy,
        retry_after_cap: Span::from_hours(24),
    };
    delivery.begin(now, probe).expect("the delivery is waiting");
    delivery
        .settle(now, outcome, terms, &mut Rng::seeded(1))
        .expect("an attempt is in progress")
}

/// Makes every due attempt until the delivery ends.
fn run(delivery: &mut Delivery, outcome: Outcome, policy: &RetryPolicy) {
    while let Some(at) = delivery.next_attempt_at() {
        attempt(delivery, at, outcome, policy);
    }
}

fn failed(delivery: &Delivery) -> Option<DeadReason> {
    match delivery.state() {
        State::Failed { reason, .. } => Some(reason),
        State::Pending(_)
        | State::Retrying(_)
        | State::Held(_)
        | State::InProgress { .. }
        | State::Succeeded { .. }
        | State::Cancelled { .. } => None,
    }
}

#[test]
fn each_outcome_ends_with_the_expected_reason() {
    let policy = fixed(1, 5);
    for (outcome, reason, attempts) in [
        (status(200, None), None, 1),
        (status(400, None), Some(DeadReason::Permanent), 1),
        (status(302, None), Some(DeadReason::Permanent), 1),
        (status(503, None), Some(DeadReason::Exhausted), 5),
        (status(404, None), Some(DeadReason::Exhausted), 4),
        (
            Outcome::Failed(TransportError::Dns),
            Some(DeadReason::Exhausted),
            5,
        ),
        (
            Outcome::Failed(TransportError::UnsafeDestination),
            Some(DeadReason::UnsafeDestination),
            1,
        ),
    ] {
        let mut delivery = fresh();
        run(&mut delivery, outcome, &policy);
        assert_eq!(failed(&delivery), reason, "{outcome:?}");
        assert_eq!(delivery.facts().attempts, attempts, "{outcome:?}");
    }
}

#[test]
fn each_ambiguous_status_has_its_own_retry_limit() {
    let policy = fixed(1, 50);
    let mut delivery = fresh();
    let mut sequence = [404, 503, 409, 404, 503, 409, 404, 404].into_iter();
    while let Some(at) = delivery.next_attempt_at() {
        attempt(
            &mut delivery,
            at,
            status(sequence.next().unwrap(), None),
            &policy,
        );
    }
    // The fourth 404 exceeds the limit; the two 409s in between do not count towards it.
    assert_eq!(delivery.facts().attempts, 8);
    assert_eq!(failed(&delivery), Some(DeadReason::Exhausted));
}

#[test]
fn a_retry_beyond_the_deadline_is_not_scheduled() {
    let policy = fixed(60, 100);
    let give_up = Span::from_secs(150);
    let mut delivery =
        Delivery::schedule(DeliveryId(1), EventId(2), EndpointId(3), None, DUE, give_up);
    run(&mut delivery, status(500, None), &policy);
    assert_eq!(failed(&delivery), Some(DeadReason::Expired));
    // Attempts at 0, 60 and 120 s; 180 s would be too late.
    assert_eq!(delivery.facts().attempts, 3);
}

#[test]
fn a_retry_exactly_at_the_deadline_is_made() {
    let give_up = Span::from_secs(60);
    let mut delivery =
        Delivery::schedule(DeliveryId(1), EventId(2), EndpointId(3), None, DUE, give_up);
    run(&mut delivery, status(500, None), &fixed(60, 100));
    assert_eq!(delivery.facts().attempts, 2);
}

#[test]
fn a_scheduled_attempt_is_made_even_if_late() {
    let mut delivery = fresh();
    delivery.hold().unwrap();
    delivery.release().unwrap();
    let late = DUE.after(Span::from_days(30));
    attempt(&mut delivery, late, status(200, None), &fixed(60, 3));
    assert_eq!(delivery.status(), Status::Succeeded);
}

#[test]
fn the_wait_is_the_longer_of_retry_after_and_backoff() {
    for (backoff_s, code, asked_s, wait_s) in [
        (60, 503, Some(10), 60),
        (60, 503, Some(90), 90),
        (60, 429, Some(90), 90),
        (60, 429, None, 120),
        (60, 429, Some(1), 60),
        (60, 404, Some(600), 600),
        (60, 503, Some(90_000), 86_400),
    ] {
        let mut delivery = fresh();
        let settled = attempt(
            &mut delivery,
            DUE,
            status(code, asked_s),
            &fixed(backoff_s, 5),
        );
        assert_eq!(
            settled.next_attempt_at,
            Some(DUE.after(Span::from_secs(wait_s))),
            "{code} with {asked_s:?}"
        );
    }
}

#[test]
fn a_waiting_delivery_of_a_held_endpoint_is_shown_as_held() {
    let mut delivery = fresh();
    assert_eq!(delivery.shown_status(false), Status::Pending);
    assert_eq!(delivery.shown_status(true), Status::Held);
    delivery.begin(DUE, false).unwrap();
    assert_eq!(delivery.shown_status(true), Status::InProgress);
    delivery.abandon().unwrap();
    delivery.disable(DUE).unwrap();
    assert_eq!(delivery.shown_status(true), Status::Failed);
    let reason = failed(&delivery).expect("the delivery has failed");
    assert_eq!(
        reason.kind(),
        Some(crate::classify::FailureKind::WebhookDisabled)
    );
}

#[test]
fn an_internal_fault_uses_no_attempt() {
    let mut delivery = fresh();
    let before = delivery.clone();
    delivery.begin(DUE, false).unwrap();
    delivery.abandon().unwrap();
    assert_eq!(delivery, before);
}

#[test]
fn only_a_refused_probe_is_no_attempt_of_its_round() {
    let policy = fixed(1, 2);
    for (outcome, probe, is_refused) in [
        (status(403, None), true, true),
        (status(403, None), false, false),
        (status(503, None), true, false),
        (status(200, None), true, false),
        (Outcome::Failed(TransportError::Timeout), true, false),
    ] {
        let mut delivery = fresh();
        let settled = attempt_or_probe(&mut delivery, DUE, outcome, &policy, probe);
        assert_eq!(settled.is_refused_probe(), is_refused, "{outcome:?}");
        let spent = delivery.facts().spent;
        assert_eq!(spent, u32::from(!is_refused), "{outcome:?}");
    }
}

#[test]
fn a_replay_starts_a_new_round_under_the_old_id() {
    let policy = fixed(1, 2);
    let mut delivery = fresh();
    run(&mut delivery, status(500, None), &policy);
    let later = DUE.after(Span::from_days(10));
    delivery.replay(later, GIVE_UP_AFTER).unwrap();
    assert_eq!(delivery.id(), fresh().id());
    assert_eq!(delivery.next_attempt_at(), Some(later));
    assert_eq!(delivery.facts().give_up_at, later.after(GIVE_UP_AFTER));
    let settled = attempt(&mut delivery, later, status(500, None), &policy);
    assert_eq!((settled.number, settled.trigger), (3, Trigger::Manual));
    assert_eq!(delivery.status(), Status::Retrying);
}

#[test]
fn upcoming_attempts_match_the_policy() {
    let policy = Preset::Recommended.policy();
    let mut delivery = fresh();
    assert_eq!(delivery.expected_attempts(&policy, DUE, DUE).len(), 9);
    let settled = attempt(&mut delivery, DUE, status(500, None), &policy);
    let upcoming = delivery.expected_attempts(&policy, DUE, DUE);
    assert_eq!(upcoming.len(), 8);
    assert_eq!(upcoming[0].number, 2);
    assert_eq!(Some(upcoming[0].expected_at), settled.next_attempt_at);
    assert_eq!(
        upcoming[1].earliest_at,
        upcoming[0].earliest_at.after(Span::from_secs(24))
    );
    delivery.begin(upcoming[0].expected_at, false).unwrap();
    assert_eq!(
        delivery.expected_attempts(&policy, upcoming[0].expected_at, DUE)[0].number,
        3
    );
    delivery
        .settle(
            DUE,
            status(200, None),
            RetrySettings {
                policy: &policy,
                retry_after_cap: Span::from_hours(24),
            },
            &mut Rng::seeded(0),
        )
        .unwrap();
    assert!(delivery.expected_attempts(&policy, DUE, DUE).is_empty());
}

/// A transition with its name.
type Transition = (
    &'static str,
    fn(&mut Delivery) -> Result<(), IllegalTransition>,
);

const TRANSITIONS: [Transition; 12] = [
    ("hold", |d| d.hold()),
    ("release", |d| d.release()),
    ("begin", |d| d.begin(DUE, false).map(drop)),
    ("abandon", |d| d.abandon()),
    ("settle", |d| {
        let terms = RetrySettings {
            policy: &fixed(1, 2),
            retry_after_cap: Span::ZERO,
        };
        d.settle(DUE, status(200, None), terms, &mut Rng::seeded(0))
            .map(drop)
    }),
    ("cancel", |d| d.cancel(DUE)),
    ("disable", |d| d.disable(DUE)),
    ("delete", |d| d.delete(DUE)),
    ("expire early", |d| d.expire(DUE.after(GIVE_UP_AFTER))),
    ("expire", |d| {
        d.expire(DUE.after(GIVE_UP_AFTER).after(Span::from_millis(1)))
    }),
    ("make due", |d| d.make_due(DUE)),
    ("replay", |d| d.replay(DUE, GIVE_UP_AFTER)),
];

/// Returns a delivery in the given state.
fn delivery_in(wanted: Status) -> Delivery {
    let policy = fixed(1, 2);
    let mut delivery = fresh();
    match wanted {
        Status::Pending => {}
        Status::Held => delivery.hold().unwrap(),
        Status::InProgress => drop(delivery.begin(DUE, false).unwrap()),
        Status::Retrying => {
            let timeout = Outcome::Failed(TransportError::Timeout);
            attempt(&mut delivery, DUE, timeout, &policy);
        }
        Status::Succeeded => {
            attempt(&mut delivery, DUE, status(200, None), &policy);
        }
        Status::Failed => {
            attempt(&mut delivery, DUE, status(400, None), &policy);
        }
        Status::Cancelled => delivery.cancel(DUE).unwrap(),
    }
    assert_eq!(delivery.status(), wanted);
    delivery
}

/// Returns the state after a transition, or `None` if the diagram of the module does not have it.
fn state_after(from: Status, transition: &str) -> Option<Status> {
    use Status::*;
    match (from, transition) {
        (Pending | Retrying, "hold") => Some(Held),
        (Held, "release") => Some(Pending),
        (Pending | Retrying, "begin") => Some(InProgress),
        (InProgress, "abandon") => Some(Pending),
        (InProgress, "settle") => Some(Succeeded),
        (Pending | Retrying | Held, "cancel") => Some(Cancelled),
        (Pending | Retrying | Held, "disable" | "delete" | "expire") => Some(Failed),
        (Pending | Retrying | Held, "make due") => Some(from),
        (Succeeded | Failed | Cancelled, "replay") => Some(Pending),
        (_, _) => None,
    }
}

#[test]
fn a_late_delivery_is_dropped_unless_it_was_retried_by_hand() {
    let sends = fixed(1, 5);
    let drops = RetryPolicy {
        late: LateAction::Drop,
        ..fixed(1, 5)
    };
    let deadline = DUE.after(GIVE_UP_AFTER);
    let late = deadline.after(Span::from_millis(1));
    let mut delivery = fresh();
    assert!(!delivery.is_dropped_at(deadline, &drops));
    assert!(delivery.is_dropped_at(late, &drops));
    assert!(!delivery.is_dropped_at(late, &sends));
    // Nothing is promised that would not be sent.
    assert_eq!(delivery.expected_attempts(&drops, late, DUE), []);
    assert_eq!(delivery.expected_attempts(&drops, DUE, late), []);
    assert_eq!(delivery.expected_attempts(&sends, late, DUE).len(), 1);
    assert_eq!(delivery.expected_attempts(&drops, deadline, DUE).len(), 1);
    let mut sending = delivery.clone();
    sending.begin(DUE, false).unwrap();
    assert_eq!(sending.expected_attempts(&drops, DUE, DUE).len(), 4);
    assert_eq!(sending.expected_attempts(&drops, DUE, late), []);
    delivery.expire(late).unwrap();
    assert_eq!(failed(&delivery), Some(DeadReason::Expired));
    assert_eq!(delivery.facts().attempts, 0);
    // A replay starts a new round with a new deadline.
    delivery.replay(late, GIVE_UP_AFTER).unwrap();
    assert!(!delivery.is_dropped_at(late, &drops));
    let after_replay = late.after(GIVE_UP_AFTER).after(Span::from_millis(1));
    assert!(delivery.is_dropped_at(after_replay, &drops));
    // A retry by hand before the deadline that is held back past it is late, one after the deadline is not.
    let mut waiting = fresh();
    waiting.make_due(deadline).unwrap();
    assert!(waiting.is_dropped_at(late, &drops));
    waiting.make_due(late).unwrap();
    assert!(!waiting.is_dropped_at(after_replay, &drops));
    assert!(waiting.expire(after_replay).is_err());
}

/// Every state crossed with every transition, compared with the diagram at the top of the module.
#[test]
fn only_the_transitions_in_the_diagram_are_legal() {
    use Status::*;
    for from in [
        Pending, Retrying, Held, InProgress, Succeeded, Failed, Cancelled,
    ] {
        for (name, transition) in TRANSITIONS {
            let mut delivery = delivery_in(from);
            let before = delivery.clone();
            match (transition(&mut delivery), state_after(from, name)) {
                (Ok(()), Some(to)) => assert_eq!(delivery.status(), to, "{from:?} {name}"),
                (Err(error), None) => {
                    assert_eq!(error.from, from);
                    assert_eq!(
                        delivery, before,
                        "{name} is illegal from {from:?} but changed the delivery"
                    );
                }
                (result, expected) => {
                    panic!("{name} from {from:?} returned {result:?}, expected state {expected:?}")
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn attempts_never_exceed_the_policy(
        codes in prop::collection::vec(prop_oneof![Just(500u16), Just(404), Just(429), Just(408)], 1..40),
        max_attempts in 1u32..20,
        give_up_s in 1u64..100_000,
        seed: u64,
    ) {
        let policy = RetryPolicy { max_attempts, jitter: Jitter::Full, ..Preset::Swift.policy() };
        let terms = RetrySettings { policy: &policy, retry_after_cap: Span::from_hours(24) };
        let mut rng = Rng::seeded(seed);
        let mut delivery = Delivery::schedule(
            DeliveryId(1), EventId(2), EndpointId(3), None, DUE, Span::from_secs(give_up_s),
        );
        let mut made = 0;
        for code in codes.iter().cycle() {
            let Some(at) = delivery.next_attempt_at() else { break };
            prop_assert!(at <= delivery.facts().give_up_at);
            delivery.begin(at, false).unwrap();
            delivery.settle(at, status(*code, None), terms, &mut rng).unwrap();
            made += 1;
            prop_assert!(made <= max_attempts);
        }
        prop_assert_eq!(delivery.status(), Status::Failed);
        prop_assert_eq!(delivery.facts().attempts, made);
    }
}

#[test]
fn a_refused_probe_neither_fails_nor_delays_its_delivery_for_long() {
    let day = Span::from_days(1);
    let policy = RetryPolicy {
        backoff: Backoff::Fixed { interval: day },
        max_attempts: 1,
        ..fixed(1, 1)
    };
    let mut delivery = fresh();
    for probe in 1..=20 {
        let at = delivery.next_attempt_at().unwrap();
        delivery.begin(at, true).unwrap();
        let settings = RetrySettings {
            policy: &policy,
            retry_after_cap: day,
        };
        let settled = delivery.settle(at, status(403, None), settings, &mut Rng::seeded(1));
        let next_at = settled.unwrap().next_attempt_at.unwrap();
        assert!(next_at.since(at) <= Span::from_mins(5), "probe {probe}");
        assert!(
            next_at <= delivery.facts().give_up_at.max(at),
            "probe {probe}"
        );
    }
    assert_eq!((delivery.facts().attempts, delivery.facts().spent), (20, 0));
    // An ordinary attempt is judged by the policy again.
    let at = delivery.next_attempt_at().unwrap();
    attempt(&mut delivery, at, status(403, None), &policy);
    assert_eq!(failed(&delivery), Some(DeadReason::Permanent));
}
