//! One posthaste process: store, vault, engine, API and background tasks.
//!
//! ```text
//!  start:  socket ▸ vault ▸ store (migrates, takes the lock) ▸ engine (reads the backlog) ▸ API
//!  stop:   API accepts no requests, engine starts no attempts ▸ requests are answered, attempts in flight
//!          are recorded ▸ stats are written ▸ store closes
//! ```
//!
//! On a shared database, [`Node`] asks for shards once it is open, and releases all of them at a stop. Each shard can
//! be granted to another node as soon as nothing of it is in flight.

mod admin_key;
mod background_tasks;
mod clock;
pub mod cluster_events;
mod error;
mod keys;
mod running;
mod settings;
mod shared_store;
mod start;

pub use admin_key::{AdminKeyReset, reset_admin_keys};
pub use error::{NodeFailure, StartError};
pub use running::Node;
pub use settings::{NodeSettings, StoreBackend};
pub use shared_store::SharedStore;
pub use start::check_directory;
