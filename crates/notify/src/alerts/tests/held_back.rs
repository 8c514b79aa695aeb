//! Tests of the alert about an endpoint whose deliveries a limit holds back.

use posthaste_core::alert::AlertName;
use posthaste_core::lane::HeldBackBy;
use posthaste_core::time::Span;
use posthaste_engine::owner_router::LimitedReport;
use posthaste_store::{AlertFilter, PageRequest, SubjectScope};

use super::{Fixture, HOOK};

const NAME: AlertName = AlertName::HeldBack;
const ENDPOINT: SubjectScope = SubjectScope::Endpoint(HOOK);

/// A node reports that a limit has held the endpoint back for this time.
fn report(fixture: &Fixture, duration: Option<Span>) {
    let mut environment = fixture.environment();
    environment.limited.is_complete = true;
    environment.limited.endpoints.clear();
    if let Some(duration) = duration {
        let report = LimitedReport {
            by: HeldBackBy::RateLimit,
            duration_ms: duration.as_millis(),
            rank: 0,
        };
        environment.limited.endpoints.insert(HOOK, report);
    }
}

#[tokio::test]
async fn an_endpoint_that_a_limit_holds_back_for_over_five_minutes_notifies_once() {
    let mut fixture = Fixture::new().await;
    report(&fixture, Some(Span::from_mins(5)));
    fixture.run_for(Span::from_mins(1)).await;
    assert_eq!(fixture.open().await, []);
    report(&fixture, Some(Span::from_millis(300_001)));
    fixture.run_for(Span::from_mins(30)).await;
    assert_eq!(fixture.open().await, [(NAME, ENDPOINT)]);
    let page = PageRequest {
        limit: 1,
        before: None,
    };
    let alerts = fixture.store.alerts(AlertFilter::default(), page).await;
    let detail = &alerts.expect("the store reads").items[0].detail;
    assert_eq!(detail["held_back_by"], "rate_limit");
    assert_eq!(detail["threshold"], 300.0);
    report(&fixture, None);
    fixture.run_for(Span::from_mins(6)).await;
    assert_eq!(fixture.notified(NAME, &ENDPOINT).await, (1, 1));
}

#[tokio::test]
async fn a_node_that_does_not_answer_keeps_the_alert_open() {
    let mut fixture = Fixture::new().await;
    report(&fixture, Some(Span::from_mins(10)));
    fixture.run_for(Span::from_mins(1)).await;
    report(&fixture, None);
    fixture.environment().limited.is_complete = false;
    fixture.run_for(Span::from_mins(30)).await;
    assert_eq!(fixture.notified(NAME, &ENDPOINT).await, (1, 0));
}
