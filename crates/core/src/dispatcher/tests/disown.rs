//! Endpoints that are released to another node, or lost to it.

use proptest::prelude::*;

use super::bench::Bench;
use super::given::{down, gone, ok, settings, unhurried};
use crate::delivery::Status;
use crate::dice::Dice;
use crate::dispatcher::{Command, Dispatcher, Input, Limits, Wake};
use crate::id::EndpointId;
use crate::lane::{BreakerState, LaneSettings, RateLimit, Standing};
use crate::time::Span;

fn disowned(bench: &mut Bench) -> Vec<EndpointId> {
    let said = bench.listen().into_iter();
    let disowned = said.filter_map(|command| match command {
        Command::Disowned(endpoint) => Some(endpoint),
        Command::Introduce(_)
        | Command::Fetch { .. }
        | Command::Send(_)
        | Command::Record { .. }
        | Command::Stands { .. }
        | Command::TooLateToCancel(_)
        | Command::Sweep { .. }
        | Command::Notify(_)
        | Command::Drained => None,
    });
    disowned.collect()
}

/// Gives the endpoint to another node.
fn hand_over(bench: &mut Bench, endpoint: EndpointId) {
    assert_eq!(bench.dispatcher.lane_count(), 0);
    assert_eq!(bench.dispatcher.flight_count(), 0);
    bench.stored(endpoint).owned_since = bench.now.tick;
    bench.restart();
}

fn one_at_a_time() -> LaneSettings {
    LaneSettings {
        max_in_flight: 1,
        ..unhurried()
    }
}

#[test]
fn what_is_given_up_begins_nothing_and_ends_what_it_began() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(one_at_a_time());
    let ids = bench.accept(endpoint, 3);
    bench.tell(Input::Disown(endpoint));
    assert_eq!(disowned(&mut bench), []);
    bench.accept(endpoint, 1);
    bench.tell(Input::Work {
        endpoint,
        due: bench.now.wall,
    });
    bench.by_hand.records = true;
    bench.finish(ids[0], down());
    assert_eq!(disowned(&mut bench), [], "its result is not on disk yet");
    bench.answer_record();
    assert_eq!(disowned(&mut bench), [endpoint]);
    assert_eq!(bench.take_sent(), [ids[0]]);
    assert_eq!(bench.dispatcher.lane_count(), 0);
    assert_eq!(bench.dispatcher.wake(), Wake::default());
    // Nothing is lost: the next owner sends all deliveries.
    bench.by_hand.records = false;
    hand_over(&mut bench, endpoint);
    bench.run(Span::from_mins(10), ok());
    let all = bench.disk.rows().map(|row| row.status());
    assert_eq!(all.collect::<Vec<_>>(), [Status::Succeeded; 4]);
}

#[test]
fn what_nobody_knows_of_is_given_up_at_once() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    bench.tell(Input::Disown(endpoint));
    assert_eq!(disowned(&mut bench), [endpoint]);
}

#[test]
fn one_that_is_not_introduced_yet_is_given_up_at_once() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    bench.by_hand.introductions = true;
    bench.accept(endpoint, 2);
    bench.tell(Input::Disown(endpoint));
    assert_eq!(disowned(&mut bench), [endpoint]);
    bench.introduce(endpoint);
    assert_eq!(bench.take_sent(), []);
    assert_eq!(bench.dispatcher.lane_count(), 0);
}

#[test]
fn one_that_stands_in_line_steps_out_of_it() {
    let mut bench = Bench::limited(Limits {
        max_flights: 1,
        ..Limits::default()
    });
    let busy = bench.endpoint(unhurried());
    let waiting = bench.endpoint_of("other", unhurried());
    let [first, second] = bench.accept(busy, 2)[..] else {
        unreachable!("two were asked for")
    };
    let third = bench.accept_one(waiting);
    bench.tell(Input::Disown(waiting));
    assert_eq!(disowned(&mut bench), [waiting]);
    bench.finish(first, ok());
    bench.finish(second, ok());
    assert_eq!(bench.take_sent(), [first, second]);
    assert_eq!(bench.disk.status(third), Status::Pending);
}

#[test]
fn until_it_is_gone_it_can_still_be_shut_and_called_off() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(one_at_a_time());
    let ids = bench.accept(endpoint, 3);
    bench.tell(Input::Disown(endpoint));
    bench.cancel(ids[1]);
    bench.stand(endpoint, Standing::Disabled);
    assert_eq!(bench.disk.status(ids[1]), Status::Cancelled);
    assert_eq!(bench.standing(endpoint), Standing::Disabled);
    assert_eq!(disowned(&mut bench), []);
    bench.finish(ids[0], ok());
    assert_eq!(disowned(&mut bench), [endpoint]);
    // The waiting deliveries are failed by the next owner.
    assert_eq!(bench.disk.status(ids[2]), Status::Pending);
    hand_over(&mut bench, endpoint);
    assert_eq!(bench.disk.status(ids[2]), Status::Failed);
}

#[test]
fn one_that_was_asked_to_stand_otherwise_answers_first() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    bench.stored(endpoint).standing = Standing::Paused;
    bench.by_hand.introductions = true;
    bench.stand(endpoint, Standing::Enabled);
    bench.tell(Input::Disown(endpoint));
    assert_eq!(disowned(&mut bench), []);
    bench.introduce(endpoint);
    assert_eq!(bench.standing(endpoint), Standing::Enabled);
    assert_eq!(disowned(&mut bench), [endpoint]);
}

#[test]
fn one_that_disables_itself_on_its_way_out_is_swept_by_the_next() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(one_at_a_time());
    let ids = bench.accept(endpoint, 2);
    bench.tell(Input::Disown(endpoint));
    bench.finish(ids[0], gone());
    assert_eq!(disowned(&mut bench), [endpoint]);
    assert_eq!(bench.disk.status(ids[1]), Status::Pending);
    bench.stored(endpoint).standing = Standing::Disabled;
    hand_over(&mut bench, endpoint);
    assert_eq!(bench.disk.status(ids[1]), Status::Failed);
}

#[test]
fn what_rests_after_a_fault_of_ours_is_given_up_too() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(settings());
    let id = bench.accept_one(endpoint);
    bench.fall(id);
    bench.tell(Input::Disown(endpoint));
    assert_eq!(disowned(&mut bench), [endpoint]);
    assert_eq!(bench.dispatcher.wake(), Wake::default());
}

#[test]
fn what_is_lost_is_lost_at_once_and_its_answers_find_nobody() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(one_at_a_time());
    let other = bench.endpoint_of("other", unhurried());
    let ids = bench.accept(endpoint, 3);
    let (recorded, ticket) = (bench.accept_one(other), bench.ticket(ids[0]));
    bench.by_hand.records = true;
    bench.finish(recorded, ok());
    bench.tell(Input::Lost);
    assert_eq!(bench.dispatcher.lane_count(), 0);
    assert_eq!(bench.dispatcher.flight_count(), 0);
    assert_eq!(bench.dispatcher.wake(), Wake::default());
    bench.listen();
    let finish = crate::dispatcher::Finish::Ran(ok());
    bench.tell(Input::Finished { ticket, finish });
    assert_eq!(bench.listen(), [], "nobody writes down what became of it");
    // An endpoint that this node owns again starts from an empty state.
    bench.records.clear();
    bench.flying.clear();
    bench.take_sent();
    bench.tell(Input::Work {
        endpoint,
        due: bench.now.wall,
    });
    assert_eq!(bench.take_sent(), [ids[0]]);
}

#[test]
fn while_nothing_may_begin_everything_waits_and_then_goes_on() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(unhurried());
    bench.tell(Input::Suspend);
    let ids = bench.accept(endpoint, 2);
    bench.pass(Span::from_secs(30));
    assert_eq!(bench.take_sent(), []);
    bench.tell(Input::Resume);
    assert_eq!(bench.take_sent(), ids);
}

#[test]
fn a_tripped_breaker_stays_tripped_in_other_hands() {
    let mut bench = Bench::new();
    let endpoint = bench.endpoint(unhurried());
    for _ in 0..20 {
        let id = bench.accept_one(endpoint);
        bench.finish(id, down());
        let health = bench.lane(endpoint).health;
        bench.stored(endpoint).health = health;
    }
    let BreakerState::Tripped { until, .. } = bench.lane(endpoint).breaker else {
        panic!("not tripped");
    };
    bench.take_sent();
    bench.tell(Input::Disown(endpoint));
    hand_over(&mut bench, endpoint);
    bench.pass(Span::from_millis(
        until.since(bench.now.tick).as_millis() - 10,
    ));
    assert_eq!(bench.take_sent(), []);
    bench.pass(Span::from_secs(20));
    assert_eq!(bench.take_sent().len(), 1, "one probe");
}

proptest! {
    /// No change of owner lets an endpoint exceed its rate or its window, and all deliveries arrive. (The bench
    /// checks the window.)
    #[test]
    fn no_limit_is_exceeded_by_changing_hands(
        steps in prop::collection::vec((0u64..400, 0u8..6), 1..120),
        max_in_flight in 1u32..6,
        per_second in 1.0..60.0f64,
        burst in 1u32..20,
    ) {
        let mut bench = Bench::new();
        let endpoint = bench.endpoint(LaneSettings {
            max_in_flight,
            rate: RateLimit { per_second, burst },
            ..settings()
        });
        for (pause, what) in steps {
            bench.pass(Span::from_millis(pause));
            match what {
                0..=2 => drop(bench.accept(endpoint, usize::from(what) * 7 + 1)),
                3 => bench.finish_all(ok()),
                4 => bench.finish_all(down()),
                5.. => {
                    bench.tell(Input::Disown(endpoint));
                    let begun = bench.sent.len();
                    bench.finish_all(ok());
                    prop_assert_eq!(bench.sent.len(), begun, "begun after it was given up");
                    hand_over(&mut bench, endpoint);
                }
            }
        }
        let arrivals = bench.arrivals.clone();
        for (index, from) in arrivals.iter().enumerate() {
            let within = arrivals[index..].iter().filter(|at| at.since(*from) < Span::from_secs(1));
            let most = f64::from(burst) + per_second;
            prop_assert!(within.count() as f64 <= most, "more than {most} in a second");
        }
        for _ in 0..40 {
            bench.run(Span::from_mins(5), ok());
        }
        let unfinished = bench.disk.rows().filter(|row| row.wanted_at().is_some()).count();
        prop_assert_eq!(unfinished, 0);
    }
}

#[test]
fn a_full_house_of_lanes_is_given_up_as_fast_as_it_is_asked() {
    let mut dispatcher = Dispatcher::new(Limits::default(), Dice::seeded(1));
    let mut bench = Bench::new();
    let mut commands = Vec::new();
    for number in 0..1_000 {
        let endpoint = EndpointId(1_000 + number);
        let due = bench.now.wall;
        dispatcher.handle(bench.now, Input::Work { endpoint, due }, &mut commands);
    }
    bench.pass(Span::from_secs(1));
    commands.clear();
    for number in 0..1_000 {
        let endpoint = EndpointId(1_000 + number);
        dispatcher.handle(bench.now, Input::Disown(endpoint), &mut commands);
    }
    assert_eq!(commands.len(), 1_000);
    assert_eq!(dispatcher.lane_count(), 0);
}
