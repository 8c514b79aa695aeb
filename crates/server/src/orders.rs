//! What the shared store tells this node, passed on to whom it concerns.

use std::sync::{Arc, OnceLock, Weak};

use posthaste_core::cluster::Shard;
use posthaste_core::id::EndpointId;
use posthaste_core::time::Timestamp;
use posthaste_store::{Change, Done, Orders, StoreError};
use serde_json::Value;
use tokio::runtime::Handle;

use crate::api::App;
use crate::engine::Engine;

/// Passes on what the store tells: to the engine, and to the API once that is there.
pub struct Messenger {
    engine: Engine,
    /// What questions are answered on: the store calls from a thread of its own.
    runtime: Handle,
    app: OnceLock<Weak<App>>,
}

impl Messenger {
    /// A messenger who knows the engine only.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, on which others' questions are answered.
    pub fn new(engine: Engine) -> Messenger {
        Messenger {
            engine,
            runtime: Handle::current(),
            app: OnceLock::new(),
        }
    }

    /// The API is there.
    pub fn introduce(&self, app: &Arc<App>) {
        // There is one API to a node, so there is none to be replaced.
        let _ = self.app.set(Arc::downgrade(app));
    }

    fn app(&self) -> Option<Arc<App>> {
        self.app.get()?.upgrade()
    }
}

impl Orders for Messenger {
    fn granted(&self, shards: Vec<Shard>) {
        self.engine.granted(shards);
    }

    fn recalled(&self, shards: Vec<Shard>, done: Done<()>) {
        self.engine.recalled(shards, done);
    }

    fn expired(&self) {
        self.engine.expired();
    }

    fn work(&self, work: Vec<(EndpointId, Timestamp)>) {
        self.engine.heard_of_work(work);
    }

    fn changed(&self, changes: Vec<Change>) {
        if let Some(app) = self.app() {
            app.heard(&changes);
        }
        for change in changes {
            match change {
                Change::Tenant(tenant) => {
                    self.engine.tenant_changed(tenant.clone());
                    if let Some(app) = self.app() {
                        self.runtime
                            .spawn(async move { app.forget_figures_of(tenant).await });
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
            let answer = app.switchboard.answer(question).await;
            done(Ok(answer));
        });
    }
}
