//! Reads input from a file or standard input, up to a maximum size.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use posthaste_charts::terminal::printable;

use super::error::CommandError;

/// The path that stands for standard input or output.
pub const STANDARD: &str = "-";

/// Maximum input size in bytes. Larger than what the server accepts, so that the server reports what is too large.
const MAX_INPUT_BYTES: u64 = 32 * 1_024 * 1_024;

/// Returns the name of a path for messages.
pub fn name(path: &Path) -> String {
    match path == Path::new(STANDARD) {
        true => "standard input".to_owned(),
        false => printable(&path.display().to_string()),
    }
}

/// Reads a file, or standard input for a dash. Reads at most one byte more than `max_bytes`, so that the caller can
/// detect an input that is too large.
pub fn read_bounded(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    match path == Path::new(STANDARD) {
        true => take_bounded(io::stdin().lock(), max_bytes),
        false => take_bounded(File::open(path)?, max_bytes),
    }
}

/// Reads from `source`, at most one byte more than `max_bytes`.
pub fn take_bounded(source: impl Read, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(max_bytes + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file, or standard input for a dash.
pub fn read(path: &str) -> Result<Vec<u8>, CommandError> {
    let path = Path::new(path);
    let unreadable =
        |reason: &str| CommandError::Input(format!("cannot read {}: {reason}", name(path)));
    let bytes = read_bounded(path, MAX_INPUT_BYTES);
    let bytes = bytes.map_err(|error| unreadable(&error.to_string()))?;
    if bytes.len() as u64 > MAX_INPUT_BYTES {
        return Err(unreadable("it is larger than the server accepts"));
    }
    Ok(bytes)
}

/// Reads a file, or standard input for a dash, as text.
pub fn read_text(path: &str) -> Result<String, CommandError> {
    String::from_utf8(read(path)?)
        .map_err(|_| CommandError::Input(format!("{} is not valid UTF-8", printable(path))))
}
