//! Background tasks of a node, and waiting for their end.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use tokio::task::JoinHandle;

/// A task that runs beside the engine and the API for as long as they do.
pub(super) struct BackgroundTask {
    /// Name for error messages.
    name: &'static str,
    running: JoinHandle<()>,
    ends: Ends,
}

/// Event that ends a background task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// The node stops. The task completes what it has started, which must be in the store before the store closes.
    WithTheNode,
    /// The store closes. The task can be interrupted at any time.
    WithTheStore,
}

impl BackgroundTask {
    pub(super) fn new(name: &'static str, ends: Ends, running: JoinHandle<()>) -> BackgroundTask {
        BackgroundTask {
            name,
            running,
            ends,
        }
    }
}

/// Waits until all tasks have ended that end with the node.
pub(super) async fn all_ended(keepers: Vec<BackgroundTask>) {
    for keeper in keepers {
        if keeper.ends == Ends::WithTheNode {
            ended(keeper.running).await;
        }
    }
}

/// Waits until a task has ended. A finished task is skipped, because it may have been polled to its end already, which
/// is allowed only once.
pub(super) async fn ended<T>(task: JoinHandle<T>) {
    if !task.is_finished() {
        let _ = task.await;
    }
}

/// Waits until one of the tasks has ended, and returns its name.
pub(super) async fn any_ended(keepers: &mut [BackgroundTask]) -> &'static str {
    poll_fn(|context| {
        let mut keepers = keepers.iter_mut();
        let ended = keepers.find_map(|keeper| match Pin::new(&mut keeper.running).poll(context) {
            Poll::Ready(_) => Some(keeper.name),
            Poll::Pending => None,
        });
        ended.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
