//! The location of the store: a SQLite file or a PostgreSQL database.
//!
//! [`StoreLocation`] is parsed from a text. A [`DatabaseUrl`] never shows its password, and no error repeats the text.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use posthaste_core::secret::Secret;
use posthaste_store::postgres::{ServerUrl, ServerUrlError};

/// The location of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreLocation {
    /// A SQLite file on this machine.
    Sqlite(PathBuf),
    /// A PostgreSQL database, which several nodes may share.
    Postgres(Box<DatabaseUrl>),
}

/// The URL of a database. Its password is never shown.
#[derive(Clone)]
pub struct DatabaseUrl {
    text: Secret,
    server: ServerUrl,
}

impl DatabaseUrl {
    /// Returns the server that the URL names.
    pub fn server(&self) -> &ServerUrl {
        &self.server
    }

    /// Returns the URL as it was written, including a password.
    pub fn reveal(&self) -> &str {
        self.text.reveal()
    }
}

impl PartialEq for DatabaseUrl {
    fn eq(&self, other: &DatabaseUrl) -> bool {
        self.text == other.text
    }
}

impl Eq for DatabaseUrl {}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.server, f)
    }
}

impl FromStr for DatabaseUrl {
    type Err = ServerUrlError;

    fn from_str(text: &str) -> Result<DatabaseUrl, ServerUrlError> {
        Ok(DatabaseUrl {
            server: text.parse()?,
            text: Secret::new(text),
        })
    }
}

impl Default for StoreLocation {
    fn default() -> StoreLocation {
        StoreLocation::Sqlite(PathBuf::from("posthaste.db"))
    }
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreLocation::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            StoreLocation::Postgres(url) => write!(f, "{url}"),
        }
    }
}

/// The reason why a text does not name a store. No message repeats the text, which may contain a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreLocationError {
    /// Neither a SQLite path nor a PostgreSQL URL.
    #[error(
        "must be \"sqlite:\" and a path, such as \"sqlite:/var/lib/posthaste/posthaste.db\", or a URL such \
         as \"postgres://user@host:5432/database\""
    )]
    Form,
    /// A SQLite path with `//`, as in a URL.
    #[error(
        "must be \"sqlite:\" and a path without \"//\", such as \"sqlite:posthaste.db\" or \
         \"sqlite:/var/lib/posthaste/posthaste.db\""
    )]
    Slashes,
    /// A SQLite database in memory, which would not survive the process.
    #[error(
        "cannot be in memory, because accepted events must outlive the process. Use a file, such as \"sqlite:posthaste.db\""
    )]
    Memory,
    /// An invalid PostgreSQL URL.
    #[error(transparent)]
    Postgres(#[from] ServerUrlError),
}

impl FromStr for StoreLocation {
    type Err = StoreLocationError;

    fn from_str(text: &str) -> Result<StoreLocation, StoreLocationError> {
        let is_postgres = ["postgres:", "postgresql:"]
            .iter()
            .any(|scheme| text.starts_with(scheme));
        if is_postgres {
            return Ok(StoreLocation::Postgres(Box::new(text.parse()?)));
        }
        match text.strip_prefix("sqlite:") {
            None | Some("") => Err(StoreLocationError::Form),
            Some(":memory:") => Err(StoreLocationError::Memory),
            Some(path) if path.starts_with("//") => Err(StoreLocationError::Slashes),
            // A path that ends with a slash is a directory. A path cannot contain a zero byte.
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
        ] {
            assert_eq!(text.parse::<StoreLocation>(), Err(error), "{text}");
        }
        for text in [
            "postgres://u:hunter2@db:port/x",
            "postgres://u:hunter2@db/x?sslmode=perhaps",
            "postgres://u:hunter2@db/x?application=hooks",
            "postgresql:hunter2",
        ] {
            let error = text.parse::<StoreLocation>().expect_err(text).to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_database_is_named_by_its_url_and_shown_without_its_password() {
        for scheme in ["postgres", "postgresql"] {
            let text = format!("{scheme}://u:hunter2@db.example/hooks");
            let location: StoreLocation = text.parse().expect("a URL");
            assert_eq!(location.to_string(), "postgres://u@db.example:5432/hooks");
            assert!(!format!("{location:?}").contains("hunter2"));
            assert_eq!(text.parse(), Ok(location));
        }
    }
}
