//! Counters of notifications and emails.
//!
//! [`NotificationCounters`] also wakes the dispatcher when there may be a new notification, so that it need not poll
//! often.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use super::metric::Metric;

/// Outcome of sending an email.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmailOutcome {
    /// The mail server accepted it.
    Sent,
    /// It will be retried.
    Later,
    /// It was refused for good, or retried for too long.
    Dropped,
    /// It was not sent, because its tenant has reached its daily limit.
    Limited,
}

impl EmailOutcome {
    const ALL: [EmailOutcome; 4] = [
        EmailOutcome::Sent,
        EmailOutcome::Later,
        EmailOutcome::Dropped,
        EmailOutcome::Limited,
    ];

    /// Returns the value of the metric's label.
    pub fn name(self) -> &'static str {
        match self {
            EmailOutcome::Sent => "sent",
            EmailOutcome::Later => "later",
            EmailOutcome::Dropped => "dropped",
            EmailOutcome::Limited => "limited",
        }
    }
}

/// Counters of this node.
#[derive(Debug, Default)]
pub struct NotificationCounters {
    waiting: AtomicU64,
    dispatched: AtomicU64,
    lost: AtomicU64,
    emails: [AtomicU64; EmailOutcome::ALL.len()],
    wake_up: Notify,
}

impl NotificationCounters {
    /// Wakes the notification dispatcher, because there may be a new notification.
    pub fn ring(&self) {
        self.wake_up.notify_one();
    }

    /// Waits until there may be a new notification.
    pub async fn woken(&self) {
        self.wake_up.notified().await;
    }

    /// Sets the number of waiting notifications.
    pub fn wait(&self, waiting: usize) {
        self.waiting.store(waiting as u64, Ordering::Relaxed);
    }

    /// Sets the number of waiting notifications to 0.
    pub fn clear_waiting(&self) {
        self.waiting.store(0, Ordering::Relaxed);
    }

    /// Counts dispatched notifications, after which none waits.
    pub fn processed(&self, count: u64) {
        self.dispatched.fetch_add(count, Ordering::Relaxed);
        self.clear_waiting();
    }

    /// Counts notifications that were dropped because too many waited.
    pub fn lost(&self, count: u64) {
        self.lost.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts an email.
    pub fn email(&self, outcome: EmailOutcome) {
        self.emails[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counters as metrics.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let emails = EmailOutcome::ALL
            .map(|it| (it.name(), self.emails[it as usize].load(Ordering::Relaxed)));
        vec![
            Metric::gauge(
                "posthaste_notices_waiting",
                "Notifications that are not dispatched yet, on the node that dispatches them; 0 on the others.",
                self.waiting.load(Ordering::Relaxed),
            ),
            Metric::counter(
                "posthaste_notices_told_total",
                "Notifications dispatched by this node.",
                self.dispatched.load(Ordering::Relaxed),
            ),
            Metric::counter(
                "posthaste_notices_lost_total",
                "Notifications that this node dropped because too many were pending.",
                self.lost.load(Ordering::Relaxed),
            ),
            Metric::counters(
                "posthaste_letters_total",
                "Emails that this node sent or tried to send, by outcome.",
                "outcome",
                emails,
            ),
        ]
    }
}
