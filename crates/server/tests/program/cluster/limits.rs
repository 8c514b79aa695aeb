//! The limits of an endpoint hold while another node takes it over: rate limit, in-flight window, breaker, and the
//! `Retry-After` of the receiver. A take-over causes no burst.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use posthaste_testbed::{Answer, Arrival, Receiver, checks};
use serde_json::{Value, json};

use crate::fixture::{
    Fault, LONG_LEASE, SHORT_LEASE, TENANT, TestCluster, all_ended, explained, until,
};

const PER_SECOND: usize = 20;
/// Much larger than the variation of the rate on a busy machine, so that a burst is recognised.
const BURST: usize = 60;
/// Requests that the receiver may read late, and so together with later ones: 100 ms of the rate.
const READ_LATE: usize = PER_SECOND / 10;
const PACED: usize = 150;
const WINDOW: usize = 3;
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Minimum time before the breaker probes. Jitter shortens it by up to a fifth.
const TRIPPED_FOR: Duration = Duration::from_millis(3_200);

/// The way the owner ends.
#[derive(Clone, Copy, Debug)]
enum OwnerEnd {
    Leaves,
    Dies,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_hold_when_the_owner_leaves() {
    limits_hold(OwnerEnd::Leaves).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_hold_when_the_owner_dies() {
    limits_hold(OwnerEnd::Dies).await;
}

/// Behaviour of the receiver. The first request to `/asks` is answered with `Retry-After`.
fn behaviour(asked: &AtomicBool, arrival: &Arrival) -> Answer {
    match arrival.path.as_str() {
        "/asks" if !asked.swap(true, Ordering::SeqCst) => {
            let mut answer = Answer::status(503);
            answer.headers = vec![("retry-after", RETRY_AFTER.as_secs().to_string())];
            answer
        }
        "/fails" => Answer::status(500),
        "/narrow" => Answer::status(200).after(Duration::from_millis(120)),
        _ => Answer::status(200),
    }
}

async fn limits_hold(parting: OwnerEnd) {
    let lease = match parting {
        OwnerEnd::Leaves => LONG_LEASE,
        OwnerEnd::Dies => SHORT_LEASE,
    };
    let mut cluster = TestCluster::new(lease);
    cluster.set("breaker.consecutive_failures=4");
    cluster.set("breaker.first_wait=4s");
    let owner = cluster.join();
    let heir = cluster.join();
    cluster.wait_balanced().await;
    let asked = AtomicBool::new(false);
    let receiver = Receiver::start(move |arrival| behaviour(&asked, arrival)).await;
    let mut api = cluster.api(heir);
    api.tenant(TENANT).await;
    let retries = json!({"backoff": {"kind": "fixed", "interval": "20ms"},
                         "jitter": {"kind": "none"}, "max_attempts": 50});
    let wide = json!({"per_second": 1_000, "burst": 1_000});
    for (name, fields) in [
        (
            "paced",
            json!({"rate_limit": {"per_second": PER_SECOND, "burst": BURST}}),
        ),
        (
            "narrow",
            json!({"max_in_flight": WINDOW, "rate_limit": wide}),
        ),
        (
            "asks",
            json!({"max_in_flight": 1, "rate_limit": wide, "retry_policy": retries}),
        ),
        (
            "fails",
            json!({"max_in_flight": 1, "rate_limit": wide, "retry_policy": retries}),
        ),
    ] {
        let mut fields: Value = fields;
        fields["url"] = json!(receiver.url_of(name));
        fields["event_types"] = json!([name]);
        cluster.endpoint_of(owner, &fields).await;
    }
    for (name, count) in [("asks", 3), ("fails", 8), ("narrow", 60), ("paced", PACED)] {
        let events: Vec<Value> = (0..count)
            .map(|number| json!({"type": name, "payload": number}))
            .collect();
        let path = format!("/v1/tenants/{TENANT}/events/batch");
        api.post(&path, json!({ "events": events }))
            .await
            .expect(202);
    }
    // Both facts are persisted before the owner ends.
    let known = async || {
        let tripped = cluster
            .database
            .number("SELECT count(*) FROM healths WHERE tripped");
        let asked = cluster
            .database
            .number("SELECT count(*) FROM waiting WHERE type = 'asks' AND attempts = 1");
        (tripped, asked) == (1, 1)
    };
    until("the breaker to trip", known).await;
    let tripped_at = last(&receiver, "fails");
    let asked_at = last(&receiver, "asks");
    let paced =
        |records: &[Arrival]| records.iter().filter(|it| it.path == "/paced").count() > BURST + 5;
    receiver.until(paced).await;

    let parts_at = Instant::now();
    let mut faults = Vec::new();
    match parting {
        OwnerEnd::Leaves => assert!(cluster.nodes[owner].stop().success()),
        OwnerEnd::Dies => {
            cluster.nodes[owner].kill();
            faults.push(Fault::note(&cluster, Some(owner), parts_at));
        }
    }
    let pid = cluster.nodes[owner].pid();
    let heir_sends = |records: &[Arrival]| records.iter().any(|it| it.sender != Some(pid));
    receiver.until(heir_sends).await;
    println!("{parting:?}: handed over after {:?}", parts_at.elapsed());

    // The breaker stays tripped for its full time and then sends one probe at a time.
    let after_trip = |records: &[Arrival]| next(records, "fails", tripped_at).is_some();
    let records = receiver.until(after_trip).await;
    let probed_at =
        next(&records, "fails", tripped_at).expect("an arrival that the test has awaited");
    let stayed = probed_at - tripped_at;
    assert!(
        stayed >= TRIPPED_FOR,
        "{parting:?}: probed after {stayed:?}"
    );
    let asked = AtomicBool::new(true);
    receiver.set_behaviour(move |arrival| match arrival.path.as_str() {
        "/fails" => Answer::status(200),
        _ => behaviour(&asked, arrival),
    });
    let asked = |records: &[Arrival]| next(records, "asks", asked_at).is_some();
    let records = receiver.until(asked).await;
    let quiet =
        next(&records, "asks", asked_at).expect("an arrival that the test has awaited") - asked_at;
    assert!(
        quiet >= RETRY_AFTER,
        "{parting:?}: asked for {RETRY_AFTER:?}, left alone for {quiet:?}"
    );

    let ends = all_ended(&mut api, 71 + PACED).await;
    assert_eq!(ends["succeeded"], 71 + PACED, "{ends:?}");
    let narrow = receiver.records_at("narrow");
    checks::check_in_flight(&narrow, WINDOW).expect("the in-flight limit holds");
    let paced = receiver.records_at("paced");
    checks::check_rate(&paced, PER_SECOND + READ_LATE, BURST).expect("the rate limit holds");
    // The burst was used up at the beginning and has not refilled.
    let later: Vec<Arrival> = paced.into_iter().filter(|it| it.at > parts_at).collect();
    let most = checks::max_per_second(&later);
    assert!(
        most < PER_SECOND + BURST / 2,
        "{parting:?}: a burst of {most}"
    );
    let again =
        explained(&receiver.records(), &faults).expect("duplicates only because of the fault");
    println!("{parting:?}: {most} in the busiest second, {again} came again");
    cluster.assert_no_panics();
}

/// Time of the last arrival at this endpoint.
fn last(receiver: &Receiver, endpoint: &str) -> Instant {
    let records = receiver.records_at(endpoint);
    records.last().expect("at least one arrival").at
}

/// Time of the first arrival at this endpoint after that instant.
fn next(records: &[Arrival], endpoint: &str, after: Instant) -> Option<Instant> {
    let here = |it: &&Arrival| it.path.trim_start_matches('/') == endpoint && it.at > after;
    records.iter().find(here).map(|it| it.at)
}
