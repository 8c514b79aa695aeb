//! A runtime for receivers and proxies, on its own threads, so that they keep serving while a test blocks.

use std::future::Future;
use std::sync::OnceLock;
use std::sync::mpsc;

use tokio::runtime::{Builder, Runtime};

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("testbed")
            .enable_all()
            .build()
            .expect("threads for the testbed")
    })
}

/// Runs the task in the background.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    runtime().spawn(task);
}

/// Blocks until the task is complete. Callable from inside another runtime or from no runtime.
pub(crate) fn wait<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> T {
    let (done, awaited) = mpsc::channel();
    runtime().spawn(async move {
        let _ = done.send(task.await);
    });
    awaited.recv().expect("the background task did not end")
}
