//! Handles cluster events: passes what the shared store reports to the engine and the API.
//!
//! [`ClusterEventHandler`] receives the events of the store: granted, revoked and expired shards, new work, changes of
//! the directory, questions of other nodes. It exists before the API does, and passes nothing to it until then.

use std::sync::{Arc, OnceLock, Weak};

use posthaste_api::App;
use posthaste_core::cluster::Shard;
use posthaste_core::id::EndpointId;
use posthaste_core::time::Timestamp;
use posthaste_engine::Engine;
use posthaste_store::{Change, ClusterEvents, Done, StoreError};
use serde_json::Value;
use tokio::runtime::Handle;

/// Passes cluster events to the engine, and to the API once it exists.
pub struct ClusterEventHandler {
    engine: Engine,
    /// Runtime on which requests of other nodes are answered, because the store calls from its own thread.
    runtime: Handle,
    app: OnceLock<Weak<App>>,
}

impl ClusterEventHandler {
    /// Creates a handler that knows only the engine.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, on which requests of other nodes are answered.
    pub fn new(engine: Engine) -> ClusterEventHandler {
        ClusterEventHandler {
            engine,
            runtime: Handle::current(),
            app: OnceLock::new(),
        }
    }

    /// Sets the API.
    pub fn set_app(&self, app: &Arc<App>) {
        // A node has one API, so there is never an earlier one to replace.
        let _ = self.app.set(Arc::downgrade(app));
    }

    fn app(&self) -> Option<Arc<App>> {
        self.app.get()?.upgrade()
    }
}

impl ClusterEvents for ClusterEventHandler {
    fn granted(&self, shards: Vec<Shard>) {
        self.engine.granted(shards);
    }

    fn revoked(&self, shards: Vec<Shard>, done: Done<()>) {
        self.engine.revoked(shards, done);
    }

    fn expired(&self) {
        self.engine.expired();
    }

    fn work(&self, work: Vec<(EndpointId, Timestamp)>) {
        self.engine.work_stored_elsewhere(work);
    }

    fn changed(&self, changes: Vec<Change>) {
        if let Some(app) = self.app() {
            app.invalidate(&changes);
        }
        for change in changes {
            match change {
                Change::Tenant(tenant) => {
                    self.engine.tenant_changed(tenant.clone());
                    if let Some(app) = self.app() {
                        self.runtime
                            .spawn(async move { app.drop_counters_of_deleted(tenant).await });
                    }
                }
                Change::Endpoint(endpoint) => self.engine.changed(endpoint),
                Change::Key(_) | Change::Replay(_) => {}
            }
        }
    }

    fn missed(&self) {
        if let Some(app) = self.app() {
            app.forget_all();
        }
        self.engine.missed();
    }

    fn asked(&self, question: Value, done: Done<Value>) {
        let Some(app) = self.app() else {
            done(Err(StoreError::Unavailable(
                "this node is starting or stopping".to_owned(),
            )));
            return;
        };
        self.runtime.spawn(async move {
            let answer = app.owner_router.answer(question).await;
            done(Ok(answer));
        });
    }
}
