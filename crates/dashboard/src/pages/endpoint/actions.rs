//! Actions on an endpoint: status changes, deletion, confirmation emails, test events, replays.
//!
//! Each action is a form that calls the API. Irreversible actions ask for confirmation on a page of their own first.

use maud::html;
use posthaste_api::code::Code;
use posthaste_api::problem::Problem;
use posthaste_api::resources::{AcceptedEvent, Delivery, Endpoint};
use posthaste_api::route::Verb;
use posthaste_core::delivery::Status;
use serde_json::{Value, json};

use super::detail;
use super::subpage::{path, subpage};
use crate::components::{FieldErrors, csrf_field};
use crate::form::Form;
use crate::page::{ActionResult, FlashMessage};
use crate::page_request::PageRequest;
use crate::pages::replays::start_replay;
use crate::pages::time_input::in_utc;

/// Form field that says that the visitor has confirmed.
const CONFIRMED_FIELD: &str = "sure";

pub(super) async fn pause(request: PageRequest, _: Form) -> Result<ActionResult, Problem> {
    change_status(request, "pause", FlashMessage::Paused).await
}

pub(super) async fn resume(request: PageRequest, _: Form) -> Result<ActionResult, Problem> {
    change_status(request, "resume", FlashMessage::Resumed).await
}

/// Performs an API verb that changes the endpoint status.
async fn change_status(
    request: PageRequest,
    verb: &str,
    message: FlashMessage,
) -> Result<ActionResult, Problem> {
    let path = path(&request);
    let _: Value = request
        .tenant_call(Verb::Post, &format!("{path}/{verb}"), None)
        .await?;
    request.redirect(&path, message)
}

pub(super) async fn send_confirmation(
    request: PageRequest,
    _: Form,
) -> Result<ActionResult, Problem> {
    let path = path(&request);
    let _: Value = request
        .tenant_call(
            Verb::Post,
            &format!("{path}/owner-email/confirmation"),
            None,
        )
        .await?;
    request.redirect(&path, FlashMessage::ConfirmationSent)
}

pub(super) async fn enable(request: PageRequest, _: Form) -> Result<ActionResult, Problem> {
    let path = path(&request);
    let _: Value = request
        .tenant_call(Verb::Post, &format!("{path}/enable"), None)
        .await?;
    // Leads to the form that replays what the endpoint missed while it was disabled.
    let link = format!("{}#missed-form", request.tenant_link(&path));
    Ok(ActionResult::Redirect(link, FlashMessage::Enabled))
}

pub(super) async fn disable(request: PageRequest, form: Form) -> Result<ActionResult, Problem> {
    if form.is_ticked(CONFIRMED_FIELD) {
        return change_status(request, "disable", FlashMessage::Disabled).await;
    }
    let question = Question {
        title: "Disable the endpoint?",
        meaning: "Waiting deliveries fail and nothing more is sent. After enabling the endpoint you can replay missed events. To hold deliveries instead, pause the endpoint.",
        answer: "Disable endpoint",
    };
    confirmation(&request, "disable", &question).await
}

pub(super) async fn delete(request: PageRequest, form: Form) -> Result<ActionResult, Problem> {
    if !form.is_ticked(CONFIRMED_FIELD) {
        let question = Question {
            title: "Delete the endpoint?",
            meaning: "Waiting deliveries fail and nothing more is sent. This cannot be undone. Past deliveries stay visible until their retention period ends.",
            answer: "Delete endpoint",
        };
        return confirmation(&request, "delete", &question).await;
    }
    let () = request
        .tenant_call(Verb::Delete, &path(&request), None)
        .await?;
    request.redirect("/endpoints", FlashMessage::Deleted)
}

struct Question {
    title: &'static str,
    meaning: &'static str,
    answer: &'static str,
}

/// Shows a page that asks for confirmation.
async fn confirmation(
    request: &PageRequest,
    verb: &str,
    question: &Question,
) -> Result<ActionResult, Problem> {
    let path = path(request);
    let endpoint: Endpoint = request.tenant_get(&path).await?;
    let link = request.tenant_link(&path);
    let body = html! {
        div.card {
            p { strong { (endpoint.url) } }
            p { (question.meaning) }
            form method="post" action={ (link) "/" (verb) } {
                (csrf_field(request))
                input type="hidden" name=(CONFIRMED_FIELD) value="yes";
                div.actions {
                    button.danger type="submit" { (question.answer) }
                    a href=(link) { "Cancel" }
                }
            }
        }
    };
    let page = subpage(request, question.title, &endpoint.url).static_section("sure", body);
    Ok(ActionResult::Page(page))
}

pub(super) async fn send_test_event(
    request: PageRequest,
    _: Form,
) -> Result<ActionResult, Problem> {
    let target = format!("{}/test", path(&request));
    let accepted: AcceptedEvent = request.tenant_call(Verb::Post, &target, None).await?;
    let link = match accepted.deliveries.first() {
        Some(delivery) => request.tenant_link(&format!("/deliveries/{}", delivery.id)),
        None => request.tenant_link(&format!("/events/{}", accepted.id)),
    };
    let message = match accepted.deliveries.first() {
        None => FlashMessage::Tested,
        Some(delivery) => {
            let path = format!("/deliveries/{}", delivery.id);
            let delivery: Delivery = request.tenant_get(&path).await?;
            match delivery.status == Status::Held {
                true => FlashMessage::TestHeld,
                false => FlashMessage::Tested,
            }
        }
    };
    Ok(ActionResult::Redirect(link, message))
}

pub(super) async fn replay_missed(
    request: PageRequest,
    form: Form,
) -> Result<ActionResult, Problem> {
    let since = form.text("since");
    let document =
        json!({"endpoint": request.path_param("endpoint"), "missed_since": in_utc(since)});
    match start_replay(&request, document).await {
        Err(problem) if problem.code == Code::Invalid => {
            let form_field = |field: &str| (field == "missed_since").then_some("since");
            let errors = FieldErrors::new(&problem, form_field);
            Ok(ActionResult::Page(
                detail::page(&request, &errors, Some(since)).await?,
            ))
        }
        result => result,
    }
}
