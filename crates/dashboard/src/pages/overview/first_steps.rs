//! The first steps: what a newcomer does until the first delivery has succeeded.

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{DeliverySummary, ListPage, Tenant};
use serde_json::Value;

use crate::components::{BadgeKind, badge, copy_button};
use crate::page_request::PageRequest;

/// URL of this server if neither the settings nor the request names it.
const DEFAULT_URL: &str = "http://127.0.0.1:8420";
/// Remembered when the steps are done, so that live updates do not check again.
const DONE: &str = "delivered";

/// The next step to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Progress {
    /// There is no tenant.
    NoTenant,
    /// The tenant has no endpoint.
    NoEndpoint,
    /// It has no event.
    NoEvent,
    /// No delivery of it has succeeded.
    NoSuccess,
    /// A delivery has succeeded: the steps are done.
    Delivered,
}

/// Returns the progress of a tenant.
pub(super) async fn progress_of(request: &PageRequest, tenant: &str) -> Result<Progress, Problem> {
    if request.cached_value.get().is_some() {
        return Ok(Progress::Delivered);
    }
    let path = |rest: &str| format!("/v1/tenants/{tenant}{rest}");
    let succeeded: ListPage<DeliverySummary> = request
        .get(&path("/deliveries?status=succeeded&limit=1"))
        .await?;
    // A page that ends before the list does was filled with others: this tenant is no newcomer.
    if !succeeded.data.is_empty() || succeeded.next_cursor.is_some() {
        let _ = request.cached_value.set(DONE.to_owned());
        return Ok(Progress::Delivered);
    }
    let endpoints: ListPage<Value> = request.get(&path("/endpoints?limit=1")).await?;
    if endpoints.data.is_empty() {
        return Ok(Progress::NoEndpoint);
    }
    let events: ListPage<Value> = request.get(&path("/events?limit=1")).await?;
    Ok(match events.data.is_empty() {
        true => Progress::NoEvent,
        false => Progress::NoSuccess,
    })
}

/// One step of the list.
struct Step {
    /// True if it has been taken.
    is_done: bool,
    what: &'static str,
    /// The page on which it can be taken: link and label.
    page: Option<(String, &'static str)>,
    /// The command that takes it.
    command: Option<String>,
}

/// Renders the steps on the overview of the server; `None` if they are done.
pub(super) fn of_server(
    request: &PageRequest,
    progress: &Progress,
    tenant: Option<&Tenant>,
) -> Option<Markup> {
    if *progress == Progress::Delivered {
        return None;
    }
    let id = tenant.map_or("acme", |tenant| tenant.id.as_str());
    let create_tenant = Step {
        is_done: *progress > Progress::NoTenant,
        what: "Create a tenant (one of your customers).",
        page: Some((request.link("/tenants"), "Create tenant")),
        command: Some(curl_command(
            request,
            "/v1/tenants",
            r#"{"id": "acme", "name": "Acme"}"#,
        )),
    };
    let link =
        |path: &str| (*progress > Progress::NoTenant).then(|| request.link_for_tenant(id, path));
    let mut steps = vec![create_tenant];
    steps.extend(tenant_steps(request, id, *progress, link));
    Some(card(&steps, "an admin key"))
}

/// Renders the steps on the overview of a tenant; `None` if they are done.
pub(super) fn of_tenant(request: &PageRequest, progress: &Progress) -> Option<Markup> {
    if *progress == Progress::Delivered {
        return None;
    }
    let tenant = request.tenant().to_string();
    let link = |path: &str| Some(request.tenant_link(path));
    let mut steps = tenant_steps(request, &tenant, *progress, link);
    if request.is_portal() {
        // Visitors of a portal have no key, and events come from the operator's application.
        for step in &mut steps {
            step.command = None;
        }
        steps[1].what = "Send a test event from the endpoint's page.";
        steps[1].page = None;
    }
    Some(card(&steps, "a key"))
}

fn tenant_steps(
    request: &PageRequest,
    tenant: &str,
    progress: Progress,
    link: impl Fn(&str) -> Option<String>,
) -> Vec<Step> {
    let base = format!("/v1/tenants/{tenant}");
    let page = |path: &str, label: &'static str| link(path).map(|link| (link, label));
    vec![
        Step {
            is_done: progress > Progress::NoEndpoint,
            what: "Add an endpoint, the URL that receives events.",
            page: page("/endpoints/new", "Add endpoint"),
            command: Some(curl_command(
                request,
                &format!("{base}/endpoints"),
                r#"{"url": "https://example.com/hooks"}"#,
            )),
        },
        Step {
            is_done: progress > Progress::NoEvent,
            what: "Send an event.",
            page: page("/events/new", "Send event"),
            command: Some(curl_command(
                request,
                &format!("{base}/events"),
                r#"{"type": "invoice.paid", "payload": {"id": 1}}"#,
            )),
        },
        Step {
            is_done: progress > Progress::NoSuccess,
            what: "Check that it was delivered. If it failed, the delivery page shows why.",
            page: page("/deliveries", "View deliveries"),
            command: None,
        },
    ]
}

/// Returns the URL of this server for examples.
fn server_url(request: &PageRequest) -> &str {
    let configured = request.dashboard.settings.public_url.as_deref();
    let requested = request.source.called.as_deref();
    configured.or(requested).unwrap_or(DEFAULT_URL)
}

fn curl_command(request: &PageRequest, path: &str, body: &str) -> String {
    let url = server_url(request);
    format!(
        "curl -X POST {url}{path} \\\n  -H \"Authorization: Bearer $KEY\" \\\n  -H \"Content-Type: application/json\" \\\n  -d '{body}'"
    )
}

fn card(steps: &[Step], key: &str) -> Markup {
    let next = steps.iter().position(|step| !step.is_done);
    let has_commands = steps.iter().any(|step| step.command.is_some());
    html! {
        div.card {
            h2 { "Get started" }
            @if has_commands { p.hint { "Set " code { "KEY" } " to " (key) " before you run the commands." } }
            ol.steps { @for (index, step) in steps.iter().enumerate() { (item(step, next == Some(index))) } }
        }
    }
}

fn item(step: &Step, is_next: bool) -> Markup {
    html! {
        li {
            p {
                (step.what)
                @if step.is_done { " " (badge(BadgeKind::Good, "done")) }
            }
            @if !step.is_done {
                @if let Some((link, label)) = &step.page {
                    p { a.button.primary[is_next] href=(link) { (label) } }
                }
                @if let Some(command) = &step.command {
                    pre tabindex="0" { code { (command) } }
                    (copy_button(command, "command"))
                }
            }
        }
    }
}
