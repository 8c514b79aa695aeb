//! What a node does for the others.

use std::fmt;
use std::str::FromStr;

/// What a node does for the others that share its store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It answers the API, and sends.
    #[default]
    All,
    /// It answers the API, and owns nothing.
    Api,
    /// It sends, and answers only whether it is well.
    Worker,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 3] = [Role::All, Role::Api, Role::Worker];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Role::All => "all",
            Role::Api => "api",
            Role::Worker => "worker",
        }
    }

    /// Whether it answers the API.
    pub fn answers(self) -> bool {
        match self {
            Role::All | Role::Api => true,
            Role::Worker => false,
        }
    }

    /// Whether it sends.
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

/// A text that names no role.
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
