//! Reads input from a file or standard input.

use std::fs::File;
use std::io::{self, Read};

use posthaste_charts::terminal::printable;

use super::ApiCommandError;
use crate::cli::output::STANDARD;

/// Maximum input size in bytes. Larger than what the server accepts, so that the server reports what is too large.
pub const MAX_INPUT_BYTES: u64 = 32 * 1_024 * 1_024;

/// Reads a file, or standard input for a dash.
pub fn read(path: &str) -> Result<Vec<u8>, ApiCommandError> {
    let named = match path {
        STANDARD => "standard input".to_owned(),
        path => printable(path),
    };
    let wrong = |why: &str| ApiCommandError::Input(format!("cannot read {named}: {why}"));
    let mut bytes = Vec::new();
    let taken = match path {
        STANDARD => io::stdin()
            .lock()
            .take(MAX_INPUT_BYTES + 1)
            .read_to_end(&mut bytes),
        path => {
            File::open(path).and_then(|file| file.take(MAX_INPUT_BYTES + 1).read_to_end(&mut bytes))
        }
    };
    taken.map_err(|error| wrong(&error.to_string()))?;
    if bytes.len() as u64 > MAX_INPUT_BYTES {
        return Err(wrong("it is larger than anything the server takes"));
    }
    Ok(bytes)
}

/// Reads a file, or standard input for a dash, as text.
pub fn read_file(path: &str) -> Result<String, ApiCommandError> {
    String::from_utf8(read(path)?)
        .map_err(|_| ApiCommandError::Input(format!("{} is not text in UTF-8", printable(path))))
}
