//! Reads the settings of alerts.

use posthaste_core::alert::{AlertName, Measure};
use posthaste_core::time::{MAX_SPAN, Span};
use posthaste_core::validation::Fields;
use posthaste_notify::alerts::AlertSettings;
use posthaste_notify::alerts::settings::LONGEST_WINDOW;

use super::fields::{MAX_COUNT, read_bool, set};

/// Minimum check interval. A check costs little, but not nothing.
const SHORTEST_EVERY: Span = Span::from_secs(1);
/// Maximum check interval. With a longer one, alerts would be raised too late.
const LONGEST_EVERY: Span = Span::from_hours(1);
/// Minimum window. Stats are counted per minute.
const SHORTEST_WINDOW: Span = Span::from_mins(1);
/// Maximum time without the problem until an alert is resolved.
const LONGEST_CALM: Span = Span::from_days(1);
/// Minimum of `database_bytes`: smaller databases need no alert.
const MIN_DATABASE_BYTES: u64 = 1 << 20;
/// Maximum of `database_bytes`: 1 EiB.
const MAX_DATABASE_BYTES: u64 = 1 << 60;
/// Turns an alert off.
const OFF: &str = "off";
/// Turns an alert on that has no threshold.
const ON: &str = "on";

pub(super) fn read(settings: &mut AlertSettings, mut fields: Fields<'_, '_>) {
    set(&mut settings.enabled, read_bool(&mut fields, "enabled"));
    let every = fields.span("every", SHORTEST_EVERY, LONGEST_EVERY);
    set(&mut settings.every, every);
    let window = fields.span("window", SHORTEST_WINDOW, LONGEST_WINDOW);
    set(&mut settings.window, window);
    set(
        &mut settings.calm,
        fields.span("calm", Span::ZERO, LONGEST_CALM),
    );
    let attempts = fields.count("min_attempts", 1, MAX_COUNT);
    set(&mut settings.min_attempts, attempts);
    for name in AlertName::ALL {
        match read_threshold(&mut fields, name) {
            None => {}
            Some(Threshold::Off) => {
                settings.bounds.remove(&name);
            }
            Some(Threshold::At(limit)) => {
                settings.bounds.insert(name, name.bound().at(limit));
            }
        }
    }
    let bytes = read_bytes(&mut fields, "database_bytes");
    settings.database_bytes = bytes.or(settings.database_bytes);
    fields.finish();
}

/// The configured threshold of one alert.
enum Threshold {
    /// The alert is off.
    Off,
    /// The alert is raised at this value.
    At(f64),
}

fn read_threshold(fields: &mut Fields<'_, '_>, name: AlertName) -> Option<Threshold> {
    let (key, default) = (name.name(), name.bound().limit());
    let text = fields.value(key)?.as_str();
    if text == Some(OFF) {
        return Some(Threshold::Off);
    }
    let limit = match name.measure() {
        Measure::Event => {
            if text != Some(ON) {
                fields.wrong(key, format!("must be \"{ON}\" or \"{OFF}\""));
            }
            (text == Some(ON)).then_some(default)
        }
        Measure::Ratio => read_number(fields, key, 0.0, 1.0),
        Measure::Factor => read_number(fields, key, 1.0, 1_000.0),
        Measure::Count => read_number(fields, key, 0.0, f64::from(MAX_COUNT)),
        Measure::Seconds => {
            let span = fields.span(key, Span::from_millis(1), MAX_SPAN);
            span.map(Span::as_secs_f64)
        }
    };
    limit.map(Threshold::At)
}

fn read_number(fields: &mut Fields<'_, '_>, key: &'static str, min: f64, max: f64) -> Option<f64> {
    let number = fields.value(key)?.as_f64();
    let number = number.filter(|number| (min..=max).contains(number));
    if number.is_none() {
        let message = format!("must be a number from {min} to {max}, or \"{OFF}\"");
        fields.wrong(key, message);
    }
    number
}

fn read_bytes(fields: &mut Fields<'_, '_>, key: &'static str) -> Option<u64> {
    let bytes = fields.value(key)?.as_u64();
    let bytes = bytes.filter(|bytes| (MIN_DATABASE_BYTES..=MAX_DATABASE_BYTES).contains(bytes));
    if bytes.is_none() {
        let message =
            format!("must be a whole number from {MIN_DATABASE_BYTES} to {MAX_DATABASE_BYTES}");
        fields.wrong(key, message);
    }
    bytes
}
