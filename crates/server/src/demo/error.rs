//! Errors of the demo.

use std::io;

use crate::client::ClientError;
use crate::node::StartError;

/// Reason why the demo ends early.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A folder or a port is not available.
    #[error(transparent)]
    System(io::Error),
    /// The server cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A request to the server failed.
    #[error(transparent)]
    Client(#[from] ClientError),
}
