//! What people are told without asking.
//!
//! ```text
//!  the store: notices, failures ─▶ herald ─┬▶ alerts hear them
//!                                          ├▶ the audit: what posthaste did by itself
//!                                          ├▶ operational events, delivered like any other
//!                                          └▶ letters ─▶ postman ─▶ the operator's mail server
//! ```
//!
//! It promises:
//!
//! - **Nothing is lost.** A notice is written in one transaction with what it tells of, and let go in one with the
//!   letters that come of it.
//! - **Once.** A crash, or a second node, repeats a round with the same result: keys and ids follow from the notice's
//!   number.
//! - **Summed up.** A thousand dead letters make one notice, and one line of one letter.
//! - **Never about itself.** What concerns the tenant that gets the operational events makes none.

mod decide;
mod events;
mod figures;
mod herald;
mod letters;
pub mod mail;
mod place;
mod settings;
#[cfg(test)]
mod tests;
mod unposted;

use std::sync::Arc;

use posthaste_store::{Store, StoreError};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use figures::NoticeFigures;
pub use herald::{Hearing, Hears, Nobody};
pub use settings::{Audience, NoticeSettings};

use crate::clock::Clock;
use crate::observe::Observatory;
use crate::switchboard::Switchboard;
use herald::Herald;
use letters::Postman;
use mail::{MailSettings, Post};
use unposted::Unposted;

/// By what means people are told.
#[derive(Clone)]
pub struct Means {
    /// What the operator decided about notices.
    pub settings: NoticeSettings,
    /// Who gets letters, and how often.
    pub mail: MailSettings,
    /// Takes letters, if there is a mail server.
    pub post: Option<Arc<dyn Post>>,
}

impl Means {
    /// Who is told.
    pub fn audience(&self) -> Audience {
        Audience {
            tenant: self.settings.tenant.clone(),
            letters: self.post.is_some().then(|| self.mail.to.clone()),
        }
    }
}

/// What telling needs.
pub struct Telling {
    /// Where notices are kept.
    pub store: Arc<dyn Store>,
    /// What time it is.
    pub clock: Clock,
    /// Says whether this node is the one to tell.
    pub switchboard: Arc<Switchboard>,
    /// Hears every notice first.
    pub hears: Arc<dyn Hears>,
    /// Counts, and rings when there may be something to tell.
    pub observe: Arc<Observatory>,
    /// How.
    pub means: Means,
    /// Ends it.
    pub stopped: watch::Receiver<bool>,
}

/// The tenant that gets operational events is there.
pub async fn prepare(
    store: &dyn Store,
    clock: &Clock,
    settings: &NoticeSettings,
) -> Result<(), StoreError> {
    match &settings.tenant {
        Some(tenant) => events::make_tenant(store, clock, tenant).await,
        None => Ok(()),
    }
}

/// Begins to tell, until told to stop.
pub fn start(telling: Telling) -> JoinHandle<()> {
    let Telling {
        store,
        clock,
        switchboard,
        hears,
        observe,
        means,
        stopped,
    } = telling;
    let audience = means.audience();
    let Means {
        settings,
        mail,
        post,
    } = means;
    let herald = Herald {
        store: store.clone(),
        clock: clock.clone(),
        switchboard: switchboard.clone(),
        audience,
        gather: settings.gather,
        hears,
        observe: observe.clone(),
    };
    let telling = herald.run(stopped.clone());
    let Some(post) = post else {
        let unposted = Unposted {
            store,
            clock,
            switchboard,
        };
        return tokio::spawn(async move {
            tokio::join!(telling, unposted.run(stopped));
        });
    };
    let postman = Postman {
        store,
        clock,
        switchboard,
        post,
        every: mail.every,
        gather: settings.gather,
        operator: mail.to,
        observe,
    };
    tokio::spawn(async move {
        tokio::join!(telling, postman.run(stopped));
    })
}
