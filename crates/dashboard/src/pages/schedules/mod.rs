//! The pages of schedules: list, one schedule with its runs, and the form with a preview.
//!
//! The form is in `form`, its pages in `form_page`, the runs of one schedule in `runs`.

mod form;
mod form_page;
mod runs;

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{
    ListPage, Schedule, ScheduleRun, ScheduleRunStatus, ScheduledEvent, ScheduledRequest,
};
use posthaste_api::route::Verb;
use posthaste_core::schedule::{MissedRuns, Overlap, ScheduleStatus};
use serde_json::Value;

use crate::components::{BadgeKind, action_button, badge, csrf_field, empty_list, pager, time};
use crate::form::Form;
use crate::page::{ActionResult, FlashMessage, Page, PageResult, Tab};
use crate::page_request::PageRequest;
use crate::routes::{ActionHandler, PageHandler, Route, action_route, page_route};
use crate::urls::query_string;

/// Number of schedules on a page. Kept small, because the last run of each one is a separate API call.
const PER_PAGE: usize = 25;
/// Form field that says that the visitor has confirmed.
const CONFIRMED_FIELD: &str = "sure";

pub(super) const PAGES: &[Route<PageHandler>] = &[
    page_route!(Tenant, "/schedules", show_list),
    page_route!(Tenant, "/new-schedule", form_page::new),
    page_route!(Tenant, "/schedules/{schedule}", show_one),
    page_route!(Tenant, "/schedules/{schedule}/edit", form_page::edit),
];

pub(super) const ACTIONS: &[Route<ActionHandler>] = &[
    action_route!(Tenant, "/new-schedule", form_page::create),
    action_route!(Tenant, "/schedule-preview", form_page::preview),
    action_route!(Tenant, "/schedules/{schedule}/edit", form_page::change),
    action_route!(Tenant, "/schedules/{schedule}/pause", pause),
    action_route!(Tenant, "/schedules/{schedule}/resume", resume),
    action_route!(Tenant, "/schedules/{schedule}/run", run),
    action_route!(Tenant, "/schedules/{schedule}/delete", delete),
];

/// Returns the path of the schedule in the request, below the tenant.
fn path(request: &PageRequest) -> String {
    format!("/schedules/{}", request.path_param("schedule"))
}

async fn show_list(request: PageRequest) -> Result<PageResult, Problem> {
    let cursor = request.query("cursor");
    let limit = PER_PAGE.to_string();
    let query = query_string([("limit", limit.as_str()), ("cursor", cursor)]);
    let listed: ListPage<Schedule> = request.tenant_get(&format!("/schedules{query}")).await?;
    let mut rows = Vec::with_capacity(listed.data.len());
    for schedule in listed.data {
        let last = match schedule.last_run_at {
            Some(_) => last_run(&request, &schedule.id).await?,
            None => None,
        };
        rows.push((schedule, last));
    }
    let link = |cursor: &str| {
        let query = query_string([("cursor", cursor)]);
        request.tenant_link(&format!("/schedules{query}"))
    };
    let new = request.tenant_link("/new-schedule");
    let list = match rows.is_empty() {
        true => empty_list("No schedules yet. Add one to create events at set times."),
        false => table(&request, &rows),
    };
    let pager = pager(cursor, listed.next_cursor.as_deref(), link);
    Ok(Page::new(Tab::Schedules, "Schedules")
        .lead(html! { "Events and requests that are created at set times." })
        .static_section(
            "new",
            html! { p { a.button.primary href=(new) { "Add schedule" } } },
        )
        .live("list", html! { (list) (pager) })
        .into())
}

async fn last_run(request: &PageRequest, id: &str) -> Result<Option<ScheduleRun>, Problem> {
    let path = format!("/schedules/{id}/runs?limit=1");
    let page: ListPage<ScheduleRun> = request.tenant_get(&path).await?;
    Ok(page.data.into_iter().next())
}

fn table(request: &PageRequest, rows: &[(Schedule, Option<ScheduleRun>)]) -> Markup {
    html! {
        table.stack {
            caption.unseen { "Schedules, newest first" }
            thead { tr {
                th scope="col" { "Schedule" } th scope="col" { "Times" } th scope="col" { "Status" }
                th scope="col" { "Next run" } th scope="col" { "Last run" }
            } }
            tbody { @for (schedule, last) in rows { tr {
                th scope="row" {
                    a href=(request.tenant_link(&format!("/schedules/{}", schedule.id))) { (schedule.name) }
                    @if schedule.name != schedule.id { div.hint { (schedule.id) } }
                }
                td data-label="Times" { (schedule.description) }
                td data-label="Status" { (badges(schedule)) }
                td data-label="Next run" { (optional_time(schedule.next_run_at.as_deref())) }
                td data-label="Last run" {
                    @match last {
                        Some(run) => { (run_badge(run.status)) " " (time(&run.started_at)) }
                        None => "–",
                    }
                }
            } } }
        }
    }
}

/// Renders status and failures.
fn badges(schedule: &Schedule) -> Markup {
    let status = match schedule.status {
        ScheduleStatus::Active => badge(BadgeKind::Good, "active"),
        ScheduleStatus::Paused => badge(BadgeKind::Warning, "paused"),
        ScheduleStatus::Finished => badge(BadgeKind::Quiet, "finished"),
    };
    html! {
        (status)
        @if schedule.error.is_some() { " " (badge(BadgeKind::Bad, "unreadable")) }
        @match schedule.failed_runs {
            0 => {}
            1 => { " " (badge(BadgeKind::Bad, "last run failed")) }
            count => { " " (badge(BadgeKind::Bad, &format!("last {count} runs failed"))) }
        }
    }
}

fn run_badge(status: ScheduleRunStatus) -> Markup {
    match status {
        ScheduleRunStatus::Created => badge(BadgeKind::Good, "created"),
        ScheduleRunStatus::Skipped => badge(BadgeKind::Warning, "skipped"),
        ScheduleRunStatus::Missed => badge(BadgeKind::Bad, "missed"),
    }
}

fn optional_time(at: Option<&str>) -> Markup {
    html! { @match at { Some(at) => (time(at)), None => "–" } }
}

async fn show_one(request: PageRequest) -> Result<PageResult, Problem> {
    let schedule: Schedule = request.tenant_get(&path(&request)).await?;
    let runs = runs::section(&request, &schedule).await?;
    Ok(Page::new(Tab::Schedules, schedule.name.clone())
        .breadcrumb("Schedules", request.tenant_link("/schedules"))
        .live("state", state_section(&request, &schedule))
        .live("runs", runs)
        .static_section("target", target_section(&schedule))
        .into())
}

fn state_section(request: &PageRequest, schedule: &Schedule) -> Markup {
    let link = request.tenant_link(&path(request));
    let action = |verb: &str, class: &str, label: &str| {
        action_button(request, &format!("{link}/{verb}"), class, label)
    };
    let overlap = match schedule.overlap {
        Overlap::Allow => "run while the previous run is unfinished",
        Overlap::Skip => "skip a run while the previous one is unfinished",
    };
    let missed = match schedule.missed {
        MissedRuns::RunOnce => "run once",
        MissedRuns::Skip => "skip",
        MissedRuns::RunAll => "run all (at most 100)",
    };
    html! {
        div.card {
            p { (badges(schedule)) " " strong { (schedule.description) } }
            @if let Some(error) = &schedule.error { p { "Not readable: " (error) "." } }
            dl.facts {
                dt { "Id" } dd { code { (schedule.id) } }
                dt { "Next run" } dd { (optional_time(schedule.next_run_at.as_deref())) }
                dt { "Last run" } dd { (optional_time(schedule.last_run_at.as_deref())) }
                dt { "Runs" } dd {
                    (schedule.run_count)
                    @if let Some(max) = schedule.max_runs { " of at most " (max) }
                }
                @if let Some(cron) = &schedule.cron { dt { "Cron expression" } dd { code { (cron) } " " (schedule.timezone) } }
                @if let Some(at) = &schedule.starts_at { dt { "Starts" } dd { (time(at)) } }
                @if let Some(at) = &schedule.ends_at { dt { "Ends" } dd { (time(at)) } }
                dt { "Overlap" } dd { (overlap) }
                dt { "Missed runs" } dd { (missed) }
            }
            div.actions {
                @match schedule.status {
                    ScheduleStatus::Active => (action("pause", "", "Pause")),
                    ScheduleStatus::Paused => (action("resume", "primary", "Resume")),
                    ScheduleStatus::Finished => {}
                }
                (action("run", "", "Run now"))
                a.button href={ (link) "/edit" } { "Edit" }
                (action("delete", "danger", "Delete"))
            }
        }
    }
}

fn target_section(schedule: &Schedule) -> Markup {
    html! {
        div.card {
            @if let Some(event) = &schedule.event { h2 { "Event" } (event_facts(event)) }
            @if let Some(request) = &schedule.request { h2 { "Request" } (request_facts(request)) }
        }
    }
}

fn event_facts(event: &ScheduledEvent) -> Markup {
    html! {
        dl.facts {
            dt { "Type" } dd { code { (event.r#type) } }
            @if let Some(key) = &event.ordering_key { dt { "Ordering key" } dd { code { (key) } } }
        }
        (payload(event.payload.as_ref().map(|raw| raw.get()), event.content_type.as_deref()))
    }
}

fn request_facts(request: &ScheduledRequest) -> Markup {
    html! {
        dl.facts {
            dt { "URL" } dd { code { (request.method) " " (request.url) } }
            // Values of headers may be secret. They are shown in the form only.
            @if !request.headers.0.is_empty() {
                dt { "Headers" } dd { @for (name, _) in &request.headers.0 { code { (name) } " " } }
            }
            @if let Some(key) = &request.ordering_key { dt { "Ordering key" } dd { code { (key) } } }
        }
        (payload(request.payload.as_ref().map(|raw| raw.get()), request.content_type.as_deref()))
    }
}

fn payload(json: Option<&str>, content_type: Option<&str>) -> Markup {
    html! {
        @if let Some(json) = json {
            details #payload { summary { "Payload" } pre tabindex="0" { code { (json) } } }
        } @else if let Some(content_type) = content_type {
            p { "Binary payload, content type " code { (content_type) } "." }
        }
    }
}

async fn pause(request: PageRequest, _: Form) -> Result<ActionResult, Problem> {
    change_status(&request, "pause", FlashMessage::SchedulePaused).await
}

async fn resume(request: PageRequest, _: Form) -> Result<ActionResult, Problem> {
    change_status(&request, "resume", FlashMessage::ScheduleResumed).await
}

async fn run(request: PageRequest, _: Form) -> Result<ActionResult, Problem> {
    change_status(&request, "run", FlashMessage::ScheduleRun).await
}

async fn change_status(
    request: &PageRequest,
    verb: &str,
    message: FlashMessage,
) -> Result<ActionResult, Problem> {
    let path = path(request);
    let target = format!("{path}/{verb}");
    let _: Value = request.tenant_call(Verb::Post, &target, None).await?;
    request.redirect(&path, message)
}

async fn delete(request: PageRequest, form: Form) -> Result<ActionResult, Problem> {
    let path = path(&request);
    if form.is_ticked(CONFIRMED_FIELD) {
        let () = request.tenant_call(Verb::Delete, &path, None).await?;
        return request.redirect("/schedules", FlashMessage::ScheduleDeleted);
    }
    let schedule: Schedule = request.tenant_get(&path).await?;
    let link = request.tenant_link(&path);
    let body = html! {
        div.card {
            p { strong { (schedule.name) } }
            p { "It creates no more events, and its list of runs is deleted. This cannot be undone. Events that it created stay visible until their retention period ends." }
            form method="post" action={ (link) "/delete" } {
                (csrf_field(&request))
                input type="hidden" name=(CONFIRMED_FIELD) value="yes";
                div.actions {
                    button.danger type="submit" { "Delete schedule" }
                    a href=(link) { "Cancel" }
                }
            }
        }
    };
    let page = Page::new(Tab::Schedules, "Delete the schedule?")
        .breadcrumb("Schedules", request.tenant_link("/schedules"))
        .breadcrumb(schedule.name, link)
        .static_section("sure", body);
    Ok(ActionResult::Page(page))
}
