//! The shell around the dispatcher: it runs the commands and decides nothing.
//!
//! [`Engine`] is the handle that the rest of the program holds.

mod handle;

pub use handle::{Cancelled, Engine, EngineError};
