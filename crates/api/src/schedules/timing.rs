//! Reads the timing of a schedule, and reports all its mistakes.

use posthaste_core::schedule::{
    CronExpression, DEFAULT_ZONE, MAX_AT_TIMES, MIN_INTERVAL, ScheduleTiming, Zone,
};
use posthaste_core::time::{MAX_SPAN, Span, Timestamp};
use posthaste_core::validation::Fields;

/// The names of the fields that say when a schedule runs.
pub(super) const TIMING_FIELDS: [&str; 3] = ["cron", "every", "at"];

/// The timing fields of a request.
pub(super) enum GivenTiming {
    /// None is given.
    Absent,
    /// One is given, and valid.
    Valid(ScheduleTiming),
    /// The mistakes have been reported.
    Invalid,
}

/// Reads `cron`, `every` and `at`, of which at most one may be given. Times in the past are refused, except those in
/// `known`.
pub(super) fn read_timing(
    fields: &mut Fields<'_, '_>,
    now: Timestamp,
    known: &[Timestamp],
) -> GivenTiming {
    let given = TIMING_FIELDS.map(|name| fields.value(name).is_some());
    let named = TIMING_FIELDS.into_iter().zip(given);
    let named: Vec<&str> = named.filter(|(_, is)| *is).map(|(name, _)| name).collect();
    if let [first, rest @ ..] = named.as_slice() {
        for name in rest {
            let message =
                format!("cannot be combined with {first}; send one of cron, every and at");
            fields.wrong(name, message);
        }
    }
    let timings = [
        given[0].then(|| read_cron(fields)),
        given[1].then(|| read_every(fields)),
        given[2].then(|| read_at(fields, now, known)),
    ];
    let mut timings = timings.into_iter().flatten();
    match (timings.next(), timings.next()) {
        (None, _) => GivenTiming::Absent,
        (Some(Some(timing)), None) => GivenTiming::Valid(timing),
        (Some(_), _) => GivenTiming::Invalid,
    }
}

fn read_cron(fields: &mut Fields<'_, '_>) -> Option<ScheduleTiming> {
    let text = fields.text("cron")?;
    match CronExpression::parse(text) {
        Ok(_) => Some(ScheduleTiming::Cron(text.to_owned())),
        Err(errors) => {
            for error in errors {
                fields.wrong("cron", error.to_string());
            }
            None
        }
    }
}

fn read_every(fields: &mut Fields<'_, '_>) -> Option<ScheduleTiming> {
    let interval = fields.span("every", MIN_INTERVAL, MAX_SPAN)?;
    Some(ScheduleTiming::Every(interval))
}

fn read_at(
    fields: &mut Fields<'_, '_>,
    now: Timestamp,
    known: &[Timestamp],
) -> Option<ScheduleTiming> {
    let list = fields.list("at", MAX_AT_TIMES)?;
    if list.is_empty() {
        fields.wrong("at", "must list at least one time");
        return None;
    }
    let mut times = Vec::with_capacity(list.len());
    for (index, value) in list.iter().enumerate() {
        let name = format!("at[{index}]");
        let Some(text) = value.as_str() else {
            fields.wrong(&name, "must be a time such as \"2026-12-24T18:00:00Z\"");
            continue;
        };
        match text.parse::<Timestamp>() {
            Ok(at) if at <= now && !known.contains(&at) => {
                fields.wrong(&name, format!("is in the past; it is now {now}"));
            }
            Ok(at) => times.push(at),
            Err(error) => fields.wrong(&name, error.to_string()),
        }
    }
    if times.len() < list.len() {
        return None;
    }
    times.sort_unstable();
    times.dedup();
    Some(ScheduleTiming::At(times))
}

/// Reads `timezone`. An absent one is UTC.
pub(super) fn read_zone(fields: &mut Fields<'_, '_>) -> Option<String> {
    let Some(name) = fields.text("timezone") else {
        return Some(DEFAULT_ZONE.to_owned());
    };
    match Zone::find(name) {
        Ok(zone) => Some(zone.name().to_owned()),
        Err(error) => {
            fields.wrong("timezone", error.to_string());
            None
        }
    }
}

/// Reads a time.
pub(super) fn read_time(fields: &mut Fields<'_, '_>, name: &'static str) -> Option<Timestamp> {
    match fields.text(name)?.parse() {
        Ok(at) => Some(at),
        Err(error) => {
            fields.wrong(name, format!("{error}"));
            None
        }
    }
}

/// Returns the name of the field that has the timing.
pub(super) fn field_of(timing: &ScheduleTiming) -> &'static str {
    match timing {
        ScheduleTiming::Cron(_) => "cron",
        ScheduleTiming::Every(_) => "every",
        ScheduleTiming::At(_) => "at",
    }
}

/// Returns the message for occurrences that are closer than the limit.
pub(super) fn too_often(gap: Span, shortest: Span) -> String {
    format!(
        "runs every {gap}, and the limit shortest_schedule_interval is {shortest}; choose longer intervals, or ask the operator to change the limit"
    )
}
