//! What runs beside the engine and the API, and how its end is awaited.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use tokio::task::JoinHandle;

/// Something that runs beside the engine and the API for as long as they do.
pub(super) struct Keeper {
    /// What it is called when it has ended.
    name: &'static str,
    running: JoinHandle<()>,
    ends: Ends,
}

/// What makes a keeper end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// The node stops: it brings to its end what it has begun, which must be in the store before that closes.
    WithTheNode,
    /// The store closes: whatever it has begun can be left as it is.
    WithTheStore,
}

impl Keeper {
    pub(super) fn new(name: &'static str, ends: Ends, running: JoinHandle<()>) -> Keeper {
        Keeper {
            name,
            running,
            ends,
        }
    }
}

/// Waits until those have ended that end with the node.
pub(super) async fn all_ended(keepers: Vec<Keeper>) {
    for keeper in keepers {
        if keeper.ends == Ends::WithTheNode {
            ended(keeper.running).await;
        }
    }
}

/// Waits until a task has ended. One that has ended before may have been asked already, which is done only once.
pub(super) async fn ended<T>(task: JoinHandle<T>) {
    if !task.is_finished() {
        let _ = task.await;
    }
}

/// Waits until one of them has ended, and says which.
pub(super) async fn any_ended(keepers: &mut [Keeper]) -> &'static str {
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
