//! The pages with the form that creates or changes a schedule, and its preview.
//!
//! The button Preview sends the form to an action that shows the form again, with the times in words and the next
//! occurrences. With the script, the preview is fetched in the same way while typing.

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{Schedule, SchedulePreview};
use posthaste_api::route::Verb;
use posthaste_core::schedule::Zone;
use serde_json::Value;

use super::form::{LACKS_HEADERS_FIELD, ScheduleForm, errors_in_form};
use super::path;
use crate::components::{Field, FieldErrors, csrf_field, time};
use crate::form::Form;
use crate::page::{ActionResult, FlashMessage, Page, PageResult, Tab};
use crate::page_request::PageRequest;

/// Form field with the id of the schedule that is being changed; empty for a new one.
const CHANGED_FIELD: &str = "changed";

/// The preview of the times in the form, or the reason why there is none.
type Preview = Result<SchedulePreview, FieldErrors>;

pub(super) async fn new(request: PageRequest) -> Result<PageResult, Problem> {
    let form = ScheduleForm::new();
    let preview = preview_of(&request, &form).await?;
    Ok(page(&request, &form, &FieldErrors::default(), &preview, None).into())
}

pub(super) async fn edit(request: PageRequest) -> Result<PageResult, Problem> {
    let schedule: Schedule = request.tenant_get(&path(&request)).await?;
    let form = ScheduleForm::of(&schedule);
    let preview = preview_of(&request, &form).await?;
    let id = Some(schedule.id.as_str());
    Ok(page(&request, &form, &FieldErrors::default(), &preview, id).into())
}

pub(super) async fn preview(request: PageRequest, sent: Form) -> Result<ActionResult, Problem> {
    let form = ScheduleForm::read(&sent);
    let preview = preview_of(&request, &form).await?;
    let errors = match &preview {
        Ok(_) => FieldErrors::default(),
        Err(errors) => errors.clone(),
    };
    let page = page(
        &request,
        &form,
        &errors,
        &preview,
        sent.filled(CHANGED_FIELD),
    );
    Ok(ActionResult::Page(page))
}

pub(super) async fn create(request: PageRequest, sent: Form) -> Result<ActionResult, Problem> {
    let form = ScheduleForm::read(&sent);
    let errors = match form.document(None) {
        Err(errors) => errors,
        Ok(document) => {
            let call = request.tenant_call(Verb::Post, "/schedules", Some(document));
            match call.await {
                Ok(schedule) => {
                    let schedule: Schedule = schedule;
                    let path = format!("/schedules/{}", schedule.id);
                    return request.redirect(&path, FlashMessage::ScheduleCreated);
                }
                Err(problem) => errors_in_form(problem)?,
            }
        }
    };
    let preview = preview_of(&request, &form).await?;
    Ok(ActionResult::Page(page(
        &request, &form, &errors, &preview, None,
    )))
}

pub(super) async fn change(request: PageRequest, sent: Form) -> Result<ActionResult, Problem> {
    let path = path(&request);
    let schedule: Schedule = request.tenant_get(&path).await?;
    let form = ScheduleForm::read(&sent);
    let errors = match form.document(Some(&schedule)) {
        Err(errors) => errors,
        Ok(document) => {
            let call = request.tenant_call::<Value>(Verb::Patch, &path, Some(document));
            match call.await {
                Ok(_) => return request.redirect(&path, FlashMessage::ScheduleSaved),
                Err(problem) => errors_in_form(problem)?,
            }
        }
    };
    let preview = preview_of(&request, &form).await?;
    let id = Some(schedule.id.as_str());
    Ok(ActionResult::Page(page(
        &request, &form, &errors, &preview, id,
    )))
}

async fn preview_of(request: &PageRequest, form: &ScheduleForm) -> Result<Preview, Problem> {
    let document = Value::Object(form.timing());
    let call = request.call(Verb::Post, "/v1/schedules/preview", Some(document));
    match call.await {
        Ok(preview) => Ok(Ok(preview)),
        Err(problem) if problem.errors.is_some() => errors_in_form(problem).map(Err),
        Err(problem) => Err(problem),
    }
}

fn page(
    request: &PageRequest,
    form: &ScheduleForm,
    errors: &FieldErrors,
    preview: &Preview,
    changed: Option<&str>,
) -> Page {
    let list = request.tenant_link("/schedules");
    let (title, action, back) = match changed {
        None => (
            "Add schedule",
            request.tenant_link("/new-schedule"),
            list.clone(),
        ),
        Some(id) => {
            let link = request.tenant_link(&format!("/schedules/{id}"));
            ("Edit schedule", format!("{link}/edit"), link)
        }
    };
    let preview_link = request.tenant_link("/schedule-preview");
    let body = html! {
        (errors.summary())
        form.narrow method="post" action=(action) data-preview=(preview_link) {
            (csrf_field(request))
            @if let Some(id) = changed { input type="hidden" name=(CHANGED_FIELD) value=(id); }
            (name_fields(form, errors, changed.is_none()))
            (time_fields(form, errors))
            (preview_section(preview))
            div.actions { button type="submit" formaction=(preview_link) formnovalidate { "Preview" } }
            (target_fields(form, errors))
            (run_fields(form, errors))
            div.actions {
                button.primary type="submit" { @if changed.is_none() { "Create schedule" } @else { "Save" } }
                a href=(back) { "Cancel" }
            }
        }
    };
    let page = Page::new(Tab::Schedules, title).breadcrumb("Schedules", list);
    let page = match changed {
        Some(id) => page.breadcrumb(id, back),
        None => page,
    };
    page.static_section("form", body)
        .with_status(errors.status())
}

fn name_fields(form: &ScheduleForm, errors: &FieldErrors, is_new: bool) -> Markup {
    let field = |name, label, hint, value| Field::new(name, label, hint, value, errors);
    html! {
        fieldset {
            legend { "Schedule" }
            (field("name", "Name", "", &form.name).line("text"))
            @if is_new {
                (field("id", "Id", "1 to 64 letters, digits, hyphens, underscores or dots. Leave empty to generate one. Cannot be changed later.", &form.id).line("text"))
            }
        }
    }
}

fn time_fields(form: &ScheduleForm, errors: &FieldErrors) -> Markup {
    let field = |name, label, hint, value| Field::new(name, label, hint, value, errors);
    let kinds = [
        ("cron", "By a cron expression"),
        ("every", "At a fixed interval"),
        ("at", "At a list of times"),
    ];
    html! {
        fieldset {
            legend { "Timing" }
            (field("kind", "Runs", "Only the field for the selected option is used.", &form.kind).choice(&kinds))
            (field("cron", "Cron expression", "Minute, hour, day of month, month, day of week, such as 0 9 * * MON-FRI; or a name such as @daily.", &form.cron).line("text"))
            (zone_field(form, errors))
            (field("every", "Interval", "Such as 15m or 6h; at least 1s.", &form.every).line("text"))
            (field("at", "List of times", "One per line, in UTC, such as 2026-12-24 18:00.", &form.at).lines(3))
        }
    }
}

/// Renders the time zone, with all names as suggestions.
fn zone_field(form: &ScheduleForm, errors: &FieldErrors) -> Markup {
    let hint = "IANA name such as Europe/Berlin. Applies to the cron expression only.";
    let field = Field::new("timezone", "Time zone", hint, &form.timezone, errors);
    html! {
        (field.line_with_choices("zones"))
        datalist #zones { @for zone in Zone::names() { option value=(zone) {} } }
    }
}

fn preview_section(preview: &Preview) -> Markup {
    html! {
        div.card #preview aria-live="polite" {
            h2 { "Preview" }
            @match preview {
                Ok(preview) => {
                    p { strong { (preview.description) } }
                    @if preview.next.is_empty() { p { "No more runs." } }
                    @else { ol.times { @for at in &preview.next { li { (time(at)) } } } }
                }
                Err(errors) => { p { (preview_error(errors)) } }
            }
        }
    }
}

fn preview_error(errors: &FieldErrors) -> String {
    let names = ["cron", "every", "at", "timezone", ""];
    let found = names.iter().find_map(|name| errors.message(name));
    found.unwrap_or_else(|| "Fix the highlighted fields.".to_owned())
}

fn target_fields(form: &ScheduleForm, errors: &FieldErrors) -> Markup {
    let field = |name, label, hint, value| Field::new(name, label, hint, value, errors);
    let targets = [
        ("event", "An event, to all subscribed endpoints"),
        ("request", "A one-off request to one URL"),
    ];
    let methods = ["GET", "POST", "PUT", "PATCH", "DELETE"].map(|name| (name, name));
    html! {
        fieldset {
            legend { "Target" }
            (field("target", "Each run creates", "", &form.target).choice(&targets))
            (field("event_type", "Event type", "For an event, such as report.due.", &form.event_type).line("text"))
            (field("url", "URL", "For a request.", &form.url).line("text"))
            (field("method", "Method", "For a request.", &form.method).choice(&methods))
            (field("headers", "Headers", "For a request, one per line, such as X-Team: billing.", &form.headers).lines(2))
            @if form.lacks_headers { input type="hidden" name=(LACKS_HEADERS_FIELD) value="yes"; }
            (field("payload", "Payload", "JSON. Leave empty for a request without a body.", &form.payload).lines(4))
        }
    }
}

fn run_fields(form: &ScheduleForm, errors: &FieldErrors) -> Markup {
    let field = |name, label, hint, value| Field::new(name, label, hint, value, errors);
    let overlaps = [("allow", "Run anyway"), ("skip", "Skip the run")];
    let missed = [
        ("run_once", "Run once"),
        ("skip", "Do not run"),
        ("run_all", "Run all (at most 100)"),
    ];
    html! {
        fieldset {
            legend { "Overlapping and missed runs" }
            (field("overlap", "While the previous run has unfinished deliveries", "", &form.overlap).choice(&overlaps))
            (field("missed", "Runs missed because the server was down or the schedule was paused", "", &form.missed).choice(&missed))
            (field("starts_at", "Start", "No runs before this time, in UTC. For example 2026-12-01 00:00.", &form.starts_at).line("text"))
            (field("ends_at", "End", "No runs after this time, in UTC.", &form.ends_at).line("text"))
            (field("max_runs", "Maximum number of runs", "", &form.max_runs).line("text"))
        }
    }
}
