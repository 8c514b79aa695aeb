//! The shell around the dispatcher: it runs the commands and decides nothing.
//!
//! One task owns the dispatcher. Everything it has to hear of arrives in the inbox; everything it says
//! is done by tasks of their own (attempts, reads, sweeps) or by the store's writer (records), whose
//! answers arrive in the inbox again. It promises:
//!
//! - an attempt that a panic or a fault of ours ends is reported as such: its place is free again, and
//!   nothing is counted;
//! - every question of the dispatcher is answered, however often the store must be asked;
//! - whoever asked for something is answered when it is on disk;
//! - from [`Engine::calm_down`] on nothing new begins; with [`Engine::shut_down`] it ends, once what was
//!   begun is written down;
//! - nothing is sent for a shard that another node may own: it begins only while the lease holds, is cut
//!   off when the lease ends, and what is given up is given up when nothing of it is under way;
//! - however it ends, whoever asks it for something is told so and does not wait.
//!
//! ```text
//!  store ─ hand-over ─▶ inbox ─▶ shell ◀─▶ dispatcher (core)
//!                         ▲        ├─▶ courier: card + goods ▸ token ▸ sign ▸ egress ─▶ inbox
//!                         │        ├─▶ store.record ───────────────────────────▶ inbox
//!                         └────────┴── fetch, sweep, load
//! ```

mod cards;
mod chronicle;
mod complaint;
mod courier;
mod decrees;
mod echo;
mod flights;
mod handle;
mod heads;
mod holdings;
mod inbox;
mod ownership;
mod pantry;
mod room;
mod shell;
mod tokens;
mod waiting;

#[cfg(test)]
mod tests;

pub use handle::{Cancelled, Engine, EngineError, Phase};
pub use shell::EngineSettings;
