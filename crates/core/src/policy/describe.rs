//! Describes a policy in words.
//!
//! `words` writes a short English text for people who choose a policy: the schedule, the jitter, the limits, and
//! which failures are retried. The text is part of the [`Explanation`](super::Explanation) and is shown in the API
//! and the dashboard. It is computed from the same data as the numbers, so both always agree.

use super::{AttemptWindow, Backoff, Jitter, LateAction, RetryPolicy};
use crate::time::Span;

/// Maximum number of delays that are listed.
const SPELLED_OUT: usize = 10;

impl RetryPolicy {
    pub(super) fn words(&self, attempts: &[AttemptWindow]) -> String {
        let mut sentences = vec![self.schedule_in_words(attempts)];
        if attempts.len() > 1 {
            sentences.push(format!("{}.", self.jitter_in_words()));
            sentences.push(self.limits_in_words(attempts));
            sentences.push(self.late_in_words());
            sentences.push(self.verdicts_in_words());
        }
        sentences.join(" ")
    }

    fn schedule_in_words(&self, attempts: &[AttemptWindow]) -> String {
        let means: Vec<Span> = attempts
            .windows(2)
            .map(|pair| Span::from_millis(pair[1].expected_ms - pair[0].expected_ms))
            .collect();
        let Some((first, rest)) = means.split_first() else {
            return "One attempt, immediately; no retries.".to_owned();
        };
        let first = first.about();
        let rest = grouped(rest);
        let shown = rest.len().min(SPELLED_OUT);
        let mut sentence = format!("First attempt immediately; retries after about {first}");
        for delay in &rest[..shown] {
            sentence.push_str(", then ");
            sentence.push_str(delay);
        }
        if shown < rest.len() {
            sentence.push_str(", and so on");
        }
        let last = attempts[attempts.len() - 1];
        let mean = Span::from_millis(last.expected_ms).about();
        let most = Span::from_millis(last.latest_ms).about();
        let total = attempts.len();
        if mean == most {
            format!("{sentence}: {total} attempts over {mean}.")
        } else {
            format!("{sentence}: {total} attempts over about {mean}, {most} at most.")
        }
    }

    fn jitter_in_words(&self) -> String {
        match self.jitter {
            Jitter::None => {
                "Delays are exact, so deliveries that fail together are retried together".to_owned()
            }
            Jitter::Full => "Each delay is random, from zero to twice its mean".to_owned(),
            Jitter::Equal => "Each delay is random, within a third of its mean".to_owned(),
            Jitter::Decorrelated => {
                "Each delay is random, from the shortest delay to three times the previous one"
                    .to_owned()
            }
            Jitter::Proportional { fraction } => {
                let percent = (fraction * 1_000.0).round() / 10.0;
                format!("Each delay varies by ±{percent} %")
            }
        }
    }

    fn limits_in_words(&self, attempts: &[AttemptWindow]) -> String {
        let deadline = self.give_up_after.about();
        if attempts.len() < self.max_attempts as usize {
            format!(
                "Fails {deadline} after the event was due, even if fewer than {} attempts were made.",
                self.max_attempts
            )
        } else {
            format!(
                "Fails after the last attempt; no retry is scheduled later than {deadline} after the event was due."
            )
        }
    }

    fn late_in_words(&self) -> String {
        match self.late {
            LateAction::Send => "A delivery held back past this deadline is still sent.",
            LateAction::Drop => {
                "A delivery held back past this deadline fails as expired, without another attempt."
            }
        }
        .to_owned()
    }

    /// Returns the backoff and jitter in one line, for a heading.
    pub fn shape_in_words(&self) -> String {
        let jitter = match self.jitter {
            Jitter::None => "no jitter".to_owned(),
            Jitter::Full => "full jitter".to_owned(),
            Jitter::Equal => "equal jitter".to_owned(),
            Jitter::Decorrelated => "decorrelated jitter".to_owned(),
            Jitter::Proportional { fraction } => {
                format!("±{} %", (fraction * 1_000.0).round() / 10.0)
            }
        };
        let shape = match &self.backoff {
            Backoff::Fixed { interval } => format!("every {interval}"),
            Backoff::Linear { step, cap } => format!("linear, step {step}, cap {cap}"),
            Backoff::Exponential { base, factor, cap } => {
                format!("exponential, base {base}, factor {factor}, cap {cap}")
            }
            Backoff::Schedule { delays } => format!("a schedule of {}", delays.len()),
        };
        format!("{shape}, {jitter}")
    }
}

/// Describes delays in words and groups equal ones: nine delays of 60 min become `60 min (9 times)`.
fn grouped(delays: &[Span]) -> Vec<String> {
    delays
        .chunk_by(|a, b| a.about() == b.about())
        .map(|run| match run.len() {
            1 => run[0].about(),
            count => format!("{} ({count} times)", run[0].about()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Preset;
    use serde_json::json;

    #[test]
    fn the_recommended_policy_in_words() {
        assert_eq!(
            Preset::Recommended.policy().explain().words,
            "First attempt immediately; retries after about 10 s, then 30 s, then 2 min, \
             then 10 min, then 30 min, then 2 hours, then 8 hours, then 24 hours: 9 attempts over \
             about 35 hours, 42 hours at most. Each delay varies by ±20 %. Fails after the last \
             attempt; no retry is scheduled later than 3 days after the event was due. A delivery held back past this deadline is still sent. Retried: \
             1xx, 408, 429, 5xx, timeouts, DNS errors, TLS errors, connection errors and unknown \
             errors. Retried 3 times at most: 404, 409 and 425. Permanent: 3xx, other 4xx and \
             destinations that are not allowed."
        );
    }

    #[test]
    fn long_schedules_and_time_limits_in_words() {
        let words = Preset::Steady.policy().explain().words;
        assert!(words.contains("45 min (9 times)"), "{words}");
        let hurried = RetryPolicy::from_json(&json!({
            "backoff": {"kind": "fixed", "interval": "1m"},
            "jitter": {"kind": "none"},
            "max_attempts": 50,
            "give_up_after": "5m",
            "rules": [{"on": "404", "then": "fail"}, {"on": "dns", "then": "retry", "limit": 1}],
            "late": "drop",
        }))
        .unwrap()
        .explain()
        .words;
        assert!(hurried.contains("6 attempts over 5 min."), "{hurried}");
        assert!(hurried.contains("even if fewer than 50"), "{hurried}");
        assert!(
            hurried.contains("past this deadline fails as expired"),
            "{hurried}"
        );
        assert!(
            hurried.contains(
                "Retried once at most: DNS errors. Retried 3 times at most: 409 and 425. \
                 Permanent: 3xx, other 4xx and destinations that are not allowed."
            ),
            "{hurried}"
        );
    }

    #[test]
    fn a_single_attempt_in_words() {
        let once = RetryPolicy {
            max_attempts: 1,
            ..RetryPolicy::default()
        };
        assert_eq!(
            once.explain().words,
            "One attempt, immediately; no retries."
        );
    }
}
