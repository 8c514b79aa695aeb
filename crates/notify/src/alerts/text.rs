//! Text of an alert.
//!
//! [`message`] describes an alert in one sentence, from its name and its stored detail. A value that is missing in the
//! detail is shown as `?`, so alerts of every version have a text.

use posthaste_core::alert::{AlertName, Measure};
use posthaste_core::time::Span;
use posthaste_store::Alert;
use serde_json::Value;

/// Describes an alert in one sentence.
pub fn message(alert: &Alert) -> String {
    let number = |name: &str| alert.detail.get(name).and_then(Value::as_f64);
    let text = |name: &str| alert.detail.get(name).and_then(Value::as_str);
    let formatted = |name: &str| {
        number(name).map_or("?".to_owned(), |value| {
            with_unit(alert.name.measure(), value)
        })
    };
    let (value, limit) = (formatted("value"), formatted("threshold"));
    let within = match text("window") {
        Some(window) => format!(" within {window}"),
        None => String::new(),
    };
    let in_brackets = |name: &str| match text(name) {
        Some(code) => format!(" ({})", code.replace('_', " ")),
        None => String::new(),
    };
    match alert.name {
        AlertName::RetryRatio => {
            format!(
                "{value} of the attempts{within} were retries; more than {limit} calls for somebody."
            )
        }
        AlertName::DeadLetterRatio => format!(
            "{value} of the deliveries that ended{within} were given up; more than {limit} calls for somebody."
        ),
        // The value is divided by at least one success, so there was at most one.
        AlertName::AttemptsPerSuccess if number("samples") == number("value") => format!(
            "Of {value} attempts{within} at most one delivered something; more than {limit} for each call for somebody."
        ),
        AlertName::AttemptsPerSuccess => format!(
            "It took {value} attempts to deliver something{within}; more than {limit} calls for somebody."
        ),
        AlertName::SecondAttemptSuccessRatio => format!(
            "Only {value} of the second attempts{within} succeeded; less than {limit} calls for somebody."
        ),
        AlertName::RetryingOver24h => format!(
            "At least {value} deliveries have been in retry for more than a day; more than {limit} call for somebody."
        ),
        AlertName::DeadLettersGrowing => format!(
            "{value} deliveries were given up{within}; more than {limit} call for somebody."
        ),
        AlertName::BreakerTripped => format!(
            "The endpoint keeps failing, so it is left alone and probed{}.",
            in_brackets("reason")
        ),
        AlertName::DisableWarning => format!(
            "The endpoint will be disabled if this goes on{}.",
            in_brackets("cause")
        ),
        AlertName::EndpointDisabled => {
            format!(
                "The endpoint was disabled by posthaste{}.",
                in_brackets("cause")
            )
        }
        AlertName::QueueAge => format!(
            "Something that could be sent has been waiting for {value}; more than {limit} calls for somebody."
        ),
        AlertName::StoreSlow => {
            format!("The store takes {value} to write; more than {limit} calls for somebody.")
        }
        AlertName::StoreNearlyFull => format!(
            "Only {value} of the store's room is free; less than {limit} calls for somebody."
        ),
        AlertName::NotificationsStuck => format!(
            "Something has been waiting for {value} to be told; more than {limit} calls for somebody."
        ),
    }
}

/// Formats a value with its unit.
fn with_unit(measure: Measure, value: f64) -> String {
    match measure {
        Measure::Ratio => format!("{} %", two_decimals(value * 100.0)),
        Measure::Factor | Measure::Count | Measure::Event => two_decimals(value),
        Measure::Seconds => Span::from_millis((value * 1_000.0).max(0.0) as u64).about(),
    }
}

/// Formats a number with at most two decimals, without trailing zeros.
fn two_decimals(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::id::AlertId;
    use posthaste_core::time::Timestamp;
    use posthaste_store::Scope;
    use serde_json::json;

    fn text_of(name: AlertName, detail: Value) -> String {
        message(&Alert {
            id: AlertId(1),
            name,
            scope: Scope::Everything,
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
            "12.35 % of the attempts within 1h were retries; more than 10 % calls for somebody."
        );
        let tripped = json!({"reason": "consecutive_failures", "notice": 3});
        assert_eq!(
            text_of(AlertName::BreakerTripped, tripped),
            "The endpoint keeps failing, so it is left alone and probed (consecutive failures)."
        );
        let never = json!({"value": 7.0, "threshold": 2.0, "window": "1h", "samples": 7});
        assert_eq!(
            text_of(AlertName::AttemptsPerSuccess, never),
            "Of 7 attempts within 1h at most one delivered something; more than 2 for each call for somebody."
        );
        let slow = json!({"value": 1.5, "threshold": 1.0});
        let slow = text_of(AlertName::StoreSlow, slow);
        assert!(slow.starts_with("The store takes "), "{slow}");
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
    fn numbers_have_at_most_two_decimals() {
        assert_eq!(two_decimals(101.0), "101");
        assert_eq!(two_decimals(2.04), "2.04");
        assert_eq!(two_decimals(0.5), "0.5");
        assert_eq!(two_decimals(0.004), "0");
    }
}
