//! Actions on an endpoint: status changes, deletion, confirmation emails.
//!
//! Each action is a form that calls the API. Irreversible actions ask for confirmation on a page of their own first.

use maud::html;
use posthaste_api::problem::Problem;
use posthaste_api::resources::Endpoint;
use posthaste_api::route::Verb;
use serde_json::Value;

use super::subpage::{path, subpage};
use crate::components::{Confirmation, is_confirmed, url_text};
use crate::form::Form;
use crate::page::{ActionResult, FlashMessage};
use crate::page_request::PageRequest;

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
    if is_confirmed(&form) {
        return change_status(request, "disable", FlashMessage::Disabled).await;
    }
    let question = Question {
        title: "Disable the endpoint?",
        meaning: "Waiting deliveries fail, and no more requests are sent. After you enable the endpoint again, you can replay missed events. To hold deliveries instead, pause the endpoint.",
        answer: "Disable endpoint",
    };
    confirmation(&request, "disable", &question).await
}

pub(super) async fn delete(request: PageRequest, form: Form) -> Result<ActionResult, Problem> {
    if !is_confirmed(&form) {
        let question = Question {
            title: "Delete the endpoint?",
            meaning: "Waiting deliveries fail, and no more requests are sent. This cannot be undone. Past deliveries stay visible until their retention period ends.",
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
    let body = Confirmation {
        subject: html! { strong { (url_text(&endpoint.url)) } },
        meaning: html! { p { (question.meaning) } },
        fields: &[],
        answer: question.answer,
        class: "danger",
        action: &format!("{link}/{verb}"),
        cancel: &link,
    };
    let body = body.render(request);
    let page = subpage(request, question.title, &endpoint.url).static_section("sure", body);
    Ok(ActionResult::Page(page))
}
