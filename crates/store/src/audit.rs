//! The audit: who did what.
//!
//! An entry is written before the act and completed after it, once; otherwise nothing of it ever changes. A crash in
//! between leaves an entry without an outcome, which is exactly what is known.

use posthaste_core::id::{AuditId, KeyId, TenantId, first_moment, id_of};
use posthaste_core::time::{Span, Timestamp};

/// For so long an entry is kept: a year, and a month to look back at it.
pub const AUDIT_KEPT: Span = Span::from_days(400);

/// A text of an entry is cut after so many characters.
pub const MAX_AUDIT_CHARS: usize = 500;

/// One act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its id. Entries are listed, and age, by the time in it.
    pub id: AuditId,
    /// When it was begun.
    pub at: Timestamp,
    /// Who did it, in words.
    pub actor: String,
    /// The key it was done with, if it was a stored one.
    pub actor_key: Option<KeyId>,
    /// Which way it came.
    pub via: Via,
    /// The address it came from.
    pub from: Option<String>,
    /// What was done: the name of a route.
    pub action: String,
    /// Whom it concerns, if one tenant.
    pub tenant: Option<TenantId>,
    /// What it was done to: a path.
    pub resource: String,
    /// What came of it. Nothing is known while it is under way, or if it was cut short.
    pub outcome: Option<AuditOutcome>,
}

impl AuditEntry {
    /// With texts that are no longer than they may be, and that every engine can keep.
    pub fn fitted(mut self) -> AuditEntry {
        for text in [&mut self.actor, &mut self.action, &mut self.resource] {
            fit(text);
        }
        if let Some(from) = &mut self.from {
            fit(from);
        }
        self.outcome = self.outcome.map(AuditOutcome::fitted);
        self
    }
}

/// A path that is no longer than it may be.
pub fn fitted(path: Option<String>) -> Option<String> {
    path.map(|mut path| {
        fit(&mut path);
        path
    })
}

fn fit(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(MAX_AUDIT_CHARS) {
        text.truncate(end);
    }
    if text.contains('\0') {
        *text = text.replace('\0', "\u{fffd}");
    }
}

/// Which way an act came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// Over the API.
    Api,
    /// From a page of the dashboard.
    Page,
    /// From a customer's portal.
    Portal,
    /// From the command line.
    Cli,
    /// From nobody: posthaste did it by itself.
    Posthaste,
}

/// What came of an act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditOutcome {
    /// It was done.
    Done,
    /// It was not, and this is the code of the answer.
    Refused(String),
}

impl AuditOutcome {
    /// With a code that is no longer than it may be.
    pub fn fitted(self) -> AuditOutcome {
        match self {
            AuditOutcome::Done => AuditOutcome::Done,
            AuditOutcome::Refused(mut code) => {
                fit(&mut code);
                AuditOutcome::Refused(code)
            }
        }
    }

    /// As two columns.
    pub(crate) fn columns(&self) -> (OutcomeWord, Option<&str>) {
        match self {
            AuditOutcome::Done => (OutcomeWord::Done, None),
            AuditOutcome::Refused(code) => (OutcomeWord::Refused, Some(code)),
        }
    }

    /// From two columns.
    pub(crate) fn from_columns(word: OutcomeWord, code: Option<String>) -> AuditOutcome {
        match word {
            OutcomeWord::Done => AuditOutcome::Done,
            OutcomeWord::Refused => AuditOutcome::Refused(code.unwrap_or_default()),
        }
    }
}

/// An outcome without its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutcomeWord {
    /// It was done.
    Done,
    /// It was not.
    Refused,
}

/// What came of completing an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// It is complete.
    Done,
    /// It was complete already, and stays as it was.
    Already,
    /// There is no such entry.
    NoSuchEntry,
}

/// Which entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Of whom.
    pub of: AuditOf,
    /// Begun at this time or later, by the time in the id.
    pub since: Option<Timestamp>,
    /// Begun before this time.
    pub until: Option<Timestamp>,
}

/// Whose entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AuditOf {
    /// Everybody's, and what concerns no tenant.
    #[default]
    Everybody,
    /// What concerns tenants of this id, the deleted ones too, and what came before the first of them.
    Named(TenantId),
    /// What concerns the tenant of this id that is there, and none before it.
    Tenant(TenantId),
}

impl AuditFilter {
    /// The ids among which to look: from the first, up to before the second.
    pub fn range(&self, before: Option<AuditId>) -> (u128, u128) {
        let first = |at: Timestamp| id_of(first_moment(at), 0);
        let from = self.since.map_or(0, first);
        let until = self.until.map_or(u128::MAX, first);
        (from, until.min(before.map_or(u128::MAX, |id| id.0)))
    }
}

/// Ids below this one are of entries that have been kept for long enough.
pub fn first_kept(now: Timestamp) -> u128 {
    match now.0.checked_sub(AUDIT_KEPT.as_millis()) {
        None => 0,
        Some(oldest) => id_of(first_moment(Timestamp(oldest + 1)), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_can_keep_is_made_to_fit() {
        let entry = AuditEntry {
            id: AuditId(1),
            at: Timestamp(1),
            actor: "ü".repeat(MAX_AUDIT_CHARS + 7),
            actor_key: None,
            via: Via::Api,
            from: Some("a\0b".to_owned()),
            action: "tenants.create".to_owned(),
            tenant: None,
            resource: "/v1/tenants".to_owned(),
            outcome: Some(AuditOutcome::Refused("x".repeat(MAX_AUDIT_CHARS * 2))),
        };
        let kept = entry.clone().fitted();
        assert_eq!(kept.actor, "ü".repeat(MAX_AUDIT_CHARS));
        assert_eq!(kept.from.as_deref(), Some("a\u{fffd}b"));
        assert_eq!(kept.action, entry.action);
        let cut = "x".repeat(MAX_AUDIT_CHARS);
        assert_eq!(kept.outcome, Some(AuditOutcome::Refused(cut)));
    }

    #[test]
    fn an_entry_is_kept_until_its_time_is_up() {
        let made = Timestamp(1_700_000_000_000);
        let id = id_of(first_moment(made) | 0xfff, u64::MAX);
        let over = made.after(AUDIT_KEPT);
        assert!(id >= first_kept(Timestamp(over.0 - 1)));
        assert!(id < first_kept(over));
        assert_eq!(first_kept(Timestamp(5)), 0);
    }
}
