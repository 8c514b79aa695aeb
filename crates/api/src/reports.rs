//! JSON reports on retry policies and simulated outages, for the command line and the API.
//!
//! [`ExplanationReport`] explains a policy, and [`OutageReport`] compares a gradual recovery with a naive sender. Tools
//! read these fields, so their names do not change. [`PolicyReport`] can be read back as a policy.

use std::collections::BTreeMap;

use posthaste_charts::format;
use posthaste_charts::outage::{Times, over_capacity};
use posthaste_charts::series::{self, Bucket};
use posthaste_core::delivery::DeadReason;
use posthaste_core::forecast::{Forecast, OutageScenario, SenderOutcome};
use posthaste_core::lane::RateLimit;
use posthaste_core::policy::{Explanation, Preset, RetryPolicy};
use serde::Serialize;

/// The retry policy that a report is about. Can be read back as a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyReport {
    /// Name of the preset, if the policy is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<&'static str>,
    /// The complete policy.
    #[serde(flatten)]
    pub policy: RetryPolicy,
}

impl PolicyReport {
    /// Reports a policy and its preset.
    pub fn new(preset: Option<Preset>, policy: &RetryPolicy) -> PolicyReport {
        PolicyReport {
            preset: preset.map(Preset::name),
            policy: policy.clone(),
        }
    }
}

/// The explanation of a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExplanationReport {
    /// Times of the attempts.
    #[serde(flatten)]
    pub explanation: Explanation,
    /// The explained policy.
    pub policy: PolicyReport,
}

/// Result of a simulated outage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutageReport {
    /// The endpoint's retry policy.
    pub policy: PolicyReport,
    /// Deliveries due when the outage began.
    pub pending: u32,
    /// Duration of the outage, in milliseconds.
    pub outage_ms: u64,
    /// Requests per second that the receiver accepted after the outage.
    pub capacity_per_second: f64,
    /// Limits of the endpoint.
    pub limits: LimitsReport,
    /// Seed of the RNG.
    pub seed: u64,
    /// Result of posthaste.
    pub posthaste: SenderReport,
    /// Result of a naive sender.
    pub naive: SenderReport,
    /// Conclusion, in one sentence.
    pub words: String,
}

/// Limits of the endpoint, with the field names of the API.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LimitsReport {
    /// Maximum number of attempts in flight.
    pub max_in_flight: u32,
    /// Maximum rate of attempts.
    pub rate_limit: RateLimit,
}

/// Result of one way of sending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SenderReport {
    /// Requests made.
    pub attempts: u64,
    /// Successful deliveries.
    pub delivered: u64,
    /// Dead-lettered deliveries.
    pub dead_lettered: u64,
    /// Number of dead letters by reason.
    pub dead_letter_reasons: BTreeMap<&'static str, u64>,
    /// Highest number of requests in one second after the receiver came back.
    pub peak_arrivals_per_second: u64,
    /// End of the last delivery, in milliseconds since the start of the outage.
    pub drained_ms: u64,
    /// All requests over time, in at most [`series::MAX_BUCKETS`] buckets.
    pub series: Vec<Bucket>,
}

impl OutageReport {
    /// Reports on a simulated scenario.
    pub fn new(
        preset: Option<Preset>,
        scenario: &OutageScenario,
        forecast: &Forecast,
    ) -> OutageReport {
        let mut report = OutageReport {
            policy: PolicyReport::new(preset, &scenario.policy),
            pending: scenario.pending,
            outage_ms: scenario.outage.as_millis(),
            capacity_per_second: scenario.capacity_per_second,
            limits: LimitsReport {
                max_in_flight: scenario.max_in_flight,
                rate_limit: scenario.rate,
            },
            seed: scenario.seed,
            posthaste: SenderReport::new(&forecast.posthaste),
            naive: SenderReport::new(&forecast.naive),
            words: String::new(),
        };
        report.words = report.conclusion();
        report
    }

    /// Returns the times in words, the same for every output.
    pub fn times(&self) -> Times {
        Times::new(
            self.outage_ms,
            self.posthaste.drained_ms,
            self.naive.drained_ms,
        )
    }

    /// Returns the conclusion, in one sentence.
    pub fn conclusion(&self) -> String {
        if self.pending == 0 {
            return "Nothing was pending, so nothing was sent.".to_owned();
        }
        format!("{}; {}.", self.posthaste_in_words(), self.naive_in_words())
    }

    /// Describes why deliveries were dead-lettered.
    fn why(&self) -> &'static str {
        let disabled = DeadReason::EndpointDisabled.name();
        if self.posthaste.dead_letter_reasons.contains_key(disabled) {
            "because the endpoint was disabled after failing for days"
        } else {
            "as set by the policy"
        }
    }

    fn posthaste_in_words(&self) -> String {
        let course = &self.posthaste;
        let all = match self.pending {
            1 => "the delivery".to_owned(),
            many => format!("all {}", format::count(u64::from(many))),
        };
        let (delivered, dead) = (course.delivered, course.dead_lettered);
        let fate = match (delivered, dead) {
            (_, 0) => format!("posthaste delivered {all} within {}", self.drain_in_words()),
            (0, _) if course.drained_ms <= self.outage_ms => {
                format!(
                    "posthaste dead-lettered {all} before the receiver was back, {}",
                    self.why()
                )
            }
            (0, _) => format!("posthaste dead-lettered {all}, {}", self.why()),
            (_, _) => format!(
                "posthaste delivered {} of {} and dead-lettered {}",
                format::count(delivered),
                format::count(u64::from(self.pending)),
                format::count(dead)
            ),
        };
        match course.peak_arrivals_per_second {
            0 => fate,
            peak => {
                let most = format!("with at most {}/s", format::count(peak));
                format!("{fate}, {most}{}", self.over_capacity(peak))
            }
        }
    }

    fn drain_in_words(&self) -> String {
        let times = self.times();
        match (self.outage_ms, times.posthaste_since) {
            (0, _) | (_, None) => times.posthaste,
            (_, Some(since)) => format!("{since} of recovery"),
        }
    }

    fn naive_in_words(&self) -> String {
        match self.naive.peak_arrivals_per_second {
            0 if self.posthaste.delivered > 0 => {
                "a naive sender would have given up before the receiver was back".to_owned()
            }
            0 => "a naive sender would have given up too".to_owned(),
            peak if peak <= self.posthaste.peak_arrivals_per_second => {
                "a naive sender would not have sent more in one second".to_owned()
            }
            peak => {
                let herd = format::count(peak);
                let over = self.over_capacity(peak);
                format!("a naive sender would have sent {herd} in one second{over}")
            }
        }
    }

    fn over_capacity(&self, peak: u64) -> String {
        let ratio = over_capacity(peak, self.capacity_per_second);
        ratio.map_or(String::new(), |ratio| {
            format!(", {ratio} the receiver's capacity")
        })
    }
}

impl SenderReport {
    fn new(course: &SenderOutcome) -> SenderReport {
        SenderReport {
            attempts: course.attempts,
            delivered: course.delivered,
            dead_lettered: course.dead_lettered,
            dead_letter_reasons: course.dead_letter_reasons.clone(),
            peak_arrivals_per_second: course.peak_per_second,
            drained_ms: course.drained_ms,
            series: series::whole(course),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::forecast::forecast;
    use posthaste_core::policy::Preset;
    use posthaste_core::time::Span;

    fn conclusion(scenario: &OutageScenario) -> String {
        OutageReport::new(None, scenario, &forecast(scenario)).conclusion()
    }

    fn course(delivered: u64, peak_per_second: u64, drained_ms: u64) -> SenderOutcome {
        SenderOutcome {
            attempts: 12_000,
            delivered,
            dead_lettered: 10_000 - delivered,
            peak_per_second,
            drained_ms,
            ..SenderOutcome::default()
        }
    }

    #[test]
    fn conclusion_mentions_the_peak_of_a_naive_sender() {
        let scenario = OutageScenario::with_defaults(10_000, Span::from_mins(30));
        let conclusion_of = |posthaste: SenderOutcome, naive: SenderOutcome| {
            OutageReport::new(None, &scenario, &Forecast { posthaste, naive }).conclusion()
        };
        let naive = course(10_000, 10_000, 13_740_000);
        assert_eq!(
            conclusion_of(course(10_000, 50, 2_069_137), naive.clone()),
            "posthaste delivered all 10,000 within 4m 29s of recovery, with at most 50/s; a naive \
             sender would have sent 10,000 in one second, 200 times the receiver's capacity."
        );
        assert_eq!(
            conclusion_of(course(9_000, 75, 2_069_137), course(0, 0, 1_000_000)),
            "posthaste delivered 9,000 of 10,000 and dead-lettered 1,000, with at most 75/s, 1.5 \
             times the receiver's capacity; a naive sender would have given up before the receiver \
             was back."
        );
    }

    #[test]
    fn conclusion_mentions_dead_letters() {
        let mut long = OutageScenario::with_defaults(30, Span::from_days(30));
        long.policy = Preset::Brisk.policy();
        assert_eq!(
            conclusion(&long),
            "posthaste dead-lettered all 30 before the receiver was back, as set by the policy; a naive \
             sender would have given up too."
        );
    }

    #[test]
    fn nothing_pending_and_no_outage() {
        assert_eq!(
            conclusion(&OutageScenario::with_defaults(0, Span::from_mins(1))),
            "Nothing was pending, so nothing was sent."
        );
        let at_once = conclusion(&OutageScenario::with_defaults(10, Span::ZERO));
        assert!(
            at_once.starts_with("posthaste delivered all 10 within "),
            "{at_once}"
        );
        assert!(!at_once.contains("recovery"), "{at_once}");
        assert!(
            at_once.ends_with("not have sent more in one second."),
            "{at_once}"
        );
        let herd = conclusion(&OutageScenario::with_defaults(1_000, Span::ZERO));
        assert!(
            herd.ends_with("sent 1,000 in one second, 20 times the receiver's capacity."),
            "{herd}"
        );
    }

    #[test]
    fn conclusion_for_one_delivery() {
        let mut one = OutageScenario::with_defaults(1, Span::from_mins(1));
        let text = conclusion(&one);
        assert!(
            text.starts_with("posthaste delivered the delivery within "),
            "{text}"
        );
        assert!(
            text.ends_with(
                "with at most 1/s; a naive sender would not have sent more in one second."
            ),
            "{text}"
        );
        one.outage = Span::from_days(30);
        let text = conclusion(&one);
        assert!(
            text.starts_with("posthaste dead-lettered the delivery before "),
            "{text}"
        );
    }

    #[test]
    fn policy_of_a_report_can_be_parsed() {
        for preset in Preset::ALL {
            let policy = preset.policy();
            let named = PolicyReport::new(Some(preset), &policy);
            let json = serde_json::to_value(&named).expect("JSON");
            assert_eq!(RetryPolicy::from_json(&json), Ok(policy.clone()));
            // Without the name, the rules of the preset are rules of the policy itself.
            let unnamed = PolicyReport::new(None, &policy);
            let json = serde_json::to_value(&unnamed).expect("JSON");
            let reread = RetryPolicy::from_json(&json).expect("a valid policy");
            assert_eq!(serde_json::to_value(&reread).expect("JSON"), json);
            assert_eq!(reread.explain(), policy.explain());
        }
    }

    #[test]
    fn series_contains_every_request() {
        let scenario = OutageScenario::with_defaults(2_000, Span::from_mins(10));
        let report = OutageReport::new(None, &scenario, &forecast(&scenario));
        for course in [&report.posthaste, &report.naive] {
            let arrivals: u64 = course.series.iter().map(|bucket| bucket.arrivals).sum();
            assert_eq!(arrivals, course.attempts);
            assert!(course.series.len() <= series::MAX_BUCKETS);
        }
    }
}
