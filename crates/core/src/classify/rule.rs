//! Classification rules of a retry policy, which are checked before the default table.
//!
//! A [`Rule`] says what to do ([`RuleAction`]: retry or fail) for the outcomes that it matches ([`RuleMatch`]: one
//! status, a class of statuses or a failure kind). Rules are read from the JSON of a retry policy and written back
//! in the same form. A policy has at most [`MAX_RULES`] of its own, besides those of its preset ([`Rules`]). No rule
//! names a success or an interim (1xx) status; the kind `http` matches interim statuses too.

use serde::{Serialize, Serializer};

use super::{FailureKind, HttpStatus, Verdict};
use crate::quoted::quoted;
use crate::validation::{Fields, whole_number};

/// Maximum number of a policy's own rules. The rules of its preset are not counted.
pub const MAX_RULES: usize = 64;

/// Maximum retry limit that a rule may set.
pub const MAX_RULE_RETRIES: u32 = 1_000;

/// The outcomes that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleMatch {
    /// One status.
    Status(HttpStatus),
    /// A class of statuses: 4 for `4xx`.
    Class(u16),
    /// A failure kind; `http` is any response other than 2xx.
    Kind(FailureKind),
}

/// The action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// Retry, at most `limit` times for this rule if a limit is set.
    Retry {
        /// Maximum number of retries of one delivery by this rule.
        limit: Option<u32>,
    },
    /// Fail at once.
    Fail,
}

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The outcomes that the rule matches.
    pub on: RuleMatch,
    /// The action.
    pub then: RuleAction,
}

/// The rules of a policy, in the order in which they are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules<'a> {
    /// The policy's own rules.
    pub own: &'a [Rule],
    /// The rules of the preset that the policy names.
    pub preset: &'a [Rule],
}

impl<'a> Rules<'a> {
    /// Returns these rules without a preset.
    pub fn own(own: &'a [Rule]) -> Rules<'a> {
        Rules { own, preset: &[] }
    }
}

impl RuleMatch {
    pub(super) fn matches(self, status: Option<HttpStatus>, kind: FailureKind) -> bool {
        match self {
            RuleMatch::Status(wanted) => status == Some(wanted),
            RuleMatch::Class(wanted) => status.is_some_and(|status| status.class() == wanted),
            RuleMatch::Kind(wanted) => kind == wanted,
        }
    }

    fn parse(text: &str) -> Option<RuleMatch> {
        if let Some(class) = text.strip_suffix("xx") {
            return Some(class)
                .filter(|class| class.len() == 1)
                .and_then(|class| class.parse().ok())
                .filter(|class| (3..=5).contains(class))
                .map(RuleMatch::Class);
        }
        if text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let code = text.parse().ok()?;
            return HttpStatus::new(code)
                .filter(|status| status.class() >= 3)
                .map(RuleMatch::Status);
        }
        FailureKind::ALL
            .into_iter()
            // No attempt has this kind: it is for the waiting deliveries of a disabled endpoint.
            .filter(|kind| *kind != FailureKind::WebhookDisabled)
            .find(|kind| kind.name() == text)
            .map(RuleMatch::Kind)
    }
}

impl RuleAction {
    pub(super) fn verdict(self) -> Verdict {
        match self {
            RuleAction::Retry { limit: None } => Verdict::Retry,
            RuleAction::Retry { limit: Some(limit) } => Verdict::RetryUpTo(limit),
            RuleAction::Fail => Verdict::Fail,
        }
    }
}

impl Rule {
    /// Reads `{"on": …, "then": …, "limit": …}` and collects every error.
    pub(crate) fn read(mut fields: Fields<'_, '_>) -> Option<Rule> {
        let on = Rule::read_on(&mut fields);
        fields.need("then");
        let limit = fields.count("limit", 0, MAX_RULE_RETRIES);
        let then = match fields.text("then") {
            Some("retry") => Some(RuleAction::Retry { limit }),
            Some("fail") => {
                if limit.is_some() {
                    fields.wrong("limit", "is allowed only with \"then\": \"retry\"");
                }
                Some(RuleAction::Fail)
            }
            Some(other) => {
                let message = format!("must be \"retry\" or \"fail\", not {}", quoted(other));
                fields.wrong("then", message);
                None
            }
            None => None,
        };
        fields.finish();
        Some(Rule {
            on: on?,
            then: then?,
        })
    }

    fn read_on(fields: &mut Fields<'_, '_>) -> Option<RuleMatch> {
        fields.need("on");
        let value = fields.value("on")?;
        // A status may also be written as a number.
        let text = match (value.as_str(), whole_number(value)) {
            (Some(text), _) => text.to_owned(),
            (None, Some(number)) => number.to_string(),
            (None, None) => String::new(),
        };
        let on = RuleMatch::parse(&text);
        if on.is_none() {
            fields.wrong(
                "on",
                "must be a status from 300 to 599, a class (3xx, 4xx, 5xx) or a failure kind \
                 (http, timeout, dns, tls, connection, validation, unknown)",
            );
        }
        on
    }
}

impl Serialize for RuleMatch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            RuleMatch::Status(status) => serializer.collect_str(&status.code()),
            RuleMatch::Class(class) => serializer.collect_str(&format_args!("{class}xx")),
            RuleMatch::Kind(kind) => serializer.serialize_str(kind.name()),
        }
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("on", &self.on)?;
        match self.then {
            RuleAction::Retry { limit } => {
                map.serialize_entry("then", "retry")?;
                if let Some(limit) = limit {
                    map.serialize_entry("limit", &limit)?;
                }
            }
            RuleAction::Fail => map.serialize_entry("then", "fail")?,
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_statuses_classes_and_kinds() {
        for (text, on) in [
            ("404", RuleMatch::Status(HttpStatus::new(404).unwrap())),
            ("599", RuleMatch::Status(HttpStatus::new(599).unwrap())),
            ("5xx", RuleMatch::Class(5)),
            ("dns", RuleMatch::Kind(FailureKind::Dns)),
            ("http", RuleMatch::Kind(FailureKind::Http)),
        ] {
            assert_eq!(RuleMatch::parse(text), Some(on), "{text}");
        }
    }

    #[test]
    fn rules_for_success_and_interim_statuses_are_refused() {
        for text in [
            "200",
            "2xx",
            "100",
            "1xx",
            "600",
            "0404",
            "4xxx",
            "xx",
            "",
            "webhook_disabled",
        ] {
            assert_eq!(RuleMatch::parse(text), None, "{text}");
        }
    }
}
