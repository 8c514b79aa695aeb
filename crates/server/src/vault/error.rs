//! Why the vault does not open.

use std::io;
use std::path::PathBuf;

use super::keys::{KEY_BYTES, MAX_KEYS, MasterKeyId};

/// Why the vault, or something in it, does not open. No message holds a key or what it seals.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The key file cannot be read.
    #[error("cannot read the master key file {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why it cannot be.
        error: io::Error,
    },
    /// The key file cannot be written.
    #[error("cannot write the master key file {}: {error}{}", path.display(), remedy(error))]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why it cannot be.
        error: io::Error,
    },
    /// Somebody else can read or change the key file.
    #[error(
        "the master key file {} can be read or changed by others (its mode is {mode:03o}): \
         run `chmod 600 {}`, and if somebody may have read it, `posthaste rotate-master-key`",
        path.display(), path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// There is no key file, and there is data that needs one.
    #[error(
        "the master key file {} is missing, and the database holds secrets sealed with it: restore it \
         from a backup, name it with --master-key-file, or give the key in POSTHASTE_MASTER_KEY. \
         Without the key the secrets cannot be read",
        path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The text or file does not hold master keys.
    #[error("{origin}, line {line}: {flaw}")]
    Malformed {
        /// The file, or where the text stands.
        origin: String,
        /// Which line, or which key of the text; the first is 1.
        line: usize,
        /// What is wrong with it.
        flaw: Flaw,
    },
    /// Another rotation has not ended.
    #[error(
        "{} exists: another rotation is under way, or was interrupted. If none is under way, \
         remove that file and try again; nothing was sealed with it",
        path.display()
    )]
    RotationUnderWay {
        /// The file that a rotation prepares.
        path: PathBuf,
    },
    /// Sealed with a key that is not there.
    #[error(
        "sealed with the master key {id}, which is not among the keys: add it after the newest one"
    )]
    UnknownKey {
        /// Which one it needs.
        id: MasterKeyId,
    },
    /// Not something this version has sealed.
    #[error("not sealed data, or sealed by a newer version of posthaste")]
    NotSealed,
    /// Changed since it was sealed, or sealed for another place.
    #[error("the sealed data were changed, or belong to another endpoint")]
    Altered,
}

/// What is wrong with a text of master keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// No key at all.
    #[error(
        "there is no master key: it should hold {KEY_BYTES} random bytes in base64, such as \
         `openssl rand -base64 32` makes"
    )]
    Empty,
    /// Too many keys.
    #[error("there are more than {MAX_KEYS} master keys: remove the oldest, which stand last")]
    TooMany,
    /// Too long to hold keys only.
    #[error("it is too long to be a list of master keys")]
    TooLong,
    /// Not text.
    #[error("it is not text")]
    NotText,
    /// Not one or two words.
    #[error(
        "a line should be `KEY-ID KEY`: eight hexadecimal digits, a blank, and the key in base64"
    )]
    Form,
    /// The key is not base64, or not of the right length.
    #[error("the key should be {KEY_BYTES} bytes in base64: 44 characters, the last of them `=`")]
    Key,
    /// The id is not the key's.
    #[error("the id does not belong to the key: one of them was changed; restore it from a backup")]
    Id,
    /// The same key again.
    #[error("the key is there twice: remove one of the lines")]
    Twice,
}

/// What to do about a file that cannot be written, where it is plain.
fn remedy(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::NotFound {
        "; make its folder first"
    } else {
        ""
    }
}
