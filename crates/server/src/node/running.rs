//! A running node and its orderly stop.
//!
//! [`Node::stop`] starts no more attempts and accepts no more requests, waits for those in progress up to the grace
//! period, then writes the last stats and closes the store. [`Node::failed`] completes if a part ends that the node
//! cannot do without.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use posthaste_engine::Engine;
use posthaste_store::{Store, StoreError};
use posthaste_telemetry::traces::Exporter;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::background_tasks::{BackgroundTask, all_ended, any_ended, ended};
use super::error::NodeFailure;

/// Log target of this module. Operators filter by it, so it stays when the module moves.
const LOG_TARGET: &str = "posthaste::node";

/// Time limit for the store to write what remains and close.
const CLOSING_TIME: Duration = Duration::from_secs(30);

/// A running node.
pub struct Node {
    pub(super) address: SocketAddr,
    /// The admin key that was created at the first start, to be shown once.
    pub(super) first_admin_key: Option<String>,
    pub(super) store: Arc<dyn Store>,
    pub(super) engine: Engine,
    /// True once the node stops.
    pub(super) stop: watch::Sender<bool>,
    pub(super) api_task: JoinHandle<io::Result<()>>,
    pub(super) engine_task: JoinHandle<Result<(), StoreError>>,
    pub(super) background_tasks: Vec<BackgroundTask>,
    /// Export to a collector, if there is one.
    pub(super) exporter: Option<Exporter>,
    /// Time to wait for attempts in flight when stopping.
    pub(super) grace: Duration,
}

impl Node {
    /// Returns the address that the node listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the admin key that was created at the first start. Can be called once; the key is stored nowhere.
    pub fn take_first_admin_key(&mut self) -> Option<String> {
        self.first_admin_key.take()
    }

    /// Waits until a part has failed that the node needs, because without it the node would accept events and send
    /// none. The process that started the node must react.
    pub async fn failed(&mut self) -> NodeFailure {
        tokio::select! {
            error = self.engine.store_broken() => error.into(),
            ended = &mut self.engine_task => match ended {
                Ok(Err(error)) => error.into(),
                Ok(Ok(())) | Err(_) => NodeFailure::Ended("the engine"),
            },
            _ = &mut self.api_task => NodeFailure::Ended("the API"),
            name = any_ended(&mut self.background_tasks) => NodeFailure::Ended(name),
        }
    }

    /// Stops the node: accepts no requests, starts no attempts, answers open requests, waits for attempts in flight and
    /// for emails, and closes the store. What is not finished within the grace period is left for the next start.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // At once, not after all requests are answered. A slow request could use up the grace period, and attempts that
        // started meanwhile would be sent again at the next start.
        self.engine.stop_starting();
        let in_flight = self.engine.in_flight_count();
        tracing::info!(target: LOG_TARGET, in_flight, "stopping");
        let drained = async {
            tokio::join!(ended(self.api_task), retire(&*self.store));
            self.engine.shut_down().await;
        };
        // If the mail server has accepted an email, that must be recorded.
        let tasks_ended = all_ended(self.background_tasks);
        let (drained, tasks_ended) = tokio::join!(
            timeout(self.grace, drained),
            timeout(self.grace, tasks_ended)
        );
        if tasks_ended.is_err() {
            tracing::warn!(target: LOG_TARGET,
                "end of the grace period: an email in progress may be sent again"
            );
        }
        if drained.is_err() {
            let in_flight = self.engine.in_flight_count();
            tracing::warn!(target: LOG_TARGET,
                in_flight,
                "end of the grace period: attempts in flight are repeated at the next start"
            );
        }
        self.engine_task.abort();
        if let Some(exporter) = self.exporter {
            exporter.close().await;
        }
        close(&*self.store).await;
    }
}

/// Leaves the cluster, so that other nodes take over at once what is not in flight here.
async fn retire(store: &dyn Store) {
    if let Some(cluster) = store.cluster()
        && let Err(error) = cluster.retire().await
    {
        tracing::warn!(target: LOG_TARGET, %error, "other nodes take over when the lease expires");
    }
}

async fn close(store: &dyn Store) {
    match timeout(CLOSING_TIME, store.close()).await {
        Ok(Ok(())) => tracing::info!(target: LOG_TARGET, "stopped"),
        Ok(Err(error)) => {
            tracing::error!(target: LOG_TARGET, %error, "the store did not close cleanly")
        }
        Err(_) => tracing::error!(target: LOG_TARGET, "the store did not close in time"),
    }
}

/// Waits until the node stops.
pub(super) async fn stop_requested(mut stopped: watch::Receiver<bool>) {
    // An error means that the node no longer exists.
    let _ = stopped.wait_for(|stopping| *stopping).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, StoreLocation};
    use crate::node::NodeSettings;
    use crate::node::background_tasks::StopsWith;

    async fn node(directory: &std::path::Path) -> Node {
        let config = Config {
            listen: "127.0.0.1:0".parse().expect("an IP address and a port"),
            store: StoreLocation::Sqlite(directory.join("posthaste.db")),
            ..Config::default()
        };
        let settings = NodeSettings::from_config(&config).expect("the configuration is valid");
        Node::start(settings).await.expect("the node starts")
    }

    #[tokio::test]
    async fn a_node_reports_that_its_engine_has_ended() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut node = node(directory.path()).await;
        node.engine_task.abort();
        let failure = node.failed().await;
        assert!(
            matches!(failure, NodeFailure::Ended("the engine")),
            "{failure}"
        );
        node.stop().await;
    }

    #[tokio::test]
    async fn a_node_reports_that_its_api_has_ended_and_closes_its_store() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut node = node(directory.path()).await;
        let store = node.store.clone();
        node.api_task.abort();
        let failure = node.failed().await;
        assert!(
            matches!(failure, NodeFailure::Ended("the API")),
            "{failure}"
        );
        node.stop().await;
        assert_eq!(
            store.last_processed_notification().await,
            Err(StoreError::Closed)
        );
    }

    #[tokio::test]
    async fn a_node_reports_that_its_store_has_failed() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut node = node(directory.path()).await;
        let failed = StoreError::Unavailable("the disk failed".to_owned());
        node.engine.hand_over().broken(&failed);
        let failure = node.failed().await;
        assert!(matches!(failure, NodeFailure::Store(_)), "{failure}");
        node.stop().await;
    }

    #[tokio::test]
    async fn a_node_closes_its_store_after_its_background_tasks() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut node = node(directory.path()).await;
        let (store, stopped) = (node.store.clone(), node.stop.subscribe());
        let (answer, answered) = tokio::sync::oneshot::channel();
        let writing = tokio::spawn(async move {
            stop_requested(stopped).await;
            // As long as a mail server may take.
            tokio::time::sleep(Duration::from_millis(300)).await;
            let _ = answer.send(store.last_processed_notification().await);
        });
        let writer = BackgroundTask::new("a writer", StopsWith::Node, writing);
        node.background_tasks.push(writer);
        node.stop().await;
        assert_eq!(answered.await, Ok(Ok(0)));
    }

    #[tokio::test]
    async fn a_stop_ends_after_the_grace_period() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut node = node(directory.path()).await;
        node.grace = Duration::from_millis(50);
        let sleeping = tokio::spawn(std::future::pending());
        let sleeper = BackgroundTask::new("a sleeper", StopsWith::Node, sleeping);
        node.background_tasks.push(sleeper);
        node.stop().await;
    }
}
