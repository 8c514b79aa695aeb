//! Errors of a node: at its start, and while it runs.
//!
//! [`StartError`] is a failed start, with the exit code of the program. [`NodeFailure`] ends a running node; after a
//! restart it continues from the stored state.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use posthaste_charts::terminal::printable;
use posthaste_engine::vault::{MasterKeyId, VaultError};
use posthaste_store::{OpenError, StoreError};

use crate::config::ConfigError;

/// Reason why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Settings contradict each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The configured CA certificates cannot be used.
    #[error("{0}")]
    Roots(String),
    /// The master keys are not available.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// The nodes on this store use a master key that this node was not given.
    #[error(
        "this database contains data encrypted with {}, which is not configured on this node: set the same POSTHASTE_MASTER_KEY (or --master-key-file) on every node",
        in_use.map_or("a master key".to_owned(), |id| format!("the master key {id}"))
    )]
    NoMasterKey {
        /// Id of that key, if it is known.
        in_use: Option<MasterKeyId>,
    },
    /// The stored secrets cannot be decrypted with the given keys.
    #[error(
        "{0}; set the same POSTHASTE_MASTER_KEY (or --master-key-file) on every node of this database"
    )]
    OtherMasterKey(VaultError),
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The directory of the store does not exist.
    #[error(
        "the directory {} of the store does not exist: create it, or choose another store with --store",
        printable(&path.display().to_string())
    )]
    NoDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// There is no store to work on.
    #[error(
        "there is no store {}: pass the store of the server with --store",
        printable(&path.display().to_string())
    )]
    NoStore {
        /// The file.
        path: PathBuf,
    },
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

impl StartError {
    /// Returns the exit code of the program: 2 if the configuration is wrong, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            StartError::Config(_) | StartError::Roots(_) | StartError::NoStore { .. } => 2,
            StartError::Vault(_)
            | StartError::NoMasterKey { .. }
            | StartError::OtherMasterKey(_)
            | StartError::Open(_)
            | StartError::Store(_)
            | StartError::NoDirectory { .. }
            | StartError::Listen { .. } => 1,
        }
    }
}

/// Reason why a running node can no longer work. After a restart it continues from the stored state, unless it is too old.
#[derive(Debug, thiserror::Error)]
pub enum NodeFailure {
    /// The store can no longer guarantee what it accepted.
    #[error("{0}; nothing acknowledged is lost: restart the server")]
    Store(StoreError),
    /// The database needs a newer version of this program.
    #[error("{0}")]
    DatabaseTooNew(String),
    /// A task has ended that must run as long as the node.
    #[error("internal error: {0} stopped; nothing acknowledged is lost: restart the server")]
    Ended(&'static str),
}

impl From<StoreError> for NodeFailure {
    fn from(error: StoreError) -> NodeFailure {
        match error {
            StoreError::DatabaseTooNew(why) => NodeFailure::DatabaseTooNew(why),
            StoreError::Full
            | StoreError::Overloaded
            | StoreError::Unavailable(_)
            | StoreError::Unreadable(_)
            | StoreError::Closed => NodeFailure::Store(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_too_old_is_not_told_to_restart() {
        let why = "start the newer version";
        let failure = NodeFailure::from(StoreError::DatabaseTooNew(why.to_owned()));
        assert_eq!(failure.to_string(), why);
        let failure = NodeFailure::from(StoreError::Unavailable("the disk failed".to_owned()));
        assert!(failure.to_string().contains("restart the server"));
    }
}
