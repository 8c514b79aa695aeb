//! Tests of the reasons and the order of endpoints that need attention.

use posthaste_core::id::EndpointId;
use posthaste_core::lane::{Health, StoredTrip};
use posthaste_store::Endpoint;

use super::*;

const NOON: Timestamp = Timestamp(1_794_744_000_000);

fn candidate(id: u128, status: EndpointStatus) -> Candidate {
    let endpoint = Endpoint {
        sealed_keys: b"unreadable keys".to_vec(),
        owner_email_confirmed: true,
        ..Endpoint::new(
            EndpointId(id),
            "acme".parse().expect("a name"),
            "https://example.com/".to_owned(),
            NOON,
        )
    };
    Candidate {
        row: EndpointRow {
            endpoint,
            status,
            disabled_reason: None,
            health: Health::default(),
        },
        recent: RecentAttempts::default(),
        alert: None,
        limited: None,
        pending: 0,
    }
}

fn enabled(id: u128) -> Candidate {
    candidate(id, EndpointStatus::Enabled)
}

fn disabled_by(id: u128, reason: DisabledReason) -> Candidate {
    let mut candidate = candidate(id, EndpointStatus::Disabled);
    candidate.row.disabled_reason = Some(reason);
    candidate
}

fn tripped_by(id: u128, reason: TripReason, in_a_row: u32) -> Candidate {
    let mut candidate = enabled(id);
    candidate.row.health.consecutive_failures = in_a_row;
    candidate.row.health.failing_since = Some(Timestamp(NOON.0 - 60_000));
    candidate.row.health.trip = Some(StoredTrip {
        until: NOON,
        reason,
        failed_probes: 0,
    });
    candidate
}

fn failing(id: u128, failures: u32, attempts: u32) -> Candidate {
    let mut candidate = enabled(id);
    candidate.recent = RecentAttempts {
        attempts,
        failures,
        failures_in_a_row: 1,
        successes_in_a_row: 0,
        last_at: Some(NOON),
        last_failure: Some(answered(503)),
    };
    candidate
}

fn answered(code: u16) -> LastFailure {
    LastFailure {
        at: NOON,
        kind: FailureKind::Http,
        status_code: Some(code),
    }
}

fn waiting(mut candidate: Candidate, pending: u64) -> Candidate {
    candidate.pending = pending;
    candidate
}

fn gone() -> DisabledReason {
    DisabledReason::Automatic(DisableCause::Gone)
}

fn ids(findings: &[Finding]) -> Vec<u128> {
    let id = |finding: &Finding| finding.candidate.row.endpoint.id.0;
    findings.iter().map(id).collect()
}

fn detail_of(candidate: Candidate) -> String {
    let findings = findings(vec![candidate], NOON, 1);
    findings.first().expect("it needs a look").detail()
}

#[test]
fn findings_are_sorted_by_urgency_then_backlog() {
    let candidates = vec![
        waiting(candidate(1, EndpointStatus::Paused), 9_000),
        waiting(failing(2, 9, 10), 5),
        waiting(failing(3, 2, 10), 500),
        tripped_by(4, TripReason::ConsecutiveFailures, 10),
        tripped_by(5, TripReason::ConsecutiveFailures, 400),
        waiting(tripped_by(6, TripReason::FailureRatio, 1), 1),
        disabled_by(8, gone()),
        disabled_by(7, gone()),
    ];
    let order = [7, 8, 6, 5, 4, 3, 2, 1];
    assert_eq!(ids(&findings(candidates.clone(), NOON, 99)), order);
    assert_eq!(ids(&findings(candidates.clone(), NOON, 3)), order[..3]);
    let backwards = candidates.into_iter().rev().collect();
    assert_eq!(ids(&findings(backwards, NOON, 99)), order);
}

#[test]
fn healthy_and_manually_disabled_endpoints_need_no_attention() {
    let mut deleted = tripped_by(4, TripReason::FailureRatio, 9);
    deleted.row.status = EndpointStatus::Deleted;
    let well = vec![
        enabled(1),
        failing(2, 1, 100),
        disabled_by(3, DisabledReason::Manual),
        deleted,
    ];
    assert!(findings(well, NOON, 99).is_empty());
}

#[test]
fn manual_status_hides_other_reasons() {
    let mut paused = tripped_by(1, TripReason::FailureRatio, 9);
    paused.row.status = EndpointStatus::Paused;
    let found = findings(vec![paused], NOON, 9);
    assert_eq!(found[0].reason, AttentionReason::Paused);
    assert_eq!(found[0].since(), None);
    let tripped = tripped_by(1, TripReason::FailureRatio, 9);
    let found = findings(vec![tripped], NOON, 9);
    assert_eq!(found[0].since(), Some(Timestamp(NOON.0 - 60_000)));
}

#[test]
fn detail_describes_the_problem() {
    let mut dead = tripped_by(1, TripReason::ConsecutiveFailures, 412);
    assert_eq!(detail_of(dead.clone()), "412 failures in a row");
    dead.recent.last_failure = Some(answered(503));
    assert_eq!(detail_of(dead), "412 failures in a row; last: HTTP 503");
    let words = |reason, in_a_row| detail_of(tripped_by(1, reason, in_a_row));
    assert_eq!(words(TripReason::FailureRatio, 1), "1 failure in a row");
    assert_eq!(
        words(TripReason::FailureRatio, 0),
        "too many recent attempts failed"
    );
    assert_eq!(
        words(TripReason::ExhaustedDeliveries, 3),
        "too many deliveries failed within a day"
    );
    assert_eq!(
        detail_of(failing(1, 9, 10)),
        "9 of the last 10 attempts failed; last: HTTP 503"
    );
    assert_eq!(
        detail_of(disabled_by(1, gone())),
        "disabled automatically: the receiver responded with 410 Gone"
    );
    let paused = |pending| detail_of(waiting(candidate(1, EndpointStatus::Paused), pending));
    assert_eq!(paused(0), "paused manually; no deliveries waiting");
    assert_eq!(paused(1), "paused manually; 1 delivery waiting");
    assert_eq!(paused(7), "paused manually; 7 deliveries waiting");
}

#[test]
fn every_cause_has_a_text() {
    for kind in FailureKind::ALL {
        let failure = LastFailure {
            at: NOON,
            kind,
            status_code: None,
        };
        let mut candidate = failing(1, 9, 10);
        candidate.recent.last_failure = Some(failure);
        let detail = detail_of(candidate);
        let said = detail.split_once("; last: ").expect("a cause").1;
        assert!(said.len() > 3, "{kind:?}: {said}");
    }
}
