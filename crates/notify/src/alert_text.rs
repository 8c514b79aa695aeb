//! Text of an alert.
//!
//! [`message`] describes an alert in one sentence, from its name and its stored detail. A value that is missing in the
//! detail is shown as `?`, so alerts of every version have a text.

use posthaste_core::alert::{AlertName, Bound, Measure};
use posthaste_core::time::Span;
use posthaste_store::{Alert, SubjectScope};
use serde_json::Value;

/// Describes an alert in one sentence.
pub fn message(alert: &Alert) -> String {
    message_of(alert.name, &alert.detail)
}

/// Describes an alert with this name and detail in one sentence.
pub(crate) fn message_of(alert_name: AlertName, detail: &Value) -> String {
    let number = |name: &str| detail.get(name).and_then(Value::as_f64);
    let text = |name: &str| detail.get(name).and_then(Value::as_str);
    let formatted = |name: &str| {
        number(name).map_or("?".to_owned(), |value| {
            with_unit(alert_name.measure(), value)
        })
    };
    let (value, limit) = (formatted("value"), formatted("threshold"));
    let last = text("window").map_or(String::new(), |window| format!(" over {}", last(window)));
    let in_brackets = |name: &str| match text(name) {
        Some(code) => format!(" ({})", code.replace('_', " ")),
        None => String::new(),
    };
    match alert_name {
        AlertName::RetryRatio => format!("Retry rate is {value}{last} (threshold {limit})."),
        AlertName::DeadLetterRatio => {
            format!("Dead-letter rate is {value}{last} (threshold {limit}).")
        }
        AlertName::AttemptsPerSuccess => {
            format!("Attempts per successful delivery: {value}{last} (threshold {limit}).")
        }
        AlertName::SecondAttemptSuccessRatio => {
            format!("Success rate of second attempts is {value}{last} (threshold {limit}).")
        }
        AlertName::RetryingOver24h => format!(
            "At least {value} deliveries have been retrying for more than 24 hours (threshold {limit})."
        ),
        AlertName::DeadLettersGrowing => {
            format!("{value} deliveries were dead-lettered{last} (threshold {limit}).")
        }
        AlertName::BreakerTripped => format!(
            "Endpoint down: deliveries are held, and probes are sent{}.",
            in_brackets("reason")
        ),
        AlertName::DisableWarning => format!(
            "The endpoint will be disabled if it keeps failing{}.",
            in_brackets("cause")
        ),
        AlertName::EndpointDisabled => {
            format!(
                "The endpoint was disabled automatically{}.",
                in_brackets("cause")
            )
        }
        AlertName::QueueAge => {
            format!("Due deliveries have been waiting for {value} (threshold {limit}).")
        }
        AlertName::HeldBack => format!(
            "Deliveries have been held back by {} for {value} (threshold {limit}).",
            limit_text(text("held_back_by"))
        ),
        AlertName::StoreSlow => {
            format!("Store writes take {value} (threshold {limit}).")
        }
        AlertName::StoreNearlyFull => {
            format!("Free space of the store is {value} (threshold {limit}).")
        }
        AlertName::NotificationsStuck => {
            format!("Notifications have been waiting for {value} (threshold {limit}).")
        }
        AlertName::HeldAfterFaults => format!(
            "Deliveries held after repeated internal errors: {value} (threshold {limit}). Retry or cancel them manually."
        ),
        AlertName::OutboxUnreachable => format!(
            "An outbox has been unreadable for {value} (threshold {limit}). Its rows wait in the application's database."
        ),
        AlertName::SchedulesFailing => format!(
            "Schedules whose last three runs failed: {value} (threshold {limit}). GET /v1/tenants/{{tenant}}/schedules lists them."
        ),
    }
}

/// Describes the condition under which an open alert is resolved.
pub fn clears_when(name: AlertName, bound: Option<Bound>, calm: Span) -> String {
    let calm = calm.about();
    match (name, bound) {
        (AlertName::BreakerTripped, _) => {
            format!("when the endpoint has accepted deliveries again for {calm}")
        }
        (AlertName::DisableWarning, _) => "when the endpoint recovers or is disabled".to_owned(),
        (AlertName::EndpointDisabled, _) => "when the endpoint is enabled".to_owned(),
        (_, Some(Bound::Above(limit))) => {
            let limit = with_unit(name.measure(), limit);
            format!("when the value has been at most {limit} for {calm}")
        }
        (_, Some(Bound::Below(limit))) => {
            let limit = with_unit(name.measure(), limit);
            format!("when the value has been at least {limit} for {calm}")
        }
        (_, None) => {
            "at the next check, because this alert is disabled in the configuration".to_owned()
        }
    }
}

/// Describes the window that ends now.
fn last(window: &str) -> String {
    match window {
        "1h" => "the last hour".to_owned(),
        "24h" | "1d" => "the last day".to_owned(),
        other => format!("the last {other}"),
    }
}

/// Names a limit that holds deliveries back.
fn limit_text(held_back_by: Option<&str>) -> &'static str {
    match held_back_by {
        Some("rate_limit") => "the endpoint's rate limit",
        Some("in_flight") => "the endpoint's in-flight limit",
        Some("tenant_in_flight") => "the tenant's in-flight limit",
        Some("server_in_flight") => "the server's in-flight limit",
        Some(_) | None => "a limit",
    }
}

/// Formats a value with its unit.
fn with_unit(measure: Measure, value: f64) -> String {
    match measure {
        Measure::Ratio => format!("{} %", percent(value * 100.0)),
        Measure::Factor | Measure::Count | Measure::Event => two_decimals(value),
        Measure::Seconds => Span::from_millis((value * 1_000.0).max(0.0) as u64).about(),
    }
}

/// Formats a percentage with at most two decimals, or with one from 10 % on.
fn percent(value: f64) -> String {
    match value.abs() < 10.0 {
        true => two_decimals(value),
        false => two_decimals((value * 10.0).round() / 10.0),
    }
}

/// Formats a number with at most two decimals, without trailing zeros.
fn two_decimals(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats the scope for a log line.
pub(crate) fn scope_text(scope: &SubjectScope) -> String {
    match scope {
        SubjectScope::Everything => "everything".to_owned(),
        SubjectScope::Tenant(tenant) => format!("tenant {tenant}"),
        SubjectScope::Endpoint(endpoint) => format!("endpoint {endpoint}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::id::AlertId;
    use posthaste_core::time::Timestamp;
    use posthaste_store::SubjectScope;
    use serde_json::json;

    fn text_of(name: AlertName, detail: Value) -> String {
        message(&Alert {
            id: AlertId(1),
            name,
            scope: SubjectScope::Everything,
            tenant: None,
            is_gone: false,
            raised_at: Timestamp(0),
            resolved_at: None,
            detail,
        })
    }

    #[test]
    fn every_text_names_the_value_and_the_threshold() {
        let metric = json!({"value": 0.12345, "threshold": 0.1, "window": "1h", "samples": 81});
        assert_eq!(
            text_of(AlertName::RetryRatio, metric),
            "Retry rate is 12.3 % over the last hour (threshold 10 %)."
        );
        let tripped = json!({"reason": "consecutive_failures", "notice": 3});
        assert_eq!(
            text_of(AlertName::BreakerTripped, tripped),
            "Endpoint down: deliveries are held, and probes are sent (consecutive failures)."
        );
        // A ratio near its threshold does not look equal to it.
        let near = json!({"value": 0.0104, "threshold": 0.01, "window": "30m", "samples": 200});
        assert_eq!(
            text_of(AlertName::DeadLetterRatio, near),
            "Dead-letter rate is 1.04 % over the last 30m (threshold 1 %)."
        );
        let often = json!({"value": 2.345, "threshold": 2.0, "window": "1d", "samples": 70});
        assert_eq!(
            text_of(AlertName::AttemptsPerSuccess, often),
            "Attempts per successful delivery: 2.35 over the last day (threshold 2)."
        );
        let count = json!({"value": 101.0, "threshold": 100.0});
        assert_eq!(
            text_of(AlertName::RetryingOver24h, count),
            "At least 101 deliveries have been retrying for more than 24 hours (threshold 100)."
        );
        let held_back =
            json!({"value": 360.0, "threshold": 300.0, "held_back_by": "tenant_in_flight"});
        assert_eq!(
            text_of(AlertName::HeldBack, held_back),
            "Deliveries have been held back by the tenant's in-flight limit for 6 min (threshold 5 min)."
        );
        let slow = json!({"value": 1.5, "threshold": 1.0});
        let slow = text_of(AlertName::StoreSlow, slow);
        assert!(slow.starts_with("Store writes take "), "{slow}");
        for name in AlertName::ALL {
            let some = text_of(
                name,
                json!({"value": 0.5, "threshold": 0.25, "window": "1h"}),
            );
            assert!(some.ends_with('.') && !some.contains('?'), "{some}");
            let bare = text_of(name, json!({}));
            assert!(!bare.is_empty());
        }
    }

    #[test]
    fn the_end_of_every_alert_is_described() {
        let calm = Span::from_mins(5);
        let when = |name: AlertName| clears_when(name, Some(name.bound()), calm);
        assert_eq!(
            when(AlertName::RetryRatio),
            "when the value has been at most 10 % for 5 min"
        );
        assert_eq!(
            when(AlertName::SecondAttemptSuccessRatio),
            "when the value has been at least 60 % for 5 min"
        );
        assert_eq!(
            when(AlertName::EndpointDisabled),
            "when the endpoint is enabled"
        );
        for name in AlertName::ALL {
            assert!(when(name).starts_with("when "), "{name}");
        }
    }

    #[test]
    fn numbers_have_at_most_two_decimals() {
        assert_eq!(two_decimals(101.0), "101");
        assert_eq!(two_decimals(2.04), "2.04");
        assert_eq!(two_decimals(0.5), "0.5");
        assert_eq!(two_decimals(0.004), "0");
    }
}
