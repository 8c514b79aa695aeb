//! Settings of notifications.
//!
//! [`NotificationSettings`] holds the configured values. [`Audience`] holds the recipients that follow from them and
//! from the email settings.

use posthaste_core::id::TenantId;
use posthaste_core::time::Span;

use super::mail::address::AllowedDomains;

/// Settings of notifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotificationSettings {
    /// The operational tenant, whose endpoints receive the operational events. Without it there are no operational
    /// events.
    pub tenant: Option<TenantId>,
    /// Time for which failed deliveries and email lines are collected before a notification is sent.
    pub gather: Span,
}

impl Default for NotificationSettings {
    fn default() -> NotificationSettings {
        NotificationSettings {
            tenant: None,
            gather: Span::from_secs(30),
        }
    }
}

/// Recipients of notifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audience {
    /// The operational tenant.
    pub tenant: Option<TenantId>,
    /// The operator's email addresses; `None` if no emails are sent at all.
    pub operator_emails: Option<Vec<String>>,
    /// Domains whose addresses get emails without a confirmation.
    pub allowed_domains: AllowedDomains,
}
