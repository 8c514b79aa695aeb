//! Errors of the demo.

use std::io;

use crate::client::ClientError;
use crate::node::{SettingsError, StartError};

/// Reason why the demo ends early.
#[derive(Debug)]
pub enum DemoError {
    /// A folder or a port is not available.
    System(io::Error),
    /// The settings of the server are invalid.
    Settings(SettingsError),
    /// The server cannot start.
    Start(StartError),
    /// A request to the server failed.
    Client(ClientError),
}

impl From<SettingsError> for DemoError {
    fn from(error: SettingsError) -> DemoError {
        DemoError::Settings(error)
    }
}

impl From<ClientError> for DemoError {
    fn from(error: ClientError) -> DemoError {
        DemoError::Client(error)
    }
}
