//! Reads the body of a new schedule or of a change, and reports all its mistakes at once.

use posthaste_core::id::ScheduleId;
use posthaste_core::schedule::{
    DEFAULT_ZONE, MissedRuns, Overlap, ScheduleDefinition, ScheduleTiming, Timing,
};
use posthaste_core::time::Timestamp;
use posthaste_core::validation::Fields;
use posthaste_store::Tenant;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::target::{ReadTarget, read_target, seal};
use super::timing::{GivenTiming, field_of, read_time, read_timing, read_zone, too_often};
use crate::App;
use crate::body_fields::{self, take, take_option};
use crate::code::Code;
use crate::events::EventParser;
use crate::problem::Problem;

/// Maximum length of a name.
const MAX_NAME_CHARS: usize = 200;
/// Maximum value of `max_runs`.
const MAX_MAX_RUNS: u32 = 1_000_000_000;

/// The fields of a new schedule. A change has all but the first.
const FIELDS: &[&str] = &[
    "id",
    "name",
    "cron",
    "every",
    "at",
    "timezone",
    "event",
    "request",
    "overlap",
    "missed",
    "starts_at",
    "ends_at",
    "max_runs",
];
/// Positions of `event` and `request` in [`FIELDS`].
const EVENT: usize = 6;
const REQUEST: usize = 7;

/// A valid new schedule.
pub(super) struct NewSchedule {
    /// The id that the caller chose.
    pub(super) id: Option<ScheduleId>,
    /// Its definition. The name is empty if none was given.
    pub(super) definition: ScheduleDefinition,
}

/// The fields that are neither a target nor an id.
struct Plain {
    name: String,
    timing: Option<ScheduleTiming>,
    timezone: Option<String>,
    overlap: Overlap,
    missed: MissedRuns,
    starts_at: Option<Timestamp>,
    ends_at: Option<Timestamp>,
    max_runs: Option<u32>,
}

impl Plain {
    fn of(current: Option<&ScheduleDefinition>) -> Plain {
        match current {
            None => Plain {
                name: String::new(),
                timing: None,
                timezone: Some(DEFAULT_ZONE.to_owned()),
                overlap: Overlap::default(),
                missed: MissedRuns::default(),
                starts_at: None,
                ends_at: None,
                max_runs: None,
            },
            Some(current) => Plain {
                name: current.name.clone(),
                timing: Some(current.timing.clone()),
                timezone: Some(current.timezone.clone()),
                overlap: current.overlap,
                missed: current.missed,
                starts_at: current.starts_at,
                ends_at: current.ends_at,
                max_runs: current.max_runs,
            },
        }
    }
}

/// Reads a new schedule, or a change of `current`.
pub(super) async fn read(
    app: &App,
    tenant: &Tenant,
    now: Timestamp,
    text: &str,
    current: Option<&ScheduleDefinition>,
) -> Result<NewSchedule, Problem> {
    let mut reader = EventParser::new(now, app.payload_bytes(tenant));
    let (form, refused) = parse(app, tenant, now, text, current, &mut reader)?;
    // A refused URL determines the code, even if there are other errors.
    let (id, plain, target) = reader.finish_as(form, refused.unwrap_or(Code::Invalid))?;
    let target = match (target, current) {
        (Some(read), _) => Some(seal(app, tenant, read).await?),
        (None, current) => current.map(|current| current.target.clone()),
    };
    let parts = plain.timing.zip(plain.timezone).zip(target);
    let ((timing, timezone), target) =
        parts.ok_or_else(|| Problem::internal(&"a schedule without errors is incomplete"))?;
    Ok(NewSchedule {
        id,
        definition: ScheduleDefinition {
            name: plain.name,
            timing,
            timezone,
            target,
            overlap: plain.overlap,
            missed: plain.missed,
            starts_at: plain.starts_at,
            ends_at: plain.ends_at,
            max_runs: plain.max_runs,
        },
    })
}

type Form = (Option<ScheduleId>, Plain, Option<ReadTarget>);

fn parse(
    app: &App,
    tenant: &Tenant,
    now: Timestamp,
    text: &str,
    current: Option<&ScheduleDefinition>,
    reader: &mut EventParser,
) -> Result<(Option<Form>, Option<Code>), Problem> {
    let names: &'static [&'static str] = match current {
        None => FIELDS,
        Some(_) => &FIELDS[1..],
    };
    let Some(found) = reader.object(text, names)? else {
        return Ok((None, None));
    };
    let skipped = FIELDS.len() - names.len();
    let (event, request) = (found[EVENT - skipped], found[REQUEST - skipped]);
    let (target, refused) = read_target(app, tenant, reader, event, request)?;
    let is_given = |raw: Option<&RawValue>| raw.is_some_and(|raw| raw.get() != "null");
    let is_reset = |raw: Option<&RawValue>| raw.is_some_and(|raw| raw.get() == "null");
    let none_given = !is_given(event) && !is_given(request);
    if none_given && (current.is_none() || is_reset(event) || is_reset(request)) {
        reader.wrong("event", "is required, unless request is given");
    }
    let document = plain_document(names, &found);
    let mut plain = Plain::of(current);
    let mut id = None;
    reader.read_http_fields(&document, "", |fields| {
        id = current.is_none().then(|| read_id(fields)).flatten();
        read_plain(fields, &document, now, current, &mut plain);
    });
    check_timing(app, tenant, now, &plain, current, reader);
    Ok((Some((id, plain, target)), refused))
}

/// Returns all fields but the target as one document.
fn plain_document(names: &[&str], found: &[Option<&RawValue>]) -> Value {
    let mut document = Map::new();
    for (name, raw) in names.iter().zip(found) {
        if let Some(raw) = raw.filter(|_| !matches!(*name, "event" | "request"))
            && let Ok(value) = serde_json::from_str(raw.get())
        {
            document.insert((*name).to_owned(), value);
        }
    }
    Value::Object(document)
}

fn read_id(fields: &mut Fields<'_, '_>) -> Option<ScheduleId> {
    match fields.text("id")?.parse() {
        Ok(id) => Some(id),
        Err(error) => {
            fields.wrong("id", format!("{error}"));
            None
        }
    }
}

fn read_plain(
    fields: &mut Fields<'_, '_>,
    document: &Value,
    now: Timestamp,
    current: Option<&ScheduleDefinition>,
    plain: &mut Plain,
) {
    let name = body_fields::text(fields, "name", MAX_NAME_CHARS);
    take(document, "name", name, String::new, &mut plain.name);
    let known = match current.map(|current| &current.timing) {
        Some(ScheduleTiming::At(times)) => times.as_slice(),
        Some(ScheduleTiming::Cron(_) | ScheduleTiming::Every(_)) | None => &[],
    };
    match read_timing(fields, now, known) {
        GivenTiming::Valid(timing) => plain.timing = Some(timing),
        GivenTiming::Invalid => plain.timing = None,
        GivenTiming::Absent => {
            let names = ["cron", "every", "at"];
            let is_reset = names.iter().any(|name| document.get(name).is_some());
            if is_reset || plain.timing.is_none() {
                plain.timing = None;
                fields.wrong("cron", "is required, unless every or at is given");
            }
        }
    }
    let zone = read_zone(fields);
    if document.get("timezone").is_some() {
        plain.timezone = zone;
    }
    let overlap = read_overlap(fields);
    take(
        document,
        "overlap",
        overlap,
        Overlap::default,
        &mut plain.overlap,
    );
    let missed = read_missed(fields);
    take(
        document,
        "missed",
        missed,
        MissedRuns::default,
        &mut plain.missed,
    );
    let starts_at = read_time(fields, "starts_at");
    take_option(document, "starts_at", starts_at, &mut plain.starts_at);
    let ends_at = read_time(fields, "ends_at");
    if ends_at.is_some_and(|end| end <= now) {
        fields.wrong("ends_at", format!("is in the past; it is now {now}"));
    }
    take_option(document, "ends_at", ends_at, &mut plain.ends_at);
    if let (Some(start), Some(end)) = (plain.starts_at, plain.ends_at)
        && start >= end
    {
        fields.wrong("ends_at", "must be after starts_at");
    }
    let max_runs = fields.count("max_runs", 1, MAX_MAX_RUNS);
    take_option(document, "max_runs", max_runs, &mut plain.max_runs);
}

fn read_overlap(fields: &mut Fields<'_, '_>) -> Option<Overlap> {
    let overlap = match fields.text("overlap")? {
        "allow" => Some(Overlap::Allow),
        "skip" => Some(Overlap::Skip),
        _ => None,
    };
    if overlap.is_none() {
        fields.wrong("overlap", "must be \"allow\" or \"skip\"");
    }
    overlap
}

fn read_missed(fields: &mut Fields<'_, '_>) -> Option<MissedRuns> {
    let missed = match fields.text("missed")? {
        "run_once" => Some(MissedRuns::RunOnce),
        "skip" => Some(MissedRuns::Skip),
        "run_all" => Some(MissedRuns::RunAll),
        _ => None,
    };
    if missed.is_none() {
        fields.wrong("missed", "must be \"run_once\", \"skip\" or \"run_all\"");
    }
    missed
}

/// Checks that the schedule runs at all, and not more often than the tenant may. A change that leaves the timing as it is
/// is not checked against the limit.
fn check_timing(
    app: &App,
    tenant: &Tenant,
    now: Timestamp,
    plain: &Plain,
    current: Option<&ScheduleDefinition>,
    reader: &mut EventParser,
) {
    let (Some(timing), Some(zone)) = (&plain.timing, &plain.timezone) else {
        return;
    };
    let Ok(computed) = Timing::new(timing, zone) else {
        return;
    };
    let field = field_of(timing);
    let is_same = current.is_some_and(|current| current.timing == *timing);
    if let (Some(shortest), false) = (app.limits_of(tenant).shortest_schedule_interval, is_same)
        && let Some(gap) = computed.shortest_gap(now)
        && gap < shortest
    {
        reader.wrong(field, too_often(gap, shortest));
    }
    let from = plain
        .starts_at
        .map_or(now, |start| now.max(Timestamp(start.0.saturating_sub(1))));
    let anchor = plain.starts_at.unwrap_or(now);
    let next = computed.next_after(from, anchor);
    if current.is_none() && next.is_none_or(|next| plain.ends_at.is_some_and(|end| next > end)) {
        reader.wrong(field, "never runs between starts_at and ends_at");
    }
}
