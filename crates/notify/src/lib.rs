//! Notifications, emails and alerts.
//!
//! - [`notifications`] turns changes that the store reports (a tripped breaker, a disabled endpoint, dead letters) into
//!   operational events, audit entries and emails. Each is dispatched once, also after a crash.
//! - [`alerts`] finds problems that need attention now, raises an alert for each, and resolves it when the problem is
//!   over. One node checks for the whole cluster.
//! - [`alert_text`] describes an alert in words.
//! - [`runbook`] names the section of the operator's handbook that belongs to an alert.

pub mod alert_text;
pub mod alerts;
pub mod notifications;
pub mod runbook;
mod shard_owner_task;
#[cfg(test)]
mod testing;
