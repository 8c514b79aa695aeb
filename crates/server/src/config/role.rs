//! The role of a node in a cluster.

use std::fmt;
use std::str::FromStr;

/// The role of a node among the nodes that share its store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Serves the API and sends deliveries.
    #[default]
    All,
    /// Serves the API and owns no shards.
    Api,
    /// Sends deliveries, and serves only health checks and metrics.
    Worker,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 3] = [Role::All, Role::Api, Role::Worker];

    /// Returns the name of the role.
    pub fn name(self) -> &'static str {
        match self {
            Role::All => "all",
            Role::Api => "api",
            Role::Worker => "worker",
        }
    }

    /// Returns true if the node serves the API.
    pub fn answers(self) -> bool {
        match self {
            Role::All | Role::Api => true,
            Role::Worker => false,
        }
    }

    /// Returns true if the node sends deliveries.
    pub fn sends(self) -> bool {
        match self {
            Role::All | Role::Worker => true,
            Role::Api => false,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is not the name of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be \"all\", \"api\" or \"worker\"")]
pub struct UnknownRole;

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Role, UnknownRole> {
        let named = |role: &Role| role.name() == text;
        Role::ALL.into_iter().find(named).ok_or(UnknownRole)
    }
}
