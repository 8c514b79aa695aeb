//! The verdicts of a policy as a compact table: which failures are retried, how often, and which are permanent.
//!
//! [`RetryPolicy::verdicts`] asks [`classify`] for every status and every failure kind and groups equal verdicts
//! ([`VerdictGroup`]). Within each class of statuses the most frequent verdict stands for the class, and only the
//! exceptions are listed one by one. So the table is always what the classification does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::RetryPolicy;
use crate::classify::{
    Classification, FailureKind, HttpStatus, Outcome, Rules, TransportError, Verdict, classify,
};

/// The classes of statuses that are not a success.
const CLASSES: [u16; 4] = [1, 3, 4, 5];

/// The faults that stand for the failure kinds, in the order of the table.
const FAULTS: [TransportError; 6] = [
    TransportError::Timeout,
    TransportError::Dns,
    TransportError::Tls,
    TransportError::Connection,
    TransportError::Unknown,
    TransportError::UnsafeDestination,
];

/// The consequence of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureAction {
    /// The delivery is retried.
    Retry,
    /// The delivery fails at once.
    Fail,
}

/// Failures with the same consequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerdictGroup {
    /// Statuses, classes of statuses and failure kinds. A status that is listed in one group is an exception to its
    /// class in another.
    pub on: Vec<String>,
    /// The consequence.
    pub then: FailureAction,
    /// Maximum number of retries after each of these failures; `None` for all retries of the policy.
    pub limit: Option<u32>,
    /// The same as `on` in words.
    pub words: String,
}

/// The verdict of one group, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum GroupVerdict {
    Retried,
    RetriedUpTo(u32),
    Failed,
}

impl RetryPolicy {
    /// Returns the verdict on every failure, grouped: what is retried first, what is permanent last.
    pub fn verdicts(&self) -> Vec<VerdictGroup> {
        let mut groups: BTreeMap<GroupVerdict, Vec<String>> = BTreeMap::new();
        let mut with_exceptions = Vec::new();
        for class in CLASSES {
            let statuses: Vec<(u16, GroupVerdict)> = (class * 100..class * 100 + 100)
                .map(|code| (code, self.verdict_on_status(code)))
                .collect();
            let most = most_frequent(&statuses);
            let exceptions = statuses.iter().filter(|(_, verdict)| *verdict != most);
            for (code, verdict) in exceptions.clone() {
                groups.entry(*verdict).or_default().push(code.to_string());
            }
            let name = format!("{class}xx");
            if exceptions.count() > 0 {
                with_exceptions.push(name.clone());
            }
            groups.entry(most).or_default().push(name);
        }
        for fault in FAULTS {
            let verdict = self.verdict_on(Outcome::Failed(fault));
            let name = fault.kind().name().to_owned();
            groups.entry(verdict).or_default().push(name);
        }
        groups
            .into_iter()
            .map(|(verdict, on)| {
                let (then, limit) = match verdict {
                    GroupVerdict::Retried => (FailureAction::Retry, None),
                    GroupVerdict::RetriedUpTo(limit) => (FailureAction::Retry, Some(limit)),
                    GroupVerdict::Failed => (FailureAction::Fail, None),
                };
                let words: Vec<String> = on.iter().map(|it| words(it, &with_exceptions)).collect();
                VerdictGroup {
                    words: joined(&words),
                    on,
                    then,
                    limit,
                }
            })
            .collect()
    }

    fn verdict_on_status(&self, code: u16) -> GroupVerdict {
        self.verdict_on(Outcome::Answered {
            status: HttpStatus::new(code).expect("the status code is valid"),
            retry_after: None,
        })
    }

    /// Returns the verdict on an outcome. A limit that the policy's attempts never reach counts as none.
    fn verdict_on(&self, outcome: Outcome) -> GroupVerdict {
        let retries = self.max_attempts.saturating_sub(1);
        match verdict(outcome, self.rules()) {
            _ if retries == 0 => GroupVerdict::Failed,
            Verdict::Fail | Verdict::RetryUpTo(0) => GroupVerdict::Failed,
            Verdict::RetryUpTo(limit) if limit < retries => GroupVerdict::RetriedUpTo(limit),
            Verdict::RetryUpTo(_) | Verdict::Retry => GroupVerdict::Retried,
        }
    }

    /// Describes the verdicts in one sentence for each group.
    pub(super) fn verdicts_in_words(&self) -> String {
        let sentences: Vec<String> = self
            .verdicts()
            .iter()
            .map(|group| match (group.then, group.limit) {
                (FailureAction::Retry, None) => format!("Retried: {}.", group.words),
                (FailureAction::Retry, Some(limit)) => {
                    format!("Retried {} at most: {}.", times(limit), group.words)
                }
                (FailureAction::Fail, _) => format!("Permanent: {}.", group.words),
            })
            .collect();
        sentences.join(" ")
    }
}

impl VerdictGroup {
    /// Returns how often a delivery is retried after one of these failures, under a policy with this many attempts.
    pub fn retries_in_words(&self, max_attempts: u32) -> String {
        match (self.then, self.limit) {
            (FailureAction::Fail, _) => "fails immediately".to_owned(),
            (FailureAction::Retry, Some(limit)) => format!("retried at most {}", times(limit)),
            (FailureAction::Retry, None) => {
                format!("retried up to {}", times(max_attempts.saturating_sub(1)))
            }
        }
    }
}

fn verdict(outcome: Outcome, rules: Rules<'_>) -> Verdict {
    match classify(outcome, rules) {
        Classification::Failure(failure) => failure.verdict,
        Classification::Success => unreachable!("the table lists failures only"),
    }
}

fn most_frequent(statuses: &[(u16, GroupVerdict)]) -> GroupVerdict {
    let mut counts: BTreeMap<GroupVerdict, usize> = BTreeMap::new();
    for (_, verdict) in statuses {
        *counts.entry(*verdict).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.expect("a class has statuses").0
}

/// Returns an entry of [`VerdictGroup::on`] in words.
fn words(on: &str, with_exceptions: &[String]) -> String {
    if with_exceptions.iter().any(|class| class == on) {
        return format!("other {on}");
    }
    let kind = FailureKind::ALL.into_iter().find(|kind| kind.name() == on);
    let words = match kind {
        None | Some(FailureKind::Http | FailureKind::WebhookDisabled) => on,
        Some(FailureKind::Timeout) => "timeouts",
        Some(FailureKind::Dns) => "DNS errors",
        Some(FailureKind::Tls) => "TLS errors",
        Some(FailureKind::Connection) => "connection errors",
        Some(FailureKind::Unknown) => "unknown errors",
        Some(FailureKind::Validation) => "destinations that are not allowed",
    };
    words.to_owned()
}

/// Joins a list for a sentence: `a, b and c`.
fn joined(items: &[String]) -> String {
    match items.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        Some((only, _)) => only.clone(),
        None => String::new(),
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

    const RETRY: Verdict = Verdict::Retry;
    const FAIL: Verdict = Verdict::Fail;
    const THREE: Verdict = Verdict::RetryUpTo(3);

    /// The verdict of the preset's document on each status, written a second time.
    fn documented(preset: Preset, code: u16) -> Verdict {
        match (preset, code) {
            // Interim answers and errors of the receiver, by all documents.
            (_, 100..=199 | 408 | 429 | 500..=599) => RETRY,
            (Preset::Swift, _) => RETRY,
            (Preset::Steady, 400 | 401 | 403 | 410 | 422) => FAIL,
            (Preset::Steady, _) => RETRY,
            (_, 300..=399) => FAIL,
            (Preset::Patient, 409) => RETRY,
            (Preset::Patient, _) => FAIL,
            (Preset::Brisk, 404) => FAIL,
            (_, 404 | 409 | 425) => THREE,
            (_, _) => FAIL,
        }
    }

    #[test]
    fn every_status_has_the_verdict_of_the_presets_document() {
        for preset in Preset::ALL {
            let policy = preset.policy();
            for code in (100..=599).filter(|code| !(200..300).contains(code)) {
                let outcome = Outcome::Answered {
                    status: HttpStatus::new(code).unwrap(),
                    retry_after: None,
                };
                let Classification::Failure(failure) = classify(outcome, policy.rules()) else {
                    panic!("{code} was classified as a success");
                };
                let expected = documented(preset, code);
                assert_eq!(failure.verdict, expected, "{preset:?} {code}");
                // An endpoint is gone only if its receiver's answer ends the delivery.
                let gone = code == 410 && expected == FAIL;
                assert_eq!(failure.gone, gone, "{preset:?} {code}");
            }
            for code in 200..300 {
                let outcome = Outcome::Answered {
                    status: HttpStatus::new(code).unwrap(),
                    retry_after: None,
                };
                assert_eq!(classify(outcome, policy.rules()), Classification::Success);
            }
        }
    }

    #[test]
    fn every_failure_kind_has_the_verdict_of_the_presets_document() {
        for preset in Preset::ALL {
            for fault in TransportError::ALL {
                let expected = match (preset, fault) {
                    (_, TransportError::UnsafeDestination) => FAIL,
                    (Preset::Brisk, TransportError::Dns) => THREE,
                    (_, _) => RETRY,
                };
                let policy = preset.policy();
                let found = verdict(Outcome::Failed(fault), policy.rules());
                assert_eq!(found, expected, "{preset:?} {fault:?}");
            }
            let stale = verdict(Outcome::StaleToken, preset.policy().rules());
            assert_eq!(stale, THREE, "{preset:?}");
        }
    }

    #[test]
    fn the_table_contains_every_failure_once() {
        for preset in Preset::ALL {
            let policy = preset.policy();
            let groups = policy.verdicts();
            let group_of = |name: &str| -> Vec<&VerdictGroup> {
                let named = |group: &&VerdictGroup| group.on.iter().any(|on| on == name);
                groups.iter().filter(named).collect()
            };
            for code in (100..=599).filter(|code| !(200..300).contains(code)) {
                let mut found = group_of(&code.to_string());
                if found.is_empty() {
                    found = group_of(&format!("{}xx", code / 100));
                }
                let [group] = found[..] else {
                    panic!("{preset:?} lists {code} {} times", found.len());
                };
                let expected = match documented(preset, code) {
                    Verdict::Retry => (FailureAction::Retry, None),
                    Verdict::RetryUpTo(limit) => (FailureAction::Retry, Some(limit)),
                    Verdict::Fail => (FailureAction::Fail, None),
                };
                assert_eq!((group.then, group.limit), expected, "{preset:?} {code}");
            }
            for fault in FAULTS {
                assert_eq!(group_of(fault.kind().name()).len(), 1, "{preset:?}");
            }
        }
    }

    #[test]
    fn verdicts_of_the_presets_in_words() {
        let words = |preset: Preset| preset.policy().verdicts_in_words();
        assert_eq!(
            words(Preset::Recommended),
            "Retried: 1xx, 408, 429, 5xx, timeouts, DNS errors, TLS errors, connection errors \
             and unknown errors. Retried 3 times at most: 404, 409 and 425. Permanent: 3xx, other \
             4xx and destinations that are not allowed."
        );
        assert_eq!(
            words(Preset::Patient),
            "Retried: 1xx, 408, 409, 429, 5xx, timeouts, DNS errors, TLS errors, connection \
             errors and unknown errors. Permanent: 3xx, other 4xx and destinations that are not allowed."
        );
        assert_eq!(
            words(Preset::Swift),
            "Retried: 1xx, 3xx, 4xx, 5xx, timeouts, DNS errors, TLS errors, connection errors \
             and unknown errors. Permanent: destinations that are not allowed."
        );
        assert_eq!(
            words(Preset::Steady),
            "Retried: 1xx, 3xx, other 4xx, 5xx, timeouts, DNS errors, TLS errors, connection \
             errors and unknown errors. Permanent: 400, 401, 403, 410, 422 and \
             destinations that are not allowed."
        );
        assert_eq!(
            words(Preset::Brisk),
            "Retried: 1xx, 408, 429, 5xx, timeouts, TLS errors, connection errors and unknown \
             errors. Retried 3 times at most: 409, 425 and DNS errors. Permanent: 3xx, other 4xx \
             and destinations that are not allowed."
        );
    }

    #[test]
    fn limits_that_the_attempts_never_reach_are_not_listed() {
        let policy = |attempts: u32| {
            let document = json!({"preset": "brisk", "max_attempts": attempts});
            RetryPolicy::from_json(&document).expect("the policy is valid")
        };
        let limits = |attempts| -> Vec<Option<u32>> {
            let groups = policy(attempts).verdicts();
            groups.iter().map(|group| group.limit).collect()
        };
        assert_eq!(limits(5), [None, Some(3), None]);
        assert_eq!(limits(4), [None, None]);
        let once = policy(1).verdicts();
        assert_eq!(once.len(), 1);
        assert_eq!(once[0].then, FailureAction::Fail);
    }
}
