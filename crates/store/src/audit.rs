//! The audit log: the record of who changed what.
//!
//! An [`AuditEntry`] is written before the action and completed once with its [`AuditOutcome`] afterwards. It never
//! changes otherwise. A crash in between leaves an entry without an outcome: it is unknown whether the action was
//! executed.

use posthaste_core::id::{AuditId, KeyId, TenantId, first_sequence, id_of};
use posthaste_core::time::{Span, Timestamp};

use crate::{Answer, CreateResult, Page, PageRequest};

/// Retention period of an entry: a year, and a month to look back at it.
pub const AUDIT_RETENTION: Span = Span::from_days(400);

/// Maximum length of each text of an entry, in characters. Longer texts are cut.
pub const MAX_AUDIT_CHARS: usize = 500;

/// Persists the audit log.
pub trait AuditLog {
    /// Records an action before it is executed. Texts are cut to [`MAX_AUDIT_CHARS`].
    fn begin_audit(&self, now: Timestamp, entry: AuditEntry) -> Answer<CreateResult>;

    /// Records the outcome of an action, once: a complete entry does not change. `made` is the path of the resource
    /// that the action created. It replaces the path in the entry, which was that of the collection.
    fn finish_audit(
        &self,
        entry: AuditId,
        outcome: AuditOutcome,
        made: Option<String>,
    ) -> Answer<AuditCompletion>;

    /// Lists audit entries by descending id.
    fn audit(
        &self,
        filter: AuditFilter,
        page: PageRequest<AuditId>,
    ) -> Answer<Page<AuditEntry, AuditId>>;
}

/// One action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its id. The time in it determines the order of entries and their age.
    pub id: AuditId,
    /// The time at which the action started.
    pub at: Timestamp,
    /// The person or program that acted, as text.
    pub actor: String,
    /// The API key that was used, if it is in the store.
    pub actor_key: Option<KeyId>,
    /// The interface that the action came through.
    pub via: ActionInterface,
    /// The IP address of the client.
    pub from: Option<String>,
    /// The action: the name of a route.
    pub action: String,
    /// The tenant that it concerns, if it concerns one.
    pub tenant: Option<TenantId>,
    /// The path of the object that it was done to.
    pub resource: String,
    /// The outcome; `None` while the action runs, or if it was interrupted.
    pub outcome: Option<AuditOutcome>,
}

impl AuditEntry {
    /// Cuts texts to the maximum length and replaces characters that not every store can keep.
    pub fn truncated(mut self) -> AuditEntry {
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

/// Does the same for a path.
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

/// The interface that an action came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionInterface {
    /// The API.
    Api,
    /// A page of the dashboard.
    Page,
    /// A tenant's portal.
    Portal,
    /// The command line.
    Cli,
    /// None: posthaste acted automatically.
    Posthaste,
}

/// The outcome of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditOutcome {
    /// It was executed.
    Done,
    /// It was refused, with this error code.
    Refused(String),
}

impl AuditOutcome {
    /// Cuts the error code to the maximum length.
    pub fn fitted(self) -> AuditOutcome {
        match self {
            AuditOutcome::Done => AuditOutcome::Done,
            AuditOutcome::Refused(mut code) => {
                fit(&mut code);
                AuditOutcome::Refused(code)
            }
        }
    }

    /// Converts it to two columns.
    pub(crate) fn columns(&self) -> (OutcomeCode, Option<&str>) {
        match self {
            AuditOutcome::Done => (OutcomeCode::Done, None),
            AuditOutcome::Refused(code) => (OutcomeCode::Refused, Some(code)),
        }
    }

    /// Restores it from two columns.
    pub(crate) fn from_columns(word: OutcomeCode, code: Option<String>) -> AuditOutcome {
        match word {
            OutcomeCode::Done => AuditOutcome::Done,
            OutcomeCode::Refused => AuditOutcome::Refused(code.unwrap_or_default()),
        }
    }
}

/// An outcome without its error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutcomeCode {
    /// It was executed.
    Done,
    /// It was refused.
    Refused,
}

/// The result of completing an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditCompletion {
    /// It is now complete.
    Done,
    /// It was complete before and has not changed.
    Already,
    /// There is no such entry.
    NoSuchEntry,
}

/// Selects audit entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// By tenant.
    pub of: AuditScope,
    /// Started at this time or later, by the time in the id.
    pub since: Option<Timestamp>,
    /// Started before this time.
    pub until: Option<Timestamp>,
}

/// Selects audit entries by tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AuditScope {
    /// All entries, including those that concern no tenant.
    #[default]
    All,
    /// Entries about tenants with this id: the existing one, deleted ones, and actions from before the first of them.
    AnyWithId(TenantId),
    /// Only entries about the existing tenant with this id.
    Tenant(TenantId),
}

impl AuditFilter {
    /// Returns the range of ids to search: from the first inclusive to the second exclusive.
    pub fn range(&self, before: Option<AuditId>) -> (u128, u128) {
        let first = |at: Timestamp| id_of(first_sequence(at), 0);
        let from = self.since.map_or(0, first);
        let until = self.until.map_or(u128::MAX, first);
        (from, until.min(before.map_or(u128::MAX, |id| id.0)))
    }
}

/// Returns the retention limit: entries with a smaller id have expired.
pub fn first_kept(now: Timestamp) -> u128 {
    match now.0.checked_sub(AUDIT_RETENTION.as_millis()) {
        None => 0,
        Some(oldest) => id_of(first_sequence(Timestamp(oldest + 1)), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_to_fit() {
        let entry = AuditEntry {
            id: AuditId(1),
            at: Timestamp(1),
            actor: "ü".repeat(MAX_AUDIT_CHARS + 7),
            actor_key: None,
            via: ActionInterface::Api,
            from: Some("a\0b".to_owned()),
            action: "tenants.create".to_owned(),
            tenant: None,
            resource: "/v1/tenants".to_owned(),
            outcome: Some(AuditOutcome::Refused("x".repeat(MAX_AUDIT_CHARS * 2))),
        };
        let kept = entry.clone().truncated();
        assert_eq!(kept.actor, "ü".repeat(MAX_AUDIT_CHARS));
        assert_eq!(kept.from.as_deref(), Some("a\u{fffd}b"));
        assert_eq!(kept.action, entry.action);
        let cut = "x".repeat(MAX_AUDIT_CHARS);
        assert_eq!(kept.outcome, Some(AuditOutcome::Refused(cut)));
    }

    #[test]
    fn an_entry_is_kept_until_its_time_is_up() {
        let made = Timestamp(1_700_000_000_000);
        let id = id_of(first_sequence(made) | 0xfff, u64::MAX);
        let over = made.after(AUDIT_RETENTION);
        assert!(id >= first_kept(Timestamp(over.0 - 1)));
        assert!(id < first_kept(over));
        assert_eq!(first_kept(Timestamp(5)), 0);
    }
}
