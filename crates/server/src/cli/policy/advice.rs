//! Suggestions after a simulated outage, verified by further simulations.

use posthaste_charts::format;
use posthaste_core::forecast::{Forecast, OutageScenario, SenderOutcome, forecast};
use posthaste_core::lane::RateLimit;

/// Suggests a lower rate limit if the current one exceeds the receiver's capacity and a lower one helps. Every
/// suggestion was simulated.
pub fn suggest_rate_limit(scenario: &OutageScenario, outage: &Forecast) -> Option<String> {
    let refused = refused(scenario, &outage.posthaste);
    if scenario.rate.per_second <= scenario.capacity_per_second || refused == 0 {
        return None;
    }
    let lower = RateLimit {
        per_second: scenario.capacity_per_second,
        burst: scenario.rate.burst,
    };
    let lowest = RateLimit { burst: 1, ..lower };
    let mut best: Option<(u64, RateLimit)> = None;
    for rate in [lower, lowest] {
        let scenario = OutageScenario {
            rate,
            ..scenario.clone()
        };
        let left = self::refused(&scenario, &forecast(&scenario).posthaste);
        if best.is_none_or(|(fewest, _)| left < fewest) {
            best = Some((left, rate));
        }
        if left == 0 {
            break;
        }
    }
    let (left, rate) = best.filter(|(left, _)| *left < refused)?;
    let with = changed_arguments(rate, scenario.rate);
    let refused = format::count(refused);
    Some(match left {
        0 => format!("With {with} no requests would have been rejected, instead of {refused}."),
        left => {
            let left = format::count(left);
            format!(
                "With {with} only {left} requests would have been rejected, instead of {refused}."
            )
        }
    })
}

/// Returns the number of requests that failed after the receiver was back.
fn refused(scenario: &OutageScenario, course: &SenderOutcome) -> u64 {
    let back = scenario.outage.as_millis() / 1_000;
    let after = course.arrivals.range(back..);
    after.map(|(_, seen)| seen.failed).sum()
}

/// Formats the command-line arguments that differ from the current ones.
fn changed_arguments(rate: RateLimit, before: RateLimit) -> String {
    let per_second = format::rate(rate.per_second).replace(',', "");
    if rate.burst == before.burst {
        format!("--rate {per_second}")
    } else {
        format!("--rate {per_second} --burst {}", rate.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::time::Span;

    fn advice(scenario: &OutageScenario) -> Option<String> {
        suggest_rate_limit(scenario, &forecast(scenario))
    }

    #[test]
    fn a_limit_within_the_capacity_needs_no_advice() {
        let mut scenario = OutageScenario::with_defaults(500, Span::from_mins(1));
        scenario.rate.per_second = scenario.capacity_per_second;
        assert_eq!(advice(&scenario), None);
    }

    /// Every suggestion must come true.
    #[test]
    fn a_limit_above_the_capacity_is_advised_to_be_lower() {
        for (capacity, argument) in [(10.0, "--rate 10/s"), (1.5, "--rate 1.5/s")] {
            let mut scenario = OutageScenario::with_defaults(500, Span::from_mins(5));
            scenario.capacity_per_second = capacity;
            let text = advice(&scenario).expect("advice");
            assert!(text.starts_with(&format!("With {argument}")), "{text}");
            scenario.rate.per_second = capacity;
            if text.contains("--burst 1 ") {
                scenario.rate.burst = 1;
            }
            let left = refused(&scenario, &forecast(&scenario).posthaste);
            assert_eq!(text.contains("no requests would"), left == 0, "{text}");
        }
    }

    #[test]
    fn advice_can_be_typed() {
        let rate = |per_second, burst| RateLimit { per_second, burst };
        let before = rate(5_000.0, 100);
        assert_eq!(
            changed_arguments(rate(1_500.0, 100), before),
            "--rate 1500/s"
        );
        assert_eq!(
            changed_arguments(rate(100.0 / 60.0, 1), before),
            "--rate 100/m --burst 1"
        );
    }
}
