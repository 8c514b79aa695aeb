//! Filter of log lines by level.
//!
//! [`LogFilter`] is parsed from a text such as `info,posthaste::api=debug`. Libraries log only warnings unless one is
//! named, because below that they log addresses and parts of responses.

use std::fmt;
use std::str::FromStr;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// Maximum number of modules with their own level.
const MAX_PARTS: usize = 32;

/// Filter of log lines: a general level, and other levels for some modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter {
    level: LevelFilter,
    parts: Vec<(String, LevelFilter)>,
}

/// Prefix of all log targets of posthaste. No library uses it.
const OURS: &str = "posthaste";

/// Level of libraries, unless one is named: below it they log addresses and parts of responses.
const LIBRARIES: LevelFilter = LevelFilter::WARN;

impl LogFilter {
    pub(super) fn targets(&self) -> Targets {
        Targets::new()
            .with_default(self.level.min(LIBRARIES))
            .with_target(OURS, self.level)
            .with_targets(self.parts.iter().cloned())
    }
}

impl Default for LogFilter {
    fn default() -> LogFilter {
        LogFilter {
            level: LevelFilter::INFO,
            parts: Vec::new(),
        }
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.level)?;
        for (part, level) in &self.parts {
            write!(f, ",{part}={level}")?;
        }
        Ok(())
    }
}

/// Error for a text that is not a filter. The message describes the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be off, error, warn, info, debug or trace, optionally followed by levels of single targets, as in \"info,posthaste::attempt=off\""
)]
pub struct LogFilterError;

impl FromStr for LogFilter {
    type Err = LogFilterError;

    fn from_str(text: &str) -> Result<LogFilter, LogFilterError> {
        let mut words = text.split(',').map(str::trim);
        let level = level(words.next().unwrap_or_default())?;
        let parts: Vec<_> = words.map(part).collect::<Result<_, _>>()?;
        if parts.len() > MAX_PARTS {
            return Err(LogFilterError);
        }
        Ok(LogFilter { level, parts })
    }
}

fn part(text: &str) -> Result<(String, LevelFilter), LogFilterError> {
    let (name, word) = text.split_once('=').ok_or(LogFilterError)?;
    let named = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    if name.is_empty() || !name.chars().all(named) {
        return Err(LogFilterError);
    }
    Ok((name.to_owned(), level(word)?))
}

/// Parses a level. Accepts only words, because the library's parser also accepts numbers and an empty string.
fn level(word: &str) -> Result<LevelFilter, LogFilterError> {
    match word {
        "off" => Ok(LevelFilter::OFF),
        "error" => Ok(LevelFilter::ERROR),
        "warn" => Ok(LevelFilter::WARN),
        "info" => Ok(LevelFilter::INFO),
        "debug" => Ok(LevelFilter::DEBUG),
        "trace" => Ok(LevelFilter::TRACE),
        _ => Err(LogFilterError),
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_filter_is_parsed_from_its_own_text() {
        for text in [
            "off",
            "info",
            "trace",
            "warn,posthaste::attempt=info,hyper=off",
        ] {
            let filter: LogFilter = text.parse().expect(text);
            assert_eq!(filter.to_string(), text);
        }
    }

    #[test]
    fn libraries_speak_at_length_only_when_they_are_named() {
        let enabled = |text: &str, target: &str, level| {
            let filter: LogFilter = text.parse().expect(text);
            filter.targets().would_enable(target, &level)
        };
        for ours in ["posthaste::attempt", "posthaste_store::sqlite"] {
            assert!(enabled("trace", ours, Level::TRACE), "{ours}");
        }
        assert!(!enabled("trace", "h2::codec", Level::DEBUG));
        assert!(enabled("trace", "h2::codec", Level::WARN));
        assert!(!enabled("off", "h2::codec", Level::ERROR));
        assert!(enabled("info,h2=debug", "h2::codec", Level::DEBUG));
    }

    #[test]
    fn a_typing_error_is_reported() {
        for text in [
            "",
            "inof",
            "INFO",
            "3",
            "info,",
            "info,warn",
            "info,a b=off",
            "info,=off",
            "info,a=",
            "posthaste=info",
        ] {
            assert_eq!(text.parse::<LogFilter>(), Err(LogFilterError), "{text}");
        }
    }
}
