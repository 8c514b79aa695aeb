//! Runs the dispatcher: executes its commands and feeds the results back. The engine itself makes no scheduling
//! decisions.
//!
//! One task owns the dispatcher. All inputs arrive in the inbox. The commands are executed by separate tasks (attempts,
//! reads, sweeps) or by the store's writer (records), and their results arrive in the inbox again. [`Engine`] is the
//! handle for the rest of the program, [`EngineSettings`] are its settings. The engine guarantees:
//!
//! - An attempt that ends by a panic or an internal error is reported as such. It frees its slot and does not count as
//!   an attempt.
//! - Every request of the dispatcher is answered, even if the store must be asked several times.
//! - A caller is answered when its change is persisted.
//! - After [`Engine::stop_starting`] no attempt starts. [`Engine::shut_down`] returns when all attempts in flight are
//!   recorded.
//! - Nothing is sent for a shard that another node may own. Attempts start only while the lease is valid and are
//!   aborted when it ends. A shard is released when nothing of it is in flight.
//! - When the engine ends for any reason, waiting callers receive an error and do not hang.
//!
//! ```text
//!  store ─ hand-over ─▶ inbox ─▶ task  ◀─▶ dispatcher (core)
//!                         ▲        ├─▶ attempt runner: config + payload ▸ token ▸ sign ▸ egress ─▶ inbox
//!                         │        ├─▶ store.record ────────────────────────────────────────────▶ inbox
//!                         └────────┴── fetch, sweep, load
//! ```
//!
//! The public modules are what the rest of the program needs besides the engine itself:
//!
//! - [`vault`] encrypts secrets at rest; [`signing_keys`] and [`credentials`] are the secrets of an endpoint.
//! - [`owner_router`] passes API requests to the node that owns the endpoint, and answers those of other nodes.
//! - [`replayer`] runs replays, [`maintenance`] runs retention and re-encryption.
//! - [`database`] opens the store's connections to PostgreSQL through the egress crate.

mod attempt_reporter;
mod attempt_result;
mod attempt_runner;
mod concurrency_share;
mod context;
mod endpoint_cache;
mod handle;
mod inbox;
mod log_rate_limit;
mod owned_shards;
mod payload_cache;
mod pending_status_writes;
mod quarantined_deliveries;
mod redact;
mod reply;
mod request_headers;
mod response_headers;
mod task;
mod tokens;
mod waiting_callers;

pub mod credentials;
pub mod database;
pub mod maintenance;
pub mod owner_router;
pub mod replayer;
pub mod signing_keys;
pub mod tenant_keys;
pub mod vault;

#[cfg(test)]
mod tests;

pub use handle::{Engine, EnginePhase};
pub use reply::{CancelResult, EngineError};
pub use task::EngineSettings;

use http::HeaderValue;

/// `User-Agent` of every request to a receiver or token server.
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("posthaste/", env!("CARGO_PKG_VERSION")));
