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

use super::membership::Membership;
use super::membership_task::MembershipInput;
use crate::StoreError;
use crate::postgres::connection::{PgConnection, connect, drive_with_notifications};
use crate::postgres::settings::PostgresSettings;
use crate::postgres::write::notify_message::{CLUSTER_CHANNEL, NotifyMessage, channel_of};
use crate::read_duration::ReadDuration;

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
    let mut warned = false;
    while !membership.is_closing() {
        match ListenerConnection::open(&membership, &settings).await {
            Ok(mut listener) => {
                failures = 0;
                // Polling finds everything that was notified before the connection was open.
                poll_all(&membership);
                listener.receive(&mut warned).await;
            }
            Err(why) => {
                failures = failures.saturating_add(1);
                if failures == 1 {
                    tracing::warn!(target: LOG_TARGET, %why, "cannot open the LISTEN connection; polling instead");
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
        membership.renumbered.notified().await;
    }
}

/// Makes every task poll once.
fn poll_all(membership: &Membership) {
    membership.changed.notify_one();
    membership.work.notify_one();
    membership.node_rpc.wake();
    membership.shared.schedule_changes.notify_one();
    membership.send(MembershipInput::Notified);
}

/// One listener connection.
struct ListenerConnection<'a> {
    membership: &'a Arc<Membership>,
    conn: PgConnection,
    driver: AbortHandle,
    received: mpsc::Receiver<String>,
    me: NodeNo,
}

impl Drop for ListenerConnection<'_> {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl<'a> ListenerConnection<'a> {
    async fn open(
        membership: &'a Arc<Membership>,
        settings: &PostgresSettings,
    ) -> Result<ListenerConnection<'a>, String> {
        let url = settings.listen.as_ref().unwrap_or(&settings.server);
        let connected = connect(settings, url).await;
        let (conn, driver) = connected.map_err(|not_connected| not_connected.to_string())?;
        let (sender, received) = mpsc::channel(MAX_UNPROCESSED);
        let driving = drive_with_notifications(driver, move |payload| {
            // If the channel is full, the `NOTIFY` message is dropped, and polling makes up for it.
            let _ = sender.try_send(payload.to_owned());
        });
        let driver = tokio::task::spawn_local(driving).abort_handle();
        let listener = ListenerConnection {
            membership,
            conn,
            driver,
            received,
            me: membership.owned_shards.me(),
        };
        let own = channel_of(listener.me);
        listener
            .run(&format!("LISTEN {CLUSTER_CHANNEL}; LISTEN {own}"))
            .await?;
        Ok(listener)
    }

    async fn run(&self, sql: &str) -> Result<(), String> {
        let ran = timeout(TEST_TIMEOUT, self.conn.batch(sql)).await;
        let ran = ran.map_err(|_| "no response in time".to_owned())?;
        ran.map_err(|fault| fault.to_string())
    }

    /// Receives `NOTIFY` messages until the connection is lost or unusable.
    async fn receive(&mut self, warned: &mut bool) {
        let mut test_at = Instant::now();
        let mut test_deadline = None;
        let mut test_sent = Arc::default();
        let mut was_received = false;
        loop {
            if self.membership.is_closing() {
                return;
            }
            let now = Instant::now();
            if now >= test_at {
                test_sent = self.test();
                test_at = now + TEST_INTERVAL;
                test_deadline = Some(now + TEST_TIMEOUT);
            }
            let until = test_deadline.unwrap_or(test_at);
            let membership = self.membership.clone();
            tokio::select! {
                received = self.received.recv() => match received {
                    None => {
                        tracing::info!(target: LOG_TARGET, "lost the LISTEN connection; polling until it is back");
                        return;
                    }
                    Some(payload) => match NotifyMessage::decode(&payload) {
                        Some(NotifyMessage::Test(node)) if node == self.me => {
                            test_deadline = None;
                            was_received = true;
                            if *warned {
                                tracing::info!(target: LOG_TARGET, "LISTEN connection restored");
                                *warned = false;
                            }
                            self.membership.set_receives_notify(true);
                        }
                        Some(message) => self.pass_on(message),
                        None => tracing::debug!(target: LOG_TARGET, "received an invalid notification"),
                    },
                },
                () = tokio::time::sleep_until(until) => {
                    if test_deadline.take().is_some() {
                        self.membership.set_receives_notify(false);
                        // If the test message could not be sent, silence means nothing.
                        if !AtomicBool::load(&test_sent, Ordering::SeqCst) {
                            test_at = Instant::now() + TEST_TIMEOUT;
                        } else if was_received {
                            tracing::info!(target: LOG_TARGET, "the LISTEN connection is silent; reconnecting");
                            return;
                        } else if !*warned {
                            tracing::warn!(
                                target: LOG_TARGET,
                                "no notifications arrive on the LISTEN connection, probably because of a proxy with transaction pooling; polling instead; set store_listen to a URL of the server itself"
                            );
                            *warned = true;
                        }
                    }
                }
                () = membership.renumbered.notified() => {
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
        let send_test = async move |conn: &PgConnection| {
            conn.execute("SELECT pg_notify($1, $2)", &[&CLUSTER_CHANNEL, &payload])
                .await
        };
        let test_sent = Arc::new(AtomicBool::new(false));
        let sent_flag = test_sent.clone();
        let done = Box::new(move |result: Result<u64, StoreError>| {
            sent_flag.store(result.is_ok(), Ordering::SeqCst);
        });
        let readers = &self.membership.shared.readers;
        readers.read(ReadDuration::Quick, false, send_test, done);
        test_sent
    }

    /// Listens on the channel of this node's new number.
    async fn listen_as_new_node(&mut self) -> Result<(), String> {
        let me = self.membership.owned_shards.me();
        if me != self.me {
            let (old, new) = (channel_of(self.me), channel_of(me));
            self.run(&format!("LISTEN {new}; UNLISTEN {old}")).await?;
            self.me = me;
        }
        Ok(())
    }

    fn pass_on(&self, message: NotifyMessage) {
        let membership = self.membership;
        match message {
            NotifyMessage::Changes => membership.changed.notify_one(),
            NotifyMessage::Members(node) if node == self.me => {}
            NotifyMessage::Members(_) => membership.send(MembershipInput::Notified),
            NotifyMessage::Test(_) => {}
            NotifyMessage::Work(work) => {
                for (endpoint, due) in &work {
                    membership.shared.due_watermarks.lower(*endpoint, *due);
                }
                membership.shared.cluster_events.work(work);
            }
            NotifyMessage::UnlistedWork => membership.work.notify_one(),
            NotifyMessage::NodeRpc => membership.node_rpc.wake(),
            NotifyMessage::Schedules => membership.shared.schedule_changes.notify_one(),
        }
    }
}
