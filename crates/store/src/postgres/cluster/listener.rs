//! The listener connection, which receives `NOTIFY`.
//!
//! `NOTIFY` messages are hints: work, node RPC, changes, ownership. While they arrive, the other tasks poll rarely.
//! The listener tests this regularly: another connection sends a `NOTIFY` message, and this one must receive it. A
//! proxy that pools by transaction does not pass `NOTIFY` messages on. Then all tasks poll more often, and the log
//! says once how to configure a direct connection.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use posthaste_core::cluster::NodeNo;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::AsyncMessage;

use super::membership::Membership;
use super::membership_task::News;
use crate::StoreError;
use crate::postgres::connection::{ConnectionDriver, PgConnection, connect};
use crate::postgres::read::readers::ReadKind;
use crate::postgres::settings::PostgresSettings;
use crate::postgres::write::notify_message::{CLUSTER_CHANNEL, NotifyMessage, channel_of};

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste_store::postgres::bell";

/// Time limit for receiving the own test message.
const TEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of the test.
const TEST_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum number of unprocessed `NOTIFY` messages. Dropped ones are made up for by polling.
const MAX_UNPROCESSED: usize = 4_096;

/// Listens until the store is closed.
pub(in crate::postgres) async fn listen(
    membership: Arc<Membership>,
    settings: Rc<PostgresSettings>,
) {
    let mut failures: u32 = 0;
    let mut told_deaf = false;
    while !membership.is_closing() {
        match ListenerConnection::open(&membership, &settings).await {
            Ok(mut ear) => {
                failures = 0;
                // Polling finds everything that was notified before the connection was open.
                poll_all(&membership);
                ear.receive(&mut told_deaf).await;
            }
            Err(why) => {
                failures = failures.saturating_add(1);
                if failures == 1 {
                    tracing::warn!(target: LOG_TARGET, %why, "this node cannot listen for notices; it looks more often instead");
                }
            }
        }
        membership.set_receives_notify(false);
        let pause = settings.pauses.after(failures.max(1));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = closing(&membership) => {}
        }
    }
}

/// Waits until the store is closed.
async fn closing(membership: &Membership) {
    while !membership.is_closing() {
        membership.renamed.notified().await;
    }
}

/// Makes every task poll once.
fn poll_all(membership: &Membership) {
    membership.changed.notify_one();
    membership.work.notify_one();
    membership.post.wake();
    membership.tell(News::Rang);
}

/// One listener connection.
struct ListenerConnection<'a> {
    membership: &'a Arc<Membership>,
    link: PgConnection,
    pump: AbortHandle,
    heard: mpsc::Receiver<String>,
    me: NodeNo,
}

impl Drop for ListenerConnection<'_> {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

impl<'a> ListenerConnection<'a> {
    async fn open(
        membership: &'a Arc<Membership>,
        settings: &PostgresSettings,
    ) -> Result<ListenerConnection<'a>, String> {
        let url = settings.listen.as_ref().unwrap_or(&settings.server);
        let connected = connect(settings, url).await;
        let (link, pump) = connected.map_err(|unlinked| unlinked.to_string())?;
        let (unheard, heard) = mpsc::channel(MAX_UNPROCESSED);
        let pump = tokio::task::spawn_local(drive(pump, unheard)).abort_handle();
        let ear = ListenerConnection {
            membership,
            link,
            pump,
            heard,
            me: membership.holdings.me(),
        };
        let own = channel_of(ear.me);
        ear.run(&format!("LISTEN {CLUSTER_CHANNEL}; LISTEN {own}"))
            .await?;
        Ok(ear)
    }

    async fn run(&self, sql: &str) -> Result<(), String> {
        let ran = timeout(TEST_TIMEOUT, self.link.batch(sql)).await;
        let ran = ran.map_err(|_| "no answer in time".to_owned())?;
        ran.map_err(|fault| fault.to_string())
    }

    /// Receives `NOTIFY` messages until the connection is lost or unusable.
    async fn receive(&mut self, told_deaf: &mut bool) {
        let mut test_at = Instant::now();
        let mut deaf_at = None;
        let mut called = Arc::default();
        let mut heard_before = false;
        loop {
            if self.membership.is_closing() {
                return;
            }
            let now = Instant::now();
            if now >= test_at {
                called = self.test();
                test_at = now + TEST_INTERVAL;
                deaf_at = Some(now + TEST_TIMEOUT);
            }
            let until = deaf_at.unwrap_or(test_at);
            let membership = self.membership.clone();
            tokio::select! {
                heard = self.heard.recv() => match heard {
                    None => {
                        tracing::info!(target: LOG_TARGET, "the connection that listens for notices is lost");
                        return;
                    }
                    Some(payload) => match NotifyMessage::decode(&payload) {
                        Some(NotifyMessage::Test(node)) if node == self.me => {
                            deaf_at = None;
                            heard_before = true;
                            if *told_deaf {
                                tracing::info!(target: LOG_TARGET, "notices arrive again");
                                *told_deaf = false;
                            }
                            self.membership.set_receives_notify(true);
                        }
                        Some(notice) => self.pass_on(notice),
                        None => tracing::debug!(target: LOG_TARGET, "a notice that cannot be read"),
                    },
                },
                () = tokio::time::sleep_until(until) => {
                    if deaf_at.take().is_some() {
                        self.membership.set_receives_notify(false);
                        // If the test message could not be sent, silence means nothing.
                        if !AtomicBool::load(&called, Ordering::SeqCst) {
                            test_at = Instant::now() + TEST_TIMEOUT;
                        } else if heard_before {
                            tracing::info!(target: LOG_TARGET, "the connection that listens has fallen silent: another is opened");
                            return;
                        } else if !*told_deaf {
                            tracing::warn!(
                                target: LOG_TARGET,
                                "notices do not arrive on the connection that listens, as happens behind a proxy that pools by transaction; this node looks more often instead; set store_listen to a URL that leads to the server itself"
                            );
                            *told_deaf = true;
                        }
                    }
                }
                () = membership.renamed.notified() => {
                    if self.listen_as_new_node().await.is_err() {
                        return;
                    }
                    test_at = Instant::now();
                }
            }
        }
    }

    /// Sends a test message on another connection. The returned flag is set once it was sent.
    fn test(&self) -> Arc<AtomicBool> {
        let payload = NotifyMessage::Test(self.me).encode();
        let call = async move |link: &PgConnection| {
            link.execute("SELECT pg_notify($1, $2)", &[&CLUSTER_CHANNEL, &payload])
                .await
        };
        let called = Arc::new(AtomicBool::new(false));
        let was_called = called.clone();
        let done = Box::new(move |result: Result<u64, StoreError>| {
            was_called.store(result.is_ok(), Ordering::SeqCst);
        });
        let readers = &self.membership.shared.readers;
        readers.read(ReadKind::Quick, false, call, done);
        called
    }

    /// Listens on the channel of this node's new number.
    async fn listen_as_new_node(&mut self) -> Result<(), String> {
        let me = self.membership.holdings.me();
        if me != self.me {
            let (old, new) = (channel_of(self.me), channel_of(me));
            self.run(&format!("LISTEN {new}; UNLISTEN {old}")).await?;
            self.me = me;
        }
        Ok(())
    }

    fn pass_on(&self, notice: NotifyMessage) {
        let membership = self.membership;
        match notice {
            NotifyMessage::Changes => membership.changed.notify_one(),
            NotifyMessage::Members(node) if node == self.me => {}
            NotifyMessage::Members(_) => membership.tell(News::Rang),
            NotifyMessage::Test(_) => {}
            NotifyMessage::Work(work) => {
                for (endpoint, due) in &work {
                    membership.shared.floors.lower(*endpoint, *due);
                }
                membership.shared.orders.work(work);
            }
            NotifyMessage::UnlistedWork => membership.work.notify_one(),
            NotifyMessage::NodeRpc => membership.post.wake(),
        }
    }
}

/// Drives the connection, and passes `NOTIFY` messages on.
async fn drive(mut pump: ConnectionDriver, unheard: mpsc::Sender<String>) {
    loop {
        let message = std::future::poll_fn(|context| pump.poll_message(context)).await;
        match message {
            Some(Ok(AsyncMessage::Notification(notice))) => {
                // If the channel is full, the `NOTIFY` message is dropped, and polling makes up for it.
                let _ = unheard.try_send(notice.payload().to_owned());
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return,
        }
    }
}
