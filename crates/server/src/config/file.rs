//! Reads the configuration file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::error::ConfigError;
use super::layer::{Layer, SettingSource};
use super::toml_source::{self, Lines};

/// Maximum size of the configuration file.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Reads the file, or reports why that failed. `named_by` is the flag or variable that names the file.
pub(super) fn layer(path: &Path, named_by: &str, error: &mut ConfigError) -> Option<Layer> {
    let name = path.display().to_string();
    let text = match read(path) {
        Ok(text) => text,
        Err(failure) => {
            error.add(named_by, format!("cannot read {name}: {failure}"));
            return None;
        }
    };
    // Some editors begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    match toml_source::parse(text) {
        Ok(document) => Some(Layer {
            document,
            origin: SettingSource::File {
                name,
                lines: Lines::new(text),
            },
        }),
        Err(message) => {
            error.add(name, format!("is not valid TOML: {message}"));
            None
        }
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = File::open(path)?;
    // Reads one byte more than allowed, to detect a file that is too large.
    file.take(MAX_CONFIG_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_CONFIG_BYTES {
        let message = format!("it is larger than {} MiB", MAX_CONFIG_BYTES >> 20);
        return Err(io::Error::other(message));
    }
    Ok(text)
}
