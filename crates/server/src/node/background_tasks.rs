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
    stops_with: StopsWith,
}

/// Event that ends a background task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopsWith {
    /// The task stops with the node. It completes what it has started, which must be in the store before the store closes.
    Node,
    /// The task runs until the store closes. It can be interrupted at any time.
    Store,
}

impl BackgroundTask {
    pub(super) fn new(
        name: &'static str,
        stops_with: StopsWith,
        running: JoinHandle<()>,
    ) -> BackgroundTask {
        BackgroundTask {
            name,
            running,
            stops_with,
        }
    }
}

/// Waits until all tasks have ended that end with the node.
pub(super) async fn all_ended(tasks: Vec<BackgroundTask>) {
    for task in tasks {
        if task.stops_with == StopsWith::Node {
            ended(task.running).await;
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
pub(super) async fn any_ended(tasks: &mut [BackgroundTask]) -> &'static str {
    poll_fn(|context| {
        let mut tasks = tasks.iter_mut();
        let ended = tasks.find_map(|task| match Pin::new(&mut task.running).poll(context) {
            Poll::Ready(_) => Some(task.name),
            Poll::Pending => None,
        });
        ended.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
