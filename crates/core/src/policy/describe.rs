//! Describes a policy in words.
//!
//! `words` writes a short English text for people who choose a policy: the schedule, the jitter, the limits, and
//! which failures are retried. The text is part of the [`Explanation`](super::Explanation) and is shown in the API
//! and the dashboard. It is computed from the same data as the numbers, so both always agree.

use super::{AttemptWindow, Backoff, Jitter, RetryPolicy};
use crate::classify::{
    AMBIGUOUS_RETRIES, Classification, FailureKind, Fault, HttpStatus, Outcome, Row, Rule,
    RuleMatch, Then, classify,
};
use crate::time::Span;

/// Maximum number of delays that are listed.
const SPELLED_OUT: usize = 10;

impl RetryPolicy {
    pub(super) fn words(&self, attempts: &[AttemptWindow]) -> String {
        let mut sentences = vec![self.schedule_in_words(attempts)];
        if attempts.len() > 1 {
            sentences.push(format!("{}.", self.jitter_in_words()));
            sentences.push(self.limits_in_words(attempts));
            sentences.push(self.rules_in_words());
        }
        sentences.join(" ")
    }

    fn schedule_in_words(&self, attempts: &[AttemptWindow]) -> String {
        let means: Vec<Span> = attempts
            .windows(2)
            .map(|pair| Span::from_millis(pair[1].expected_ms - pair[0].expected_ms))
            .collect();
        let Some((first, rest)) = means.split_first() else {
            return "Tries once, at once, and never again.".to_owned();
        };
        let first = first.about();
        let rest = grouped(rest);
        let shown = rest.len().min(SPELLED_OUT);
        let mut sentence = format!("Tries at once; if that fails, tries again after about {first}");
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
                "Delays are exact, so what failed together comes back together".to_owned()
            }
            Jitter::Full => "Each delay is drawn from nothing up to twice its mean".to_owned(),
            Jitter::Equal => {
                "Each delay is drawn from the upper half of its nominal value".to_owned()
            }
            Jitter::Decorrelated => {
                "Each delay is drawn from the shortest one up to three times the last".to_owned()
            }
            Jitter::Proportional { fraction } => {
                let percent = (fraction * 1_000.0).round() / 10.0;
                format!("Each delay varies by {percent} % to either side")
            }
        }
    }

    fn limits_in_words(&self, attempts: &[AttemptWindow]) -> String {
        let deadline = self.give_up_after.about();
        if attempts.len() < self.max_attempts as usize {
            format!(
                "Gives up {deadline} after the event was due, even if fewer than {} attempts were made.",
                self.max_attempts
            )
        } else {
            format!(
                "Gives up when the last attempt has failed; no retry is set for later than {deadline} \
                 after the event was due."
            )
        }
    }

    /// Describes the endpoint's own rules, and the defaults that they do not override.
    fn rules_in_words(&self) -> String {
        let mut sentences: Vec<String> = Vec::new();
        let own: Vec<String> = self.rules.iter().map(rule_in_words).collect();
        if !own.is_empty() {
            sentences.push(format!("By its own rules, {}.", joined(&own)));
        }
        let mut ambiguous: Vec<String> = Vec::new();
        for code in [404, 409, 425] {
            if self.is_default_for(answer(code)) {
                ambiguous.push(code.to_string());
            }
        }
        if self.is_default_for(Outcome::Failed(Fault::Dns)) {
            ambiguous.push("names that do not resolve".to_owned());
        }
        if !ambiguous.is_empty() {
            let (what, often) = (joined(&ambiguous), times(AMBIGUOUS_RETRIES));
            sentences.push(format!("Tries again {often} at most after {what}."));
        }
        if self.is_default_for(answer(400)) && self.is_default_for(answer(301)) {
            sentences.push("Other 4xx and all 3xx are final.".to_owned());
        }
        sentences.join(" ")
    }

    /// Returns true if no rule of the endpoint's own applies to this outcome.
    fn is_default_for(&self, outcome: Outcome) -> bool {
        match classify(outcome, &self.rules) {
            Classification::Success => true,
            Classification::Failure(failure) => match failure.row {
                Row::Status(_) | Row::Kind(_) => true,
                Row::Rule(_) => false,
            },
        }
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

fn rule_in_words(rule: &Rule) -> String {
    let on = match rule.on {
        RuleMatch::Status(status) => format!("an answer of {}", status.code()),
        RuleMatch::Class(class) => format!("an answer of {class}xx"),
        RuleMatch::Kind(FailureKind::Http) => "any answer but 2xx".to_owned(),
        RuleMatch::Kind(FailureKind::Timeout) => "a timeout".to_owned(),
        RuleMatch::Kind(FailureKind::Dns) => "a name that does not resolve".to_owned(),
        RuleMatch::Kind(FailureKind::Tls) => "a TLS failure".to_owned(),
        RuleMatch::Kind(FailureKind::Connection) => "a failed connection".to_owned(),
        RuleMatch::Kind(FailureKind::Validation) => "a forbidden destination".to_owned(),
        RuleMatch::Kind(FailureKind::WebhookDisabled | FailureKind::Unknown) => {
            "an unknown failure".to_owned()
        }
    };
    match rule.then {
        Then::Fail | Then::Retry { limit: Some(0) } => format!("{on} is final"),
        Then::Retry { limit: None } => format!("{on} is tried again"),
        Then::Retry { limit: Some(limit) } => {
            format!("{on} is tried again {} at most", times(limit))
        }
    }
}

/// Joins a list for a sentence: `a, b and c`.
fn joined(items: &[String]) -> String {
    match items.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some((only, _)) => only.clone(),
        None => String::new(),
    }
}

fn answer(code: u16) -> Outcome {
    Outcome::Answered {
        status: HttpStatus::new(code).expect("the status code is valid"),
        retry_after: None,
    }
}

fn times(count: u32) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        0 | 3.. => format!("{count} times"),
    }
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
            "Tries at once; if that fails, tries again after about 10 s, then 30 s, then 2 min, \
             then 10 min, then 30 min, then 2 hours, then 8 hours, then 24 hours: 9 attempts over \
             about 35 hours, 42 hours at most. Each delay varies by 20 % to either side. Gives up \
             when the last attempt has failed; no retry is set for later than 3 days after the \
             event was due. Tries again 3 times at most after 404, 409, 425 and names that do not \
             resolve. Other 4xx and all 3xx are final."
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
        }))
        .unwrap()
        .explain()
        .words;
        assert!(hurried.contains("6 attempts over 5 min."), "{hurried}");
        assert!(hurried.contains("even if fewer than 50"), "{hurried}");
        assert!(
            hurried.contains(
                "By its own rules, an answer of 404 is final and a name that does not resolve is \
                 tried again once at most. Tries again 3 times at most after 409 and 425."
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
            "Tries once, at once, and never again."
        );
    }
}
