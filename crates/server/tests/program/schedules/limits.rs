//! Due occurrences that limits refuse together are accepted one by one.

use std::time::Duration;

use posthaste_testbed::Receiver;
use serde_json::json;

use super::fixture::{
    Installation, STORES, TENANT, create, every_second, expect_no_gap, expect_one_event_each,
    pause, set_up,
};

/// Time for which the schedule is paused. About as many occurrences as seconds are due afterwards.
const PAUSED: Duration = Duration::from_secs(4);
/// Number of occurrences that are accepted after the pause.
const ACCEPTED: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn occurrences_that_are_refused_together_are_accepted_one_by_one() {
    for store in STORES {
        let installation = Installation::new(store);
        let node = installation.start();
        node.until_ready().await;
        let receiver = Receiver::healthy().await;
        let mut api = node.api();
        set_up(&mut api, &receiver).await;
        let names = ["nightly".to_owned()];
        create(&mut api, &names[0], every_second()).await;
        receiver.arrivals(1).await;
        pause(&mut api, &names).await;
        // One event per second: two together never fit.
        let limits = json!({"limits": {"events_per_second": 1}});
        let tenant = format!("/v1/tenants/{TENANT}");
        api.call("PATCH", &tenant, Some(&limits)).await.expect(200);
        let event = json!({"type": "a", "payload": 1});
        let batch = json!({"events": [event, event]});
        let refused = api.post(&format!("{tenant}/events/batch"), batch).await;
        assert_eq!(refused.body["code"], "quota_exceeded", "{store:?}");
        tokio::time::sleep(PAUSED).await;
        let before = receiver.count();
        let resume = format!("{tenant}/schedules/nightly/resume");
        api.call("POST", &resume, None).await.expect(200);
        receiver.arrivals(before + ACCEPTED).await;
        pause(&mut api, &names).await;
        let runs = expect_one_event_each(&mut api, &receiver, &names).await;
        assert!(runs[0].len() > ACCEPTED, "{store:?}: {:?}", runs[0]);
        expect_no_gap(&runs[0]);
    }
}
