//! Errors of a node: in its settings, at its start, and while it runs.

use std::io;
use std::net::SocketAddr;

use posthaste_engine::vault::{MasterKeyId, VaultError};
use posthaste_store::{OpenError, StoreError};

use crate::config::ConfigError;

/// Reason why a configuration cannot be used for a node.
#[derive(Debug)]
pub enum SettingsError {
    /// Settings contradict each other.
    Config(ConfigError),
    /// The configured CA certificates cannot be used.
    Roots(String),
}

/// Reason why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The master keys are not available.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// The nodes on this store use a master key that this node was not given.
    #[error(
        "this database holds what was sealed with {}, and this node does not have it: give every node the same POSTHASTE_MASTER_KEY (or --master-key-file)",
        in_use.map_or("a master key".to_owned(), |id| format!("the master key {id}"))
    )]
    NoMasterKey {
        /// Id of that key, if it is known.
        in_use: Option<MasterKeyId>,
    },
    /// The stored secrets cannot be decrypted with the given keys.
    #[error(
        "{0}; give every node of this database the same POSTHASTE_MASTER_KEY (or --master-key-file)"
    )]
    OtherMasterKey(VaultError),
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The node cannot listen on the address.
    #[error(
        "cannot listen on {address}: {error}; choose another address with --listen, port 0 picks one"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error.
        error: io::Error,
    },
}

/// Reason why a running node can no longer work. After a restart it continues from the stored state.
#[derive(Debug, thiserror::Error)]
pub enum NodeFailure {
    /// The store can no longer guarantee what it accepted.
    #[error("{0}; nothing that was acknowledged is lost, start the server again")]
    Store(StoreError),
    /// A task has ended that must run as long as the node.
    #[error(
        "{0} has ended, which is a fault of posthaste; nothing that was acknowledged is lost, start the server again"
    )]
    Ended(&'static str),
}
