//! Node RPC: questions and answers.

use std::time::Duration;

use posthaste_core::cluster::NodeNo;
use serde_json::json;

use crate::fixture::{ClusterEvent, Fixture, wait};

const LONG: u64 = 20_000;
const WITHIN: Duration = Duration::from_secs(30);

#[test]
fn a_question_is_answered_by_the_addressed_node() {
    let fixture = Fixture::new();
    let a = fixture.node("a", LONG);
    let b = fixture.node("b", LONG);
    let c = fixture.node("c", LONG);
    let asked = [
        a.cluster.ask(b.cluster.me(), json!(1), WITHIN),
        a.cluster.ask(c.cluster.me(), json!(2), WITHIN),
        b.cluster.ask(c.cluster.me(), json!(3), WITHIN),
    ];
    let answers = asked.map(|answer| wait(answer).expect("an answer"));
    assert_eq!(answers[0], json!({ "by": "b", "to": 1 }));
    assert_eq!(answers[1], json!({ "by": "c", "to": 2 }));
    assert_eq!(answers[2], json!({ "by": "c", "to": 3 }));
    let left = fixture.database.run("SELECT count(*) FROM mail");
    assert_eq!(left, ["0"]);
}

#[test]
fn a_dead_or_silent_node_does_not_block_questions() {
    let fixture = Fixture::new();
    let a = fixture.node("a", LONG);
    let b = fixture.node("b", LONG);
    let gone = wait(a.cluster.ask(NodeNo(99), json!(1), WITHIN));
    let why = gone.expect_err("the node does not exist").to_string();
    assert!(why.contains("has left"), "{why}");
    fixture.silence("b");
    let within = Duration::from_millis(300);
    let silent = wait(a.cluster.ask(b.cluster.me(), json!(2), within));
    let why = silent.expect_err("the node does not answer").to_string();
    assert!(why.contains("did not respond"), "{why}");
}

#[test]
fn a_reregistered_node_answers_under_its_new_number() {
    let fixture = Fixture::new();
    let a = fixture.node("a", 3_000);
    let b = fixture.node("b", 3_000);
    let number = a.cluster.me();
    fixture
        .database
        .run(&format!("SELECT strike_off({}, NULL, 0)", number.0));
    fixture.until("another number", || a.cluster.me() != number);
    let answer = wait(b.cluster.ask(a.cluster.me(), json!(5), WITHIN));
    assert_eq!(answer, Ok(json!({ "by": "a", "to": 5 })));
}

#[test]
fn expired_questions_are_not_executed() {
    let fixture = Fixture::new();
    let a = fixture.node("a", LONG);
    let b = fixture.node("b", LONG);
    // The first question cannot leave its node before it expires; the second has expired in the receiver's queue.
    a.link.set_shut(true);
    let within = Duration::from_millis(50);
    let given_up = a.cluster.ask(b.cluster.me(), json!("bag"), within);
    std::thread::sleep(within * 2);
    a.link.set_shut(false);
    wait(given_up).expect_err("no node read it in time");
    let (me, other) = (b.cluster.me().0, a.cluster.me().0);
    fixture.database.run(&format!(
        "INSERT INTO mail (receiver, sender, reference, answer, body, expires_at) \
         VALUES ({me}, {other}, 900, false, '\"box\"', 1)"
    ));
    let answer = wait(a.cluster.ask(b.cluster.me(), json!("now"), WITHIN));
    assert_eq!(answer, Ok(json!({ "by": "b", "to": "now" })));
    let asked: Vec<_> = fixture.events();
    let asked = asked.iter().filter_map(|(_, event)| match event {
        ClusterEvent::Asked(question) => Some(question.clone()),
        ClusterEvent::Granted(_)
        | ClusterEvent::Revoked(_)
        | ClusterEvent::Expired
        | ClusterEvent::Work(_)
        | ClusterEvent::Changed(_)
        | ClusterEvent::Missed => None,
    });
    assert_eq!(asked.collect::<Vec<_>>(), [json!("now")]);
}
