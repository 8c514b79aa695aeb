//! What is wrong now, watched for on one node.
//!
//! Promises:
//!
//! - **Told once.** An alert and its notice are one transaction, and of one name about one scope there is one at a time.
//!   So neither a restart, nor another node, nor a round that is repeated tells anybody twice.
//! - **Nothing kept in memory that matters.** What goes on is read from the store in every round. Only since when it has
//!   been calm is remembered here; whoever begins anew waits a little longer before it says that something is over.
//! - **Out of the way.** A round reads sums and a few rows, every so many seconds, and never stops anything.
//!
//! | module | does |
//! |---|---|
//! | [`settings`] | what the operator says: how often, over which time, from where on |
//! | [`readings`] | what figures say, by name (pure) |
//! | [`watch`] | reads, has the core decide, and acts |
//! | [`hearing`] | endpoints' alerts: they follow the notices |
//! | [`room`] | how much room the store has left |
//! | [`words`] | an alert in a sentence |

pub mod hearing;
pub mod readings;
pub mod room;
pub mod settings;
pub mod watch;
pub mod words;

#[cfg(test)]
mod tests;

pub use hearing::Hearing;
pub use settings::AlertSettings;
pub use watch::Watch;
