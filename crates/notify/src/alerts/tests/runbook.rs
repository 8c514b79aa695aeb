//! Tests that the runbook and the Prometheus rules agree with the server.

use posthaste_core::alert::{AlertName, Bound};

use super::AlertSettings;

const RUNBOOK: &str = include_str!("../../../../../docs/operations.md");
const RULES: &str = include_str!("../../../../../deploy/prometheus/rules.yml");

/// Returns the name of the Prometheus rule for an alert.
fn rule_of(name: AlertName) -> String {
    let words = name.name().split('_').map(|word| {
        let (first, rest) = word.split_at(1);
        format!("{}{rest}", first.to_ascii_uppercase())
    });
    format!("Posthaste{}", words.collect::<String>())
}

/// Returns the expressions of the Prometheus rules for an alert.
fn expressions(name: AlertName) -> Vec<&'static str> {
    let wanted = format!("- alert: {}", rule_of(name));
    let mut lines = RULES.lines().map(str::trim);
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        if line == wanted {
            found.extend(lines.next().and_then(|line| line.strip_prefix("expr: ")));
        }
    }
    found
}

#[test]
fn every_alert_has_a_runbook_section_and_a_prometheus_rule() {
    for name in AlertName::ALL {
        let section = format!("\n### {name}\n");
        assert_eq!(RUNBOOK.matches(&section).count(), 1, "{name}");
        assert!(!expressions(name).is_empty(), "{name}");
    }
}

#[test]
fn the_prometheus_rules_have_the_same_thresholds() {
    for name in AlertName::ALL {
        let least = match name {
            AlertName::RetryRatio
            | AlertName::DeadLetterRatio
            | AlertName::AttemptsPerSuccess
            | AlertName::SecondAttemptSuccessRatio => AlertSettings::default().min_attempts,
            AlertName::RetryingOver24h
            | AlertName::DeadLettersGrowing
            | AlertName::QueueAge
            | AlertName::StoreSlow
            | AlertName::StoreNearlyFull
            | AlertName::HeldAfterFaults => 0,
            // These have no threshold in the rules, or are computed differently there.
            AlertName::BreakerTripped
            | AlertName::DisableWarning
            | AlertName::EndpointDisabled
            | AlertName::HeldBack
            | AlertName::NotificationsStuck
            | AlertName::OutboxUnreachable
            | AlertName::SchedulesFailing => continue,
        };
        let mark = match name.bound() {
            Bound::Above(_) => ") > ",
            Bound::Below(_) => ") < ",
        };
        let limits = expressions(name).into_iter().filter_map(|expression| {
            let (_, rest) = expression.rsplit_once(mark)?;
            rest.split(' ').next()?.parse::<f64>().ok()
        });
        let limits: Vec<f64> = limits.collect();
        assert!(limits.contains(&name.bound().limit()), "{name}: {limits:?}");
        if least > 0 {
            let samples = format!(">= {least}");
            let all = expressions(name).iter().all(|it| it.ends_with(&samples));
            assert!(all, "{name} counts from {least} attempts on");
        }
    }
}
