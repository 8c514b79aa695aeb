//! Runs of schedules, on a manual clock.

use std::time::Duration;

use posthaste_core::delivery::{OneOffRequest, RequestMethod};
use posthaste_core::id::{ScheduleId, TenantId};
use posthaste_core::schedule::{
    EventTarget, HEADERS_SEALED_FOR, MissedRuns, Overlap, RequestTarget, ScheduleDefinition,
    ScheduleStatus, ScheduleTarget, ScheduleTiming, TargetBody,
};
use posthaste_core::time::{Span, Timestamp};
use posthaste_engine::tenant_keys::TenantKeys;
use posthaste_engine::vault::{KeySource, Vault};
use posthaste_store::{
    CreateResult, DueSelection, PageRequest, ReplaceResult, RunStatus, Schedules, Store, StoredRun,
    StoredSchedule, Tenant,
};
use posthaste_testbed::{Answer, PATIENCE, Receiver};
use serde_json::json;
use tokio::sync::watch;

use crate::fixture::{NOON, TestServer};

const MINUTE: Span = Span::from_mins(1);

/// A server with a scheduler, which stops when this is dropped.
struct Scheduled {
    server: TestServer,
    receiver: Receiver,
    _stop: watch::Sender<bool>,
}

fn acme() -> TenantId {
    "acme".parse().expect("a tenant id")
}

fn id(name: &str) -> ScheduleId {
    name.parse().expect("a schedule id")
}

/// A definition that sends an event every minute.
fn every_minute() -> ScheduleDefinition {
    ScheduleDefinition {
        name: String::new(),
        timing: ScheduleTiming::Every(MINUTE),
        timezone: "UTC".to_owned(),
        target: ScheduleTarget::Event(EventTarget {
            event_type: "report.due".to_owned(),
            body: body(),
            ordering_key: None,
        }),
        overlap: Overlap::Allow,
        missed: MissedRuns::RunOnce,
        starts_at: None,
        ends_at: None,
        max_runs: None,
    }
}

fn body() -> TargetBody {
    TargetBody {
        content_type: None,
        bytes: br#"{"n": 1}"#.to_vec(),
    }
}

fn after_noon(minutes: u64) -> Timestamp {
    NOON.after(Span::from_mins(minutes))
}

impl Scheduled {
    async fn start(receiver: Receiver) -> Scheduled {
        let server = TestServer::with_manual_clock().await;
        server.endpoint(json!({"url": receiver.url()})).await;
        let (stop, stopped) = watch::channel(false);
        posthaste_scheduler::start(&server.app, &stopped);
        Scheduled {
            server,
            receiver,
            _stop: stop,
        }
    }

    /// Creates a schedule whose first occurrence is a minute after noon.
    async fn add(&self, name: &str, definition: ScheduleDefinition) {
        self.add_stored(name, definition.stored()).await;
    }

    async fn add_stored(&self, name: &str, definition: String) {
        let schedule = StoredSchedule {
            tenant: acme(),
            id: id(name),
            definition,
            progress: None,
            status: ScheduleStatus::Active,
            next_run_at: Some(after_noon(1)),
            last_run_at: None,
            last_event: None,
            run_count: 0,
            failed_runs: 0,
            created_at: NOON,
            revision: 0,
        };
        let created = self.server.store.create_schedule(NOON, schedule, 100).await;
        assert_eq!(created, Ok(CreateResult::Created));
    }

    async fn stored(&self, name: &str) -> StoredSchedule {
        let stored = self.server.store.schedule(acme(), id(name)).await;
        stored.expect("the store can be read").expect("it exists")
    }

    async fn runs(&self, name: &str) -> Vec<StoredRun> {
        let page = PageRequest {
            limit: 500,
            before: None,
        };
        let runs = self
            .server
            .store
            .schedule_runs(acme(), id(name), page)
            .await;
        let mut runs = runs.expect("the store can be read").items;
        runs.reverse();
        runs
    }

    /// Replaces the encrypted keys of the tenant.
    async fn replace_keys(&self, sealed_keys: Vec<u8>) {
        let store = &self.server.store;
        let tenant = store.tenant(acme()).await;
        let tenant = Tenant {
            sealed_keys,
            ..tenant.expect("it can be read").expect("it exists")
        };
        let replaced = store.replace_tenant(NOON, tenant).await;
        assert_eq!(replaced, Ok(ReplaceResult::Done));
        // The tenant is no longer cached after a change.
        let change = json!({"name": "Acme"});
        self.server.patch("/v1/tenants/acme", change).await.ok(200);
    }

    /// Waits until all schedules that were due were run or postponed.
    async fn until_nothing_due(&self, now: Timestamp) {
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                let selection = DueSelection {
                    limit: 1,
                    max_bytes: usize::MAX,
                    except: [].into(),
                    except_tenants: [].into(),
                };
                let due = self.server.store.due_schedules(now, selection).await;
                if due.expect("the store can be read").schedules.is_empty() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        waited.await.expect("nothing is due");
    }

    /// Waits until a schedule has this number of runs.
    async fn until_runs(&self, name: &str, count: usize) -> Vec<StoredRun> {
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                let runs = self.runs(name).await;
                if runs.len() >= count {
                    return runs;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let runs = waited.await.expect("the runs come");
        assert_eq!(runs.len(), count, "{runs:?}");
        runs
    }
}

/// Returns what became of each run, and its reason.
fn outcomes(runs: &[StoredRun]) -> Vec<(RunStatus, &str)> {
    let outcome = |run| -> (RunStatus, &str) {
        let run: &StoredRun = run;
        (run.status, run.reason.as_deref().unwrap_or(""))
    };
    runs.iter().map(outcome).collect()
}

#[tokio::test]
async fn every_attempt_names_the_schedule_and_the_occurrence() {
    let first_fails = |arrival: &posthaste_testbed::Arrival| {
        Answer::status(if arrival.attempt() == 1 { 503 } else { 200 })
    };
    let world = Scheduled::start(Receiver::start(first_fails).await).await;
    world.add("nightly", every_minute()).await;
    world.server.pass_ms(60_000);
    let runs = world.until_runs("nightly", 1).await;
    let first = world.receiver.arrivals(1).await;
    let delivery = first[0].delivery();
    let path = format!("/v1/tenants/acme/deliveries/{delivery}");
    let retry = format!("{path}/retry");
    while world.server.get(&path).await.json["status"] != "retrying" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.server.post(&retry, json!(null)).await.ok(202);
    let arrivals = world.receiver.arrivals(2).await;
    let event = runs[0].event.expect("it made an event");
    for arrival in &arrivals {
        assert_eq!(arrival.header("posthaste-schedule-id"), "nightly");
        let scheduled_for = after_noon(1).to_string();
        assert_eq!(arrival.header("posthaste-scheduled-for"), scheduled_for);
        assert_eq!(arrival.event(), event.to_string());
        assert_eq!(&*arrival.body, br#"{"n": 1}"#);
    }
    assert_eq!(runs[0].scheduled_for, after_noon(1));
    let stored = world.stored("nightly").await;
    assert_eq!(
        (stored.run_count, stored.next_run_at),
        (1, Some(after_noon(2)))
    );
    // A replay sends them too.
    while world.server.get(&path).await.json["status"] != "succeeded" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.server.post(&retry, json!(null)).await.ok(202);
    let arrivals = world.receiver.arrivals(3).await;
    assert_eq!(arrivals[2].header("posthaste-schedule-id"), "nightly");
}

#[tokio::test]
async fn missed_occurrences_follow_their_rule() {
    let world = Scheduled::start(Receiver::healthy().await).await;
    for (name, missed) in [
        ("once", MissedRuns::RunOnce),
        ("none", MissedRuns::Skip),
        ("all", MissedRuns::RunAll),
    ] {
        let definition = ScheduleDefinition {
            missed,
            ..every_minute()
        };
        world.add(name, definition).await;
    }
    // The clock jumps by 50 minutes and a half, as after a downtime.
    world.server.pass_ms(50 * 60_000 + 30_000);
    let missed = (RunStatus::Missed, "late");
    let created = (RunStatus::Created, "");
    let once = world.until_runs("once", 50).await;
    assert!(outcomes(&once[..49]).iter().all(|it| *it == missed));
    assert_eq!(outcomes(&once[49..]), [created]);
    let none = world.until_runs("none", 50).await;
    assert!(outcomes(&none).iter().all(|it| *it == missed));
    let all = world.until_runs("all", 50).await;
    assert!(outcomes(&all).iter().all(|it| *it == created));
    for name in ["once", "none", "all"] {
        let times: Vec<Timestamp> = world
            .runs(name)
            .await
            .iter()
            .map(|run| run.scheduled_for)
            .collect();
        let expected: Vec<Timestamp> = (1..=50).map(after_noon).collect();
        assert_eq!(times, expected, "{name}");
        assert_eq!(world.stored(name).await.next_run_at, Some(after_noon(51)));
    }
    let arrivals = world.receiver.arrivals(51).await;
    assert_eq!(arrivals.len(), 51);
}

#[tokio::test]
async fn an_occurrence_is_skipped_while_the_previous_run_is_not_finished() {
    let receiver = Receiver::start(|_| Answer::status(503)).await;
    let world = Scheduled::start(receiver).await;
    let definition = ScheduleDefinition {
        overlap: Overlap::Skip,
        ..every_minute()
    };
    world.add("nightly", definition).await;
    world.server.pass_ms(60_000);
    world.until_runs("nightly", 1).await;
    world.server.pass_ms(60_000);
    world.until_runs("nightly", 2).await;
    // Since the second occurrence the last run is also the watched one.
    world.server.pass_ms(60_000);
    let runs = world.until_runs("nightly", 3).await;
    let skipped = (RunStatus::Skipped, "previous_unfinished");
    let expected = [(RunStatus::Created, ""), skipped, skipped];
    assert_eq!(outcomes(&runs), expected);
    assert_eq!(world.stored("nightly").await.run_count, 1);
}

#[tokio::test]
async fn a_tenant_over_its_rate_waits_and_delays_no_other() {
    let world = Scheduled::start(Receiver::healthy().await).await;
    let limits = json!({"limits": {"events_per_month": 1}});
    world.server.patch("/v1/tenants/acme", limits).await.ok(200);
    world.add("first", every_minute()).await;
    world.server.pass_ms(60_000);
    world.until_runs("first", 1).await;
    for name in ["second", "third"] {
        world.add(name, every_minute()).await;
    }
    // They are postponed; with a higher limit they run.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(world.runs("second").await, []);
    let limits = json!({"limits": {"events_per_month": 100}});
    world.server.patch("/v1/tenants/acme", limits).await.ok(200);
    world.server.pass_ms(59_000);
    assert_eq!(world.runs("third").await, []);
    world.server.pass_ms(2_000);
    for name in ["second", "third"] {
        let runs = world.until_runs(name, 2).await;
        assert_eq!(runs[1].status, RunStatus::Created);
    }
}

#[tokio::test]
async fn a_request_is_sent_with_its_headers() {
    let world = Scheduled::start(Receiver::healthy().await).await;
    // The tenant's keys are generated when they are first shown.
    world
        .server
        .get("/v1/tenants/acme/signing-secret")
        .await
        .ok(200);
    let tenant = world.server.store.tenant(acme()).await;
    let tenant = tenant.expect("it can be read").expect("it exists");
    let keys = TenantKeys::open(&world.server.app.vault, &acme(), &tenant.sealed_keys);
    let keys = keys.expect("the tenant has keys");
    let headers = json!({"X-Team": "billing"});
    let headers = headers.as_object().expect("an object");
    let target = |url: String| {
        ScheduleTarget::Request(RequestTarget {
            request: OneOffRequest {
                method: RequestMethod::Put,
                url,
                timeout: None,
                retry_policy: None,
                sealed_headers: keys.seal_headers(&acme(), HEADERS_SEALED_FOR, headers),
            },
            body: body(),
            ordering_key: None,
        })
    };
    let definition = ScheduleDefinition {
        target: target(world.receiver.url_of("jobs/7")),
        ..every_minute()
    };
    world.add("job", definition).await;
    let refused = ScheduleDefinition {
        target: target("https://10.0.0.1/".to_owned()),
        max_runs: Some(1),
        ..every_minute()
    };
    world.add("refused", refused).await;
    world.add_stored("unreadable", "{}".to_owned()).await;
    for round in 1..=2 {
        world.server.pass_ms(60_000);
        world.until_runs("job", round).await;
        let runs = world.until_runs("refused", round).await;
        let skipped = (RunStatus::Skipped, "unsafe_destination");
        assert_eq!(outcomes(&runs[round - 1..]), [skipped]);
    }
    let arrivals = world.receiver.arrivals(2).await;
    for arrival in &arrivals {
        assert_eq!(
            (arrival.method.as_str(), arrival.path.as_str()),
            ("PUT", "/jobs/7")
        );
        assert_eq!(arrival.header("x-team"), "billing");
        assert_eq!(arrival.header("posthaste-schedule-id"), "job");
    }
    let refused = world.stored("refused").await;
    assert_eq!((refused.run_count, refused.failed_runs), (0, 2));
    assert_eq!(refused.status, ScheduleStatus::Active);
    assert_eq!(world.runs("unreadable").await, []);
}

#[tokio::test]
async fn a_run_waits_on_a_node_without_the_master_key() {
    let world = Scheduled::start(Receiver::healthy().await).await;
    let secret = "/v1/tenants/acme/signing-secret";
    world.server.get(secret).await.ok(200);
    let tenant = world.server.store.tenant(acme()).await;
    let sealed_keys = tenant.expect("read").expect("it exists").sealed_keys;
    let keys = TenantKeys::open(&world.server.app.vault, &acme(), &sealed_keys);
    let keys = keys.expect("the tenant has keys");
    let headers = json!({"X-Team": "billing"});
    let headers = headers.as_object().expect("an object");
    let request = OneOffRequest {
        method: RequestMethod::Put,
        url: world.receiver.url_of("jobs/7"),
        timeout: None,
        retry_policy: None,
        sealed_headers: keys.seal_headers(&acme(), HEADERS_SEALED_FOR, headers),
    };
    let definition = ScheduleDefinition {
        target: ScheduleTarget::Request(RequestTarget {
            request,
            body: body(),
            ordering_key: None,
        }),
        ..every_minute()
    };
    // Another node has encrypted the keys with a new master key.
    let other = Vault::open_or_create(KeySource::Text {
        text: Vault::generate_key_text(),
        origin: "the test".to_owned(),
    });
    let other = other.expect("a vault");
    world.replace_keys(keys.seal(&other, &acme())).await;
    world.add("job", definition).await;
    world.server.pass_ms(60_000);
    world.until_nothing_due(after_noon(1)).await;
    assert_eq!(world.runs("job").await, [], "it waits");
    let path = "/v1/tenants/acme/schedules/job";
    let shown = world.server.get(path).await.ok(200);
    let error = shown["error"].as_str().expect("a reason");
    assert!(error.contains("POSTHASTE_MASTER_KEY"), "{error}");
    let by_hand = world.server.post(&format!("{path}/run"), json!(null)).await;
    by_hand.problem(503, "unavailable");
    // It has the key after a restart.
    world.replace_keys(sealed_keys).await;
    world.server.pass_ms(10_000);
    let runs = world.until_runs("job", 1).await;
    assert_eq!(outcomes(&runs), [(RunStatus::Created, "")]);
    let arrivals = world.receiver.arrivals(1).await;
    assert_eq!(arrivals[0].header("x-team"), "billing");
    let shown = world.server.get(path).await.ok(200);
    assert_eq!(shown.get("error"), None);
}

#[tokio::test]
async fn a_clock_that_is_set_back_repeats_no_occurrence() {
    let world = Scheduled::start(Receiver::healthy().await).await;
    world.add("nightly", every_minute()).await;
    world.server.pass_ms(60_000);
    world.until_runs("nightly", 1).await;
    world.server.set_time(NOON);
    world.server.pass_ms(59_000);
    world.add("other", every_minute()).await;
    world.server.pass_ms(2_000);
    world.until_runs("other", 1).await;
    assert_eq!(world.runs("nightly").await.len(), 1);
    world.server.pass_ms(60_000);
    world.until_runs("nightly", 2).await;
}

#[tokio::test]
async fn retries_that_outlast_the_interval_count_as_failures() {
    let receiver = Receiver::start(|_| Answer::status(503)).await;
    let world = Scheduled::start(receiver).await;
    let definition = ScheduleDefinition {
        timing: ScheduleTiming::Every(Span::from_mins(20)),
        ..every_minute()
    };
    world.add("nightly", definition).await;
    // At each run, the delivery of the previous one is still retried.
    for (round, minutes) in [1, 19, 20, 20].into_iter().enumerate() {
        world.server.pass_ms(minutes * 60_000);
        world.until_runs("nightly", round + 1).await;
        let stored = world.stored("nightly").await;
        assert_eq!(stored.failed_runs as usize, round);
    }
    let failing = world.server.store.failing_schedules(10).await;
    assert_eq!(failing, Ok(1));
}

#[tokio::test]
async fn a_postponement_ends_when_a_wrong_clock_is_corrected() {
    let world = Scheduled::start(Receiver::healthy().await).await;
    let limits = json!({"limits": {"events_per_month": 1}});
    world.server.patch("/v1/tenants/acme", limits).await.ok(200);
    world.add("first", every_minute()).await;
    world.server.pass_ms(60_000);
    world.until_runs("first", 1).await;
    // The clock is wrong by ten days. The schedule is due, and is postponed from there.
    world.server.pass_ms(10 * 86_400_000);
    let far = after_noon(10 * 24 * 60);
    let postponed = async {
        loop {
            let selection = DueSelection {
                limit: 1,
                max_bytes: 1,
                except: [].into(),
                except_tenants: [].into(),
            };
            let due = world.server.store.due_schedules(far, selection).await;
            let due = due.expect("the store can be read");
            if due.next_due_at.is_some_and(|at| at > far) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, postponed)
        .await
        .expect("the schedule is postponed");
    world.server.set_time(after_noon(2));
    let limits = json!({"limits": {"events_per_month": 100}});
    world.server.patch("/v1/tenants/acme", limits).await.ok(200);
    let runs = world.until_runs("first", 2).await;
    assert_eq!(runs[1].scheduled_for, after_noon(2));
}

#[tokio::test]
async fn headers_that_cannot_be_decrypted_end_a_run_and_are_shown() {
    let world = Scheduled::start(Receiver::healthy().await).await;
    let target = ScheduleTarget::Request(RequestTarget {
        request: OneOffRequest {
            method: RequestMethod::Put,
            url: world.receiver.url_of("jobs/7"),
            timeout: None,
            retry_policy: None,
            sealed_headers: b"damaged".to_vec(),
        },
        body: body(),
        ordering_key: None,
    });
    let definition = ScheduleDefinition {
        target,
        ..every_minute()
    };
    world.add("job", definition).await;
    world.add("nightly", every_minute()).await;
    let damaged = r#"{"name": "Report", "timing": "never"}"#.to_owned();
    world.add_stored("damaged", damaged).await;
    world.server.pass_ms(60_000);
    let runs = world.until_runs("job", 1).await;
    assert_eq!(
        outcomes(&runs),
        [(RunStatus::Skipped, "unreadable_headers")]
    );
    assert_eq!(world.stored("job").await.failed_runs, 1);

    let listed = world.server.get("/v1/tenants/acme/schedules").await.ok(200);
    let of = |id: &str| {
        let data = listed["data"].as_array().expect("a list");
        let found = data.iter().find(|schedule| schedule["id"] == id);
        found.expect("it is listed").clone()
    };
    assert_eq!(of("nightly").get("error"), None);
    let job = of("job");
    assert_eq!(job["request"]["headers"], json!({}));
    assert_eq!(job["every"], "1m");
    let error = job["error"].as_str().expect("a reason");
    assert!(error.contains("headers of the request"), "{error}");
    let damaged = of("damaged");
    assert_eq!(
        (&damaged["name"], &damaged["status"]),
        (&json!("Report"), &json!("active"))
    );
    assert!(damaged["error"].is_string(), "{damaged}");
    let path = "/v1/tenants/acme/schedules";
    let shown = world.server.get(&format!("{path}/damaged")).await.ok(200);
    assert_eq!(shown, damaged);
    let by_hand = world
        .server
        .post(&format!("{path}/job/run"), json!(null))
        .await;
    by_hand.problem(409, "unreadable_headers");
    let paused = world
        .server
        .post(&format!("{path}/damaged/pause"), json!(null))
        .await;
    paused.problem(409, "wrong_state");
    // It is repaired by another request, and the unreadable one can be deleted.
    let request = json!({"request": {"url": world.receiver.url(), "payload": 1}});
    let repaired = world
        .server
        .patch(&format!("{path}/job"), request)
        .await
        .ok(200);
    assert_eq!(repaired.get("error"), None);
    let deleted = world.server.delete(&format!("{path}/damaged")).await;
    assert_eq!(deleted.status.as_u16(), 204);
}
