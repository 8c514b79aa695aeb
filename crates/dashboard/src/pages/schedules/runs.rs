//! The runs of one schedule: past ones and the next ten, on a line and as tables.

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{ListPage, Schedule, ScheduleRun, ScheduleRunStatus};
use posthaste_core::schedule::{ScheduleTiming, Timing};
use posthaste_core::time::Timestamp;

use super::run_badge;
use crate::components::{empty_list, pager, time};
use crate::page_request::PageRequest;
use crate::urls::query_string;

/// Number of past runs on a page.
const PAST_SHOWN: usize = 20;
/// Number of past runs on the line.
const PAST_ON_LINE: usize = 10;
/// Number of occurrences to come.
const NEXT_SHOWN: usize = 10;

/// Size of the line, in its own units.
const WIDTH: f64 = 1_000.0;
const MIDDLE: f64 = 20.0;
const MARGIN: f64 = 15.0;

/// A point on the line.
struct Point {
    at: Timestamp,
    class: &'static str,
}

/// Renders the runs of a schedule.
pub(super) async fn section(request: &PageRequest, schedule: &Schedule) -> Result<Markup, Problem> {
    let cursor = request.query("cursor");
    let limit = PAST_SHOWN.to_string();
    let query = query_string([("limit", limit.as_str()), ("cursor", cursor)]);
    let path = format!("/schedules/{}/runs{query}", schedule.id);
    let runs: ListPage<ScheduleRun> = request.tenant_get(&path).await?;
    let next = next_occurrences(schedule);
    let link = |cursor: &str| {
        let query = query_string([("cursor", cursor)]);
        request.tenant_link(&format!("/schedules/{}{query}", schedule.id))
    };
    Ok(html! {
        div.card {
            h2 { "Runs" }
            @if cursor.is_empty() { (line(&runs.data, &next)) }
            @if !next.is_empty() {
                h3 { "Next" }
                ol.times { @for at in &next { li { (time(&at.to_string())) } } }
            }
            h3 { "Past" }
            @if runs.data.is_empty() { (empty_list("No runs yet.")) }
            @else { (table(request, &runs.data)) }
            (pager(cursor, runs.next_cursor.as_deref(), link))
        }
    })
}

/// Returns the next occurrences. The first is the one that the API names.
fn next_occurrences(schedule: &Schedule) -> Vec<Timestamp> {
    let parse = |text: &Option<String>| text.as_deref().and_then(|text| text.parse().ok());
    let first: Option<Timestamp> = parse(&schedule.next_run_at);
    let end: Option<Timestamp> = parse(&schedule.ends_at);
    let timing =
        timing_of(schedule).and_then(|timing| Timing::new(&timing, &schedule.timezone).ok());
    let (Some(first), Some(timing)) = (first, timing) else {
        return Vec::new();
    };
    let left = schedule.max_runs.map_or(u64::MAX, |max| {
        u64::from(max).saturating_sub(schedule.run_count)
    });
    let following = std::iter::successors(Some(first), |last| timing.next_after(*last, first));
    following
        .take_while(|at| end.is_none_or(|end| *at <= end))
        .take(NEXT_SHOWN.min(usize::try_from(left).unwrap_or(usize::MAX)))
        .collect()
}

fn timing_of(schedule: &Schedule) -> Option<ScheduleTiming> {
    let cron = schedule.cron.clone().map(ScheduleTiming::Cron);
    let every = schedule.every.as_deref();
    let every = every.and_then(|text| text.parse().ok());
    let at = schedule.at.as_deref().map(|times| {
        let times = times.iter().filter_map(|text| text.parse().ok());
        ScheduleTiming::At(times.collect())
    });
    cron.or(every.map(ScheduleTiming::Every)).or(at)
}

/// Renders past runs and the next occurrences as points on a line of time.
fn line(runs: &[ScheduleRun], next: &[Timestamp]) -> Markup {
    let past = runs.iter().take(PAST_ON_LINE).rev();
    let past = past.filter_map(|run| {
        let at = run.scheduled_for.parse().ok()?;
        let class = class_of(run.status);
        Some(Point { at, class })
    });
    let next = next.iter().map(|at| Point {
        at: *at,
        class: "next",
    });
    let mut points: Vec<Point> = past.chain(next).collect();
    points.sort_by_key(|point| point.at);
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return html! {};
    };
    let (first, last) = (first.at, last.at);
    let length = last.since(first).as_millis().max(1) as f64;
    let x = |at: Timestamp| {
        let share = at.since(first).as_millis() as f64 / length;
        format!("{:.1}", MARGIN + share * (WIDTH - 2.0 * MARGIN))
    };
    let (left, right) = (first.to_string(), last.to_string());
    html! {
        figure.chart {
            svg.runs role="img" aria-label="Past runs and the next occurrences; the tables below list them"
                viewBox={ "0 0 " (WIDTH) " 40" } {
                line x1="0" x2=(WIDTH) y1=(MIDDLE) y2=(MIDDLE) {}
                @for point in &points { circle class=(point.class) cx=(x(point.at)) cy=(MIDDLE) r="6" {} }
            }
            div.ends { span { (time(&left)) } span { (time(&right)) } }
            p.keys {
                span.key.good { "created" } " " span.key.bad { "skipped or missed" } " " span.key.next { "next" }
            }
        }
    }
}

fn class_of(status: ScheduleRunStatus) -> &'static str {
    match status {
        ScheduleRunStatus::Created => "good",
        ScheduleRunStatus::Skipped | ScheduleRunStatus::Missed => "bad",
    }
}

fn table(request: &PageRequest, runs: &[ScheduleRun]) -> Markup {
    html! {
        table.stack {
            caption.unseen { "Past runs, newest first" }
            thead { tr {
                th scope="col" { "Scheduled for" } th scope="col" { "Result" } th scope="col" { "Started" }
                th scope="col" { "Event" }
            } }
            tbody { @for run in runs { tr {
                th scope="row" { (time(&run.scheduled_for)) }
                td data-label="Result" {
                    (run_badge(run.status))
                    @if let Some(reason) = &run.reason { div.hint { (reason_text(reason)) } }
                }
                td data-label="Started" { (time(&run.started_at)) }
                td data-label="Event" {
                    @match &run.event_id {
                        Some(event) => { a href=(request.tenant_link(&format!("/events/{event}"))) { (deliveries_text(run.deliveries.len())) } }
                        None => "–",
                    }
                }
            } } }
        }
    }
}

fn deliveries_text(count: usize) -> String {
    match count {
        0 => "no deliveries".to_owned(),
        1 => "1 delivery".to_owned(),
        count => format!("{count} deliveries"),
    }
}

/// Returns the reason of a run in words.
fn reason_text(reason: &str) -> String {
    let words = match reason {
        "previous_unfinished" => "The previous run had unfinished deliveries.",
        "late" => "The server was down at the time.",
        "paused" => "The schedule was paused at the time.",
        "many_missed" => "Represents many missed runs.",
        code => return format!("The event was rejected: {code}."),
    };
    words.to_owned()
}
