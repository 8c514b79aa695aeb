//! Reads, creates and rotates the key file.
//!
//! The file is written completely or not at all, and it is on disk before anything is sealed with its keys:
//! losing it means losing every secret. Other users cannot read it.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use posthaste_system::random::random_bytes;

use super::error::{Flaw, VaultError};
use super::key_id::{MAX_KEYS, MasterKeyId};
use super::keys::{MAX_TEXT_BYTES, MasterKey, read_file_text};

/// Read and write for the owner only.
const OWNER_ONLY: u32 = 0o600;
const ROOT: u32 = 0;

/// Reads the keys of a file. Returns `None` if the file does not exist.
pub(super) fn read(path: &Path) -> Result<Option<Vec<MasterKey>>, VaultError> {
    let unreadable = |error| VaultError::Unreadable {
        path: path.to_owned(),
        error,
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let meta = file.metadata().map_err(unreadable)?;
    if is_exposed(meta.uid(), meta.mode()) {
        return Err(VaultError::Exposed {
            path: path.to_owned(),
            mode: meta.mode() & 0o777,
        });
    }
    let mut bytes = Vec::new();
    // Reads one byte more than allowed, to detect a file that is too large.
    file.take(MAX_TEXT_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    let origin = path.display().to_string();
    let text = String::from_utf8(bytes).map_err(|_| VaultError::Malformed {
        origin: origin.clone(),
        line: 1,
        flaw: Flaw::NotText,
    })?;
    read_file_text(&text, &origin).map(Some)
}

/// Returns the keys of an existing file in their text form, so that the caller can copy them elsewhere.
pub fn key_file_text(path: &Path) -> Result<String, VaultError> {
    let keys = read(path)?.ok_or_else(|| VaultError::Missing {
        path: path.to_owned(),
    })?;
    Ok(keys.iter().map(MasterKey::line).collect())
}

/// Returns true if users other than the owner can read or change a file. A file of root may be readable by
/// its group: service managers pass secrets that way to a service that does not run as root.
fn is_exposed(owner: u32, mode: u32) -> bool {
    let closed_to = if owner == ROOT { 0o037 } else { 0o077 };
    mode & closed_to != 0
}

/// Creates a file with one new key. If another process created it first, returns the keys of that file.
pub(super) fn create(path: &Path) -> Result<Vec<MasterKey>, VaultError> {
    let unwritable = |error| VaultError::Unwritable {
        path: path.to_owned(),
        error,
    };
    let key = MasterKey::fresh(&[]);
    let random = u64::from_be_bytes(random_bytes());
    let draft = beside(path, &format!(".{random:016x}"));
    let made = new_file(&draft)
        .and_then(|file| fill(file, &key.line()))
        // Unlike a rename, a link never replaces an existing file.
        .and_then(|()| fs::hard_link(&draft, path))
        .and_then(|()| sync_folder_of(path));
    let _ = fs::remove_file(&draft);
    match made {
        Ok(()) => Ok(vec![key]),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            read(path)?.ok_or_else(|| unwritable(error))
        }
        Err(error) => Err(unwritable(error)),
    }
}

/// Adds a new key before the keys of a file. The server uses it after its next start; data that was sealed
/// before can still be opened.
pub fn rotate_key_file(path: &Path) -> Result<MasterKeyId, VaultError> {
    // If the path is a symbolic link, its target is replaced, not the link.
    let path = &match path.canonicalize() {
        Ok(path) => path,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(VaultError::Missing {
                path: path.to_owned(),
            });
        }
        Err(error) => {
            return Err(VaultError::Unreadable {
                path: path.to_owned(),
                error,
            });
        }
    };
    let draft_path = beside(path, ".new");
    // The draft is created before the keys are read. It works as a lock: with two rotations at once, one
    // would overwrite the other's key.
    let draft = match new_file(&draft_path) {
        Ok(draft) => draft,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(VaultError::RotationUnderWay { path: draft_path });
        }
        Err(error) => {
            return Err(VaultError::Unwritable {
                path: path.to_owned(),
                error,
            });
        }
    };
    let rotated = rotate_by(draft, &draft_path, path);
    if rotated.is_err() {
        let _ = fs::remove_file(&draft_path);
    }
    rotated
}

/// Writes a new key and the present keys to the draft, and replaces the file with it.
fn rotate_by(draft: File, draft_path: &Path, path: &Path) -> Result<MasterKeyId, VaultError> {
    let keys = read(path)?.ok_or_else(|| VaultError::Missing {
        path: path.to_owned(),
    })?;
    if keys.len() == MAX_KEYS {
        return Err(VaultError::Malformed {
            origin: path.display().to_string(),
            line: MAX_KEYS,
            flaw: Flaw::TooMany,
        });
    }
    let fresh = MasterKey::fresh(&keys);
    let text: String = std::iter::once(&fresh)
        .chain(&keys)
        .map(MasterKey::line)
        .collect();
    fs::metadata(path)
        .and_then(|old| hand_over(&draft, &old))
        .and_then(|()| fill(draft, &text))
        .and_then(|()| fs::rename(draft_path, path))
        .and_then(|()| sync_folder_of(path))
        .map_err(|error| VaultError::Unwritable {
            path: path.to_owned(),
            error,
        })?;
    Ok(fresh.id())
}

/// Creates a file that must not exist yet.
fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(OWNER_ONLY)
        .open(path)
}

/// Writes the text and syncs it to disk.
fn fill(mut file: File, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Copies the owner and the permissions of the replaced file. Otherwise an operator who rotates as root would
/// lock the server out.
fn hand_over(file: &File, old: &Metadata) -> io::Result<()> {
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (old.uid(), old.gid()) {
        fchown(file, Some(old.uid()), Some(old.gid()))?;
    }
    file.set_permissions(Permissions::from_mode(old.mode() & 0o777))
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        Some(_) | None => Path::new("."),
    };
    File::open(folder)?.sync_all()
}

/// Returns the path with `addition` appended to its file name.
fn beside(path: &Path, addition: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(addition);
    PathBuf::from(name)
}
