//! Everything that is wrong with a configuration.

use std::fmt;

use posthaste_core::mistakes::MAX_MISTAKES;

use crate::picture::terminal::printable;

/// One thing that is wrong: where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMistake {
    /// Where it stands: line and key of the file, a variable, or a flag.
    pub origin: String,
    /// What is wrong with it and what would be right.
    pub message: String,
}

/// Everything that is wrong with a configuration. Its exit code is 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigError {
    mistakes: Vec<ConfigMistake>,
}

impl ConfigError {
    pub(super) fn note(&mut self, origin: impl Into<String>, message: impl Into<String>) {
        if self.mistakes.len() < MAX_MISTAKES {
            self.mistakes.push(ConfigMistake {
                origin: origin.into(),
                message: message.into(),
            });
        }
    }

    pub(super) fn unless_empty<T>(self, value: T) -> Result<T, ConfigError> {
        if self.mistakes.is_empty() {
            Ok(value)
        } else {
            Err(self)
        }
    }

    /// What the program ends with: the person who started it can put it right.
    pub fn exit_code(&self) -> u8 {
        2
    }

    /// The mistakes, in the order they were found.
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
