//! Notifications to the operator and to the owners of endpoints.
//!
//! ```text
//!  store: notifications, failures ─▶ notification dispatcher ─┬▶ alerts
//!                                                             ├▶ audit log: changes made without a request
//!                                                             ├▶ operational events, delivered like any other
//!                                                             └▶ emails ─▶ mailer ─▶ the operator's mail server
//! ```
//!
//! [`start`] runs the tasks, [`Channels`] are the channels. The module guarantees:
//!
//! - **No loss.** A notification is written in one transaction with the change that it reports. It is removed in one
//!   transaction with the creation of its email lines.
//! - **Dispatched once.** After a crash, or with two nodes at once, a round is repeated with the same result, because
//!   keys and ids are derived from the notification's number.
//! - **Summarised.** 1,000 dead letters make one notification, and one line in one email.
//! - **No feedback.** A notification about the operational tenant, which receives the operational events, creates no
//!   operational event.

pub mod confirmations;
mod dispatcher;
mod events;
pub mod mail;
mod mailer;
mod outputs;
mod public_url;
mod settings;
#[cfg(test)]
mod tests;
mod unsent_emails;

use std::sync::Arc;

use posthaste_store::{Store, StoreError};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use dispatcher::{NotificationObserver, ObserverFuture};
pub use settings::{Audience, NotificationSettings};

use crate::shard_owner_task::run_while_shard_owner;
use confirmations::ConfirmationMailer;
use dispatcher::{NotificationDispatcher, dispatching_shard};
use mail::{MailSettings, SendEmail};
use mailer::Mailer;
use posthaste_engine::owner_router::OwnerRouter;
use posthaste_system::clock::Clock;
use posthaste_telemetry::metrics::Metrics;
use unsent_emails::UnsentEmails;

/// Channels and settings of notifications.
#[derive(Clone)]
pub struct Channels {
    /// Settings of notifications.
    pub settings: NotificationSettings,
    /// Settings of emails: recipients and intervals.
    pub mail: MailSettings,
    /// Sends emails, if there is a mail server.
    pub mailer: Option<Arc<dyn SendEmail>>,
    /// URL at which browsers reach this server, for the links in confirmation emails. Without it none are sent.
    pub base_url: Option<String>,
}

impl Channels {
    /// Returns the recipients of notifications.
    pub fn audience(&self) -> Audience {
        Audience {
            tenant: self.settings.tenant.clone(),
            operator_emails: self.mailer.is_some().then(|| self.mail.to.clone()),
            allowed_domains: self.mail.allowed_domains.clone(),
        }
    }
}

/// Dependencies of the notification tasks.
pub struct NotificationTasks {
    /// The store of notifications.
    pub store: Arc<dyn Store>,
    /// The clock.
    pub clock: Clock,
    /// Used to check whether this node dispatches notifications.
    pub owner_router: Arc<OwnerRouter>,
    /// Observer that processes every notification first.
    pub observer: Arc<dyn NotificationObserver>,
    /// Counters, and the wake-up for new notifications.
    pub metrics: Arc<Metrics>,
    /// Channels and settings.
    pub channels: Channels,
    /// Becomes true to stop the tasks.
    pub stopped: watch::Receiver<bool>,
}

/// Creates the operational tenant if it is configured and does not exist.
pub async fn prepare(
    store: &dyn Store,
    clock: &Clock,
    settings: &NotificationSettings,
) -> Result<(), StoreError> {
    match &settings.tenant {
        Some(tenant) => events::create_tenant_if_missing(store, clock, tenant).await,
        None => Ok(()),
    }
}

/// Starts the notification tasks. They run until `stopped` is true.
pub fn start(telling: NotificationTasks) -> JoinHandle<()> {
    let NotificationTasks {
        store,
        clock,
        owner_router,
        observer,
        metrics,
        channels,
        stopped,
    } = telling;
    let audience = channels.audience();
    let gather = channels.settings.gather;
    let dispatcher = NotificationDispatcher {
        store: store.clone(),
        clock: clock.clone(),
        audience,
        gather,
        observer,
        metrics: metrics.clone(),
    };
    tokio::spawn(async move {
        let shard = dispatching_shard();
        let dispatching = run_while_shard_owner(dispatcher, &owner_router, shard, stopped.clone());
        match channels.mailer {
            Some(sender) => {
                let confirmations = channels.base_url.map(|base_url| ConfirmationMailer {
                    store: store.clone(),
                    clock: clock.clone(),
                    sender: sender.clone(),
                    base_url,
                    metrics: metrics.clone(),
                });
                let mailer = Mailer {
                    store,
                    clock,
                    sender,
                    tenant_limit: channels.mail.tenant_limits.emails,
                    min_interval: channels.mail.every,
                    gather,
                    operator: channels.mail.to,
                    metrics,
                };
                let mailing = run_while_shard_owner(mailer, &owner_router, shard, stopped.clone());
                let confirming = async {
                    if let Some(confirmations) = confirmations {
                        run_while_shard_owner(confirmations, &owner_router, shard, stopped).await;
                    }
                };
                tokio::join!(dispatching, mailing, confirming);
            }
            None => {
                let unsent = UnsentEmails { store, clock };
                let dropping = run_while_shard_owner(unsent, &owner_router, shard, stopped);
                tokio::join!(dispatching, dropping);
            }
        }
    })
}
