//! What the operator decides about notices.

use posthaste_core::id::TenantId;
use posthaste_core::time::Span;

/// What the operator decides about notices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeSettings {
    /// Whose endpoints get the operational events. Without it there are none.
    pub tenant: Option<TenantId>,
    /// For so long deliveries that failed, and lines of a letter, are gathered before somebody is told.
    pub gather: Span,
}

impl Default for NoticeSettings {
    fn default() -> NoticeSettings {
        NoticeSettings {
            tenant: None,
            gather: Span::from_secs(30),
        }
    }
}

/// Who is told what, as the herald has to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audience {
    /// Whose endpoints get the operational events.
    pub tenant: Option<TenantId>,
    /// The operator's addresses; nothing if no letters are sent at all.
    pub letters: Option<Vec<String>>,
}
