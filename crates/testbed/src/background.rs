//! Threads on which receivers and proxies serve while the test itself waits for something.

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

/// Lets it run beside the test.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    runtime().spawn(task);
}

/// Waits for it, inside another runtime or outside of any.
pub(crate) fn wait<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> T {
    let (done, awaited) = mpsc::channel();
    runtime().spawn(async move {
        let _ = done.send(task.await);
    });
    awaited
        .recv()
        .expect("the testbed's own work does not fail")
}
