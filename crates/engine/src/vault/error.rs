//! Errors of the vault and of its master keys.
//!
//! [`VaultError`] says why sealed data or a key file cannot be used, and what the operator can do. No message contains
//! a key or a secret.

use std::io;
use std::path::PathBuf;

use super::key_id::{KEY_BYTES, MAX_KEYS, MasterKeyId};

/// The reason why the vault or sealed data cannot be opened. No message contains a key or a secret.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The key file cannot be read.
    #[error("cannot read the master key file {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The key file cannot be written.
    #[error("cannot write the master key file {}: {error}{}", path.display(), remedy(error))]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// Other users can read or change the key file.
    #[error(
        "the master key file {} can be read or changed by other users (its mode is {mode:03o}): run `chmod 600 {}`, and `posthaste rotate-master-key` if it may have been read",
        path.display(), path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The key file is missing, and there is data that needs it.
    #[error(
        "the master key file {} is missing, and the database contains secrets encrypted with it: restore it from a backup, pass its path with --master-key-file, or set POSTHASTE_MASTER_KEY. Without the key the secrets cannot be read",
        path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The text or file does not contain valid master keys.
    #[error("{origin}, line {line}: {flaw}")]
    Malformed {
        /// The file, or the setting that holds the text.
        origin: String,
        /// The number of the line, or of the key in the text, from 1.
        line: usize,
        /// The problem.
        flaw: Flaw,
    },
    /// Another rotation has not finished.
    #[error(
        "{} exists: another rotation is in progress or was interrupted. If none is in progress, remove that file and try again; nothing was encrypted with it",
        path.display()
    )]
    RotationUnderWay {
        /// The draft file of a rotation.
        path: PathBuf,
    },
    /// The data was sealed with a key that is missing.
    #[error("encrypted with the master key {id}, which is missing: add it after the newest key")]
    UnknownKey {
        /// The id of that key.
        id: MasterKeyId,
    },
    /// The data was not sealed by this version.
    #[error("not encrypted data, or encrypted by a newer version of posthaste")]
    NotSealed,
    /// The data was changed after it was sealed, or it was sealed for another endpoint or purpose.
    #[error("the encrypted data was changed, or belongs to another endpoint")]
    Altered,
}

/// The problem of an invalid text of master keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// No key at all.
    #[error(
        "no master key: create one of {KEY_BYTES} random bytes in base64 with `openssl rand -base64 32`"
    )]
    Empty,
    /// Too many keys.
    #[error("more than {MAX_KEYS} master keys: remove the oldest, which come last")]
    TooMany,
    /// Longer than the allowed number of keys can be.
    #[error("too long for a list of master keys")]
    TooLong,
    /// Not UTF-8 text.
    #[error("not text")]
    NotText,
    /// A line without one or two words.
    #[error(
        "each line must be `KEY-ID KEY`: eight hexadecimal digits, a space, and the key in base64"
    )]
    Form,
    /// The key is not base64, or has the wrong length.
    #[error("the key must be {KEY_BYTES} bytes in base64: 44 characters, ending with `=`")]
    Key,
    /// The id does not match the key.
    #[error(
        "the id does not match the key: one of them was changed; restore the file from a backup"
    )]
    Id,
    /// The same key twice.
    #[error("the key is listed twice: remove one of the lines")]
    Twice,
}

/// Returns advice for a file that cannot be written, if the cause is known.
fn remedy(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::NotFound {
        "; create its directory first"
    } else {
        ""
    }
}
