//! Reads the configuration file, and finds the line of a field in it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::ConfigError;
use super::sources::{Layer, Origin};
use crate::cli::source::{json_of, toml_error};

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
    match text.parse::<toml::Table>() {
        Ok(table) => Some(Layer {
            document: json_of(toml::Value::Table(table)),
            origin: Origin::File {
                name,
                lines: Lines(text.to_owned()),
            },
        }),
        Err(failure) => {
            let message = toml_error(&failure, text);
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
        let message = format!("it has more than {} MiB", MAX_CONFIG_BYTES >> 20);
        return Err(io::Error::other(message));
    }
    Ok(text)
}

/// The text of the file, to find the line of a field.
pub(super) struct Lines(String);

impl Lines {
    /// Returns the line of the field at `path`, such as `limits.body_bytes` or `allow_network[1]`. If the
    /// field is absent, returns the line of its section.
    pub(super) fn of(&self, path: &str) -> Option<usize> {
        let document = DeTable::parse(&self.0).ok()?;
        let mut steps = path
            .split(['.', '['])
            .map(|step| step.trim_end_matches(']'));
        let (key, value) = document.get_ref().get_key_value(steps.next()?)?;
        let mut start = key.span().start;
        let mut value = value.get_ref();
        for step in steps {
            let (inner_start, inner) = match value {
                DeValue::Table(table) => match table.get_key_value(step) {
                    Some((key, inner)) => (key.span().start, inner.get_ref()),
                    None => break,
                },
                DeValue::Array(items) => {
                    let index = step.parse::<usize>().ok();
                    match index.and_then(|index| items.get(index)) {
                        Some(item) => (item.span().start, item.get_ref()),
                        None => break,
                    }
                }
                DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_) => break,
            };
            (start, value) = (inner_start, inner);
        }
        let before = self.0.get(..start)?;
        Some(before.matches('\n').count() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_line() {
        let lines = Lines(
            "listen = 'x'\n\nallow_network = [\n  '10.0.0.0/8',\n  'y',\n]\n\
             retry_policy = { preset = 'z' }\n[limits]\n# a remark\nbody_bytes = 5\n"
                .to_owned(),
        );
        for (path, line) in [
            ("listen", Some(1)),
            ("allow_network", Some(3)),
            ("allow_network[1]", Some(5)),
            ("retry_policy.preset", Some(7)),
            ("retry_policy.backoff", Some(7)),
            ("limits", Some(8)),
            ("limits.body_bytes", Some(10)),
            ("limits.connections", Some(8)),
            ("nothing", None),
        ] {
            assert_eq!(lines.of(path), line, "{path}");
        }
    }
}
