//! Receivers of several kinds behind a gate, in virtual time.
//!
//! [`Receiver`] decides about each request; [`run`] sends as fast as the gate allows, or at an offered rate, and counts.

use std::collections::BTreeMap;

use super::super::{
    Admission, AttemptFeedback, BreakerSettings, EndpointStatus, Gate, RateLimit, Signal,
};
use crate::dice::Dice;
use crate::time::Tick;

/// The receiver's answer to one request.
#[derive(Clone, Copy, PartialEq)]
enum Answer {
    Ok,
    Failed,
    Overloaded,
}

/// Decides about the request at this time.
type Receiver<'a> = Box<dyn FnMut(Tick, &mut Dice) -> Answer + 'a>;

fn fails(percent: u32, with: Answer) -> Receiver<'static> {
    Box::new(move |_, dice| {
        if dice.chance(percent, 100) {
            with
        } else {
            Answer::Ok
        }
    })
}

/// Accepts so many requests in each second, and refuses the others.
fn capacity(per_second: u64) -> Receiver<'static> {
    let (mut second, mut taken) = (0, 0);
    Box::new(move |now, _| {
        if now.0 / 1_000 != second {
            (second, taken) = (now.0 / 1_000, 0);
        }
        taken += 1;
        if taken <= per_second {
            Answer::Ok
        } else {
            Answer::Overloaded
        }
    })
}

struct Setting {
    in_flight: u32,
    rate: RateLimit,
    answer_ms: u64,
    /// Deliveries per second; a failed one is sent again after ten seconds.
    offered: Option<u64>,
    seconds: u64,
}

struct Counts {
    delivered: u64,
    refused: u64,
    tripped: u64,
}

impl Counts {
    fn refused_share(&self) -> f64 {
        self.refused as f64 / (self.refused + self.delivered) as f64
    }
}

fn run(setting: &Setting, mut receiver: Receiver<'_>, seed: u64) -> Counts {
    let mut dice = Dice::seeded(seed);
    let mut gate = Gate::new(EndpointStatus::Enabled, setting.in_flight, setting.rate);
    let settings = BreakerSettings::default();
    let mut counts = Counts {
        delivered: 0,
        refused: 0,
        tripped: 0,
    };
    let mut in_flight: BTreeMap<u64, Vec<(bool, Answer)>> = BTreeMap::new();
    let mut retries: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut waiting, mut in_a_row) = (0u64, 0u32);
    let start = 60_000;
    for ms in start..start + setting.seconds * 1_000 {
        let now = Tick(ms);
        for (probe, answer) in in_flight.remove(&ms).unwrap_or_default() {
            let signal = match answer {
                Answer::Ok => Signal::Up,
                Answer::Failed | Answer::Overloaded => Signal::Down,
            };
            in_a_row = if signal == Signal::Up {
                0
            } else {
                in_a_row + 1
            };
            counts.delivered += u64::from(answer == Answer::Ok);
            counts.refused += u64::from(answer != Answer::Ok);
            if answer != Answer::Ok {
                *retries.entry(ms + 10_000).or_default() += 1;
            }
            let back = AttemptFeedback {
                signal,
                probe,
                failures_in_a_row: in_a_row,
                overloaded: answer == Answer::Overloaded,
            };
            let change = gate.leave(now, back, &settings, &mut dice);
            counts.tripped += u64::from(change.is_some());
        }
        waiting = waiting.saturating_add(retries.remove(&ms).unwrap_or(0));
        match setting.offered {
            Some(per_second) if ms % (1_000 / per_second) == 0 => waiting += 1,
            Some(_) => {}
            None => waiting = u64::MAX,
        }
        while waiting > 0 {
            let Admission::Admit { probe } = gate.admit(now) else {
                break;
            };
            waiting -= 1;
            let answer = receiver(now, &mut dice);
            let ends = ms + setting.answer_ms;
            in_flight.entry(ends).or_default().push((probe, answer));
        }
    }
    counts
}

fn fast() -> Setting {
    Setting {
        in_flight: 50,
        rate: RateLimit {
            per_second: 10_000.0,
            burst: 1_000,
        },
        answer_ms: 50,
        offered: None,
        seconds: 60,
    }
}

fn default_endpoint() -> Setting {
    Setting {
        in_flight: 10,
        rate: RateLimit::default(),
        answer_ms: 20,
        offered: None,
        seconds: 120,
    }
}

#[test]
fn a_receiver_that_fails_some_requests_is_served_at_nearly_full_speed() {
    let clean = run(&fast(), fails(0, Answer::Ok), 1).delivered as f64;
    for with in [Answer::Failed, Answer::Overloaded] {
        for (percent, least) in [(1, 0.95), (5, 0.9), (20, 0.7), (30, 0.6)] {
            for seed in 1..=5 {
                let counts = run(&fast(), fails(percent, with), seed);
                let goodput = counts.delivered as f64 / clean;
                assert!(
                    goodput >= least,
                    "{percent} % failed, seed {seed}: {goodput:.2} of clean"
                );
                assert_eq!(counts.tripped, 0, "{percent} % failed, seed {seed}");
            }
        }
    }
}

#[test]
fn what_is_offered_is_delivered_in_spite_of_random_failures() {
    for with in [Answer::Failed, Answer::Overloaded] {
        for seed in 1..=10 {
            let offered = Setting {
                offered: Some(20),
                ..default_endpoint()
            };
            let counts = run(&offered, fails(20, with), seed);
            let share = counts.delivered as f64 / (20.0 * 120.0);
            assert!(share >= 0.9, "seed {seed}: {share:.2} of what was offered");
        }
    }
}

#[test]
fn an_overloaded_receiver_gets_just_what_it_accepts() {
    for (per_second, most_refused) in [(2, 0.25), (10, 0.15), (30, 0.15)] {
        let counts = run(&default_endpoint(), capacity(per_second), 1);
        let rate = counts.delivered as f64 / 120.0;
        let refused = counts.refused_share();
        assert!(
            rate >= 0.8 * per_second as f64 && refused <= most_refused,
            "capacity {per_second}/s: {rate:.1}/s delivered, {refused:.2} refused"
        );
    }
    let counts = run(&fast(), capacity(200), 1);
    let rate = counts.delivered as f64 / 60.0;
    let refused = counts.refused_share();
    assert!(
        rate >= 160.0 && refused <= 0.15,
        "{rate:.1}/s, {refused:.2} refused"
    );
}

#[test]
fn a_receiver_with_a_limit_that_also_fails_at_random_gets_what_it_accepts() {
    let mut limit = capacity(20);
    let receiver: Receiver = Box::new(move |now, dice| match limit(now, dice) {
        Answer::Ok if dice.chance(10, 100) => Answer::Overloaded,
        answer @ (Answer::Ok | Answer::Failed | Answer::Overloaded) => answer,
    });
    let counts = run(&default_endpoint(), receiver, 1);
    let rate = counts.delivered as f64 / 120.0;
    assert!(rate >= 14.0, "{rate:.1}/s of 18/s");
}

#[test]
fn a_short_wave_of_overload_is_forgotten_within_seconds() {
    let receiver: Receiver = Box::new(|now, _| {
        if (70_000..72_000).contains(&now.0) {
            Answer::Overloaded
        } else {
            Answer::Ok
        }
    });
    let mut late = 0;
    let mut inner = receiver;
    let receiver: Receiver = Box::new(|now, dice| {
        let answer = inner(now, dice);
        late += u64::from(answer == Answer::Ok && now.0 >= 110_000 && now.0 < 120_000);
        answer
    });
    run(&default_endpoint(), receiver, 1);
    assert!(late >= 480, "{late} in ten seconds, half a minute later");
}
