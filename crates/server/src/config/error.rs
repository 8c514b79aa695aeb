//! The errors of a configuration.

use std::fmt;

use posthaste_charts::terminal::printable;
use posthaste_core::mistakes::MAX_ERRORS;

/// One error: its location, and the accepted values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMistake {
    /// Its location: line and key in the file, a variable, or a flag.
    pub origin: String,
    /// The problem, and the accepted values.
    pub message: String,
}

/// All errors of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigError {
    mistakes: Vec<ConfigMistake>,
}

impl ConfigError {
    pub(super) fn add(&mut self, origin: impl Into<String>, message: impl Into<String>) {
        if self.mistakes.len() < MAX_ERRORS {
            self.mistakes.push(ConfigMistake {
                origin: origin.into(),
                message: message.into(),
            });
        }
    }

    pub(super) fn into_result<T>(self, value: T) -> Result<T, ConfigError> {
        if self.mistakes.is_empty() {
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
    pub fn mistakes(&self) -> &[ConfigMistake] {
        &self.mistakes
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mistakes.len() {
            1 => f.write_str("the configuration has a mistake")?,
            count => write!(f, "the configuration has {count} mistakes")?,
        }
        for mistake in &self.mistakes {
            let (origin, message) = (printable(&mistake.origin), printable(&mistake.message));
            write!(f, "\n  {origin}: {message}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
