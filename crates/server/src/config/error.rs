//! The errors of a configuration.

use std::fmt;

use posthaste_charts::terminal::printable;
use posthaste_core::validation::MAX_ERRORS;

/// One error: its location, and the accepted values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSetting {
    /// Its location: line and key in the file, a variable, or a flag.
    pub origin: String,
    /// The problem, and the accepted values.
    pub message: String,
}

/// All errors of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigError {
    errors: Vec<InvalidSetting>,
}

impl ConfigError {
    pub(super) fn add(&mut self, origin: impl Into<String>, message: impl Into<String>) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(InvalidSetting {
                origin: origin.into(),
                message: message.into(),
            });
        }
    }

    pub(super) fn into_result<T>(self, value: T) -> Result<T, ConfigError> {
        if self.errors.is_empty() {
            Ok(value)
        } else {
            Err(self)
        }
    }

    /// Returns the exit code of the program: 2, an error of the caller.
    pub fn exit_code(&self) -> u8 {
        2
    }

    /// Returns the errors in the order in which they were found.
    pub fn errors(&self) -> &[InvalidSetting] {
        &self.errors
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errors.len() {
            1 => f.write_str("the configuration has an error")?,
            count => write!(f, "the configuration has {count} errors")?,
        }
        for error in &self.errors {
            let (origin, message) = (printable(&error.origin), printable(&error.message));
            write!(f, "\n  {origin}: {message}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
