//! Where events and deliveries are kept.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where events and deliveries are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreLocation {
    /// In a SQLite file on this machine.
    Sqlite(PathBuf),
}

impl Default for StoreLocation {
    fn default() -> StoreLocation {
        StoreLocation::Sqlite(PathBuf::from("posthaste.db"))
    }
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StoreLocation::Sqlite(path) = self;
        write!(f, "sqlite:{}", path.display())
    }
}

/// Why a text does not name a store. It never repeats the text, which may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreLocationError {
    /// Nothing known.
    #[error("must be \"sqlite:\" and a path, such as \"sqlite:/var/lib/posthaste/posthaste.db\"")]
    Form,
    /// Written as a URL.
    #[error(
        "must be \"sqlite:\" and a path without \"//\", such as \"sqlite:posthaste.db\" or \
         \"sqlite:/var/lib/posthaste/posthaste.db\""
    )]
    Slashes,
    /// Kept nowhere.
    #[error(
        "cannot be in memory: what was accepted must outlive the process. Name a file, such as \
         \"sqlite:posthaste.db\""
    )]
    Memory,
    /// Known, and still to come.
    #[error("PostgreSQL is not in this version: use \"sqlite:\" and a path")]
    Postgres,
}

impl FromStr for StoreLocation {
    type Err = StoreLocationError;

    fn from_str(text: &str) -> Result<StoreLocation, StoreLocationError> {
        let is_postgres = ["postgres:", "postgresql:"]
            .iter()
            .any(|scheme| text.starts_with(scheme));
        if is_postgres {
            return Err(StoreLocationError::Postgres);
        }
        match text.strip_prefix("sqlite:") {
            None | Some("") => Err(StoreLocationError::Form),
            Some(":memory:") => Err(StoreLocationError::Memory),
            Some(path) if path.starts_with("//") => Err(StoreLocationError::Slashes),
            // A path that ends so is a folder, and one with a zero byte is none.
            Some(path) if path.ends_with('/') || path.contains('\0') => {
                Err(StoreLocationError::Form)
            }
            Some(path) => Ok(StoreLocation::Sqlite(PathBuf::from(path))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_with_its_kind() {
        for path in [
            "posthaste.db",
            "./a b.db",
            "/var/lib/posthaste/x.db",
            "?mode=ro",
        ] {
            let text = format!("sqlite:{path}");
            let location: StoreLocation = text.parse().expect(path);
            assert_eq!(location, StoreLocation::Sqlite(PathBuf::from(path)));
            assert_eq!(location.to_string(), text);
        }
    }

    #[test]
    fn the_rest_is_refused_without_repeating_a_password() {
        use StoreLocationError::*;
        for (text, error) in [
            ("", Form),
            ("posthaste.db", Form),
            ("sqlite:", Form),
            ("sqlite:data/", Form),
            ("mysql://root@localhost", Form),
            ("sqlite://posthaste.db", Slashes),
            ("sqlite:///posthaste.db", Slashes),
            ("sqlite::memory:", Memory),
            ("postgres://u:hunter2@db/x", Postgres),
            ("postgresql://u:hunter2@db/x", Postgres),
        ] {
            assert_eq!(text.parse::<StoreLocation>(), Err(error), "{text}");
            assert!(!error.to_string().contains("hunter2"));
        }
    }
}
