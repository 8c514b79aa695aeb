//! Actions on an endpoint. Irreversible ones ask for confirmation first; secrets are shown on a page that is not
//! cached.

use maud::{Markup, html};
use posthaste_api::code::Code;
use posthaste_api::problem::Problem;
use posthaste_api::route::Verb;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Endpoint, form, path, whole};
use crate::form::Form;
use crate::layout::csrf;
use crate::page::{ActionResult, Done, Page, Tab};
use crate::pages::{ActionHandler, At, Reach, at, in_utc};
use crate::parts::{Wrong, copied, time};
use crate::visit::PageRequest;

pub(in crate::pages) const ACTIONS: &[At<ActionHandler>] = &[
    at(Reach::Tenant, "/endpoints/new", |visit, sent| {
        Box::pin(form::create(visit, sent))
    }),
    at(
        Reach::Tenant,
        "/endpoints/{endpoint}/edit",
        |visit, sent| Box::pin(form::change(visit, sent)),
    ),
    at(Reach::Tenant, "/endpoints/{endpoint}/pause", |visit, _| {
        Box::pin(stand(visit, "pause", Done::Paused))
    }),
    at(Reach::Tenant, "/endpoints/{endpoint}/resume", |visit, _| {
        Box::pin(stand(visit, "resume", Done::Resumed))
    }),
    at(Reach::Tenant, "/endpoints/{endpoint}/enable", |visit, _| {
        Box::pin(enable(visit))
    }),
    at(
        Reach::Tenant,
        "/endpoints/{endpoint}/disable",
        |visit, sent| Box::pin(disable(visit, sent)),
    ),
    at(
        Reach::Tenant,
        "/endpoints/{endpoint}/delete",
        |visit, sent| Box::pin(delete(visit, sent)),
    ),
    at(Reach::Tenant, "/endpoints/{endpoint}/test", |visit, _| {
        Box::pin(test(visit))
    }),
    at(
        Reach::Tenant,
        "/endpoints/{endpoint}/missed",
        |visit, sent| Box::pin(replay_missed(visit, sent)),
    ),
    at(Reach::Tenant, "/endpoints/{endpoint}/secret", |visit, _| {
        Box::pin(show_secret(visit))
    }),
    at(
        Reach::Tenant,
        "/endpoints/{endpoint}/rotate",
        |visit, sent| Box::pin(rotate(visit, sent)),
    ),
];

/// Form field that says that the visitor has confirmed.
const CONFIRMED_FIELD: &str = "sure";

/// Performs an API verb that changes the endpoint status.
async fn stand(visit: PageRequest, verb: &str, done: Done) -> Result<ActionResult, Problem> {
    let path = path(&visit);
    let _: Value = visit
        .act(Verb::Post, &format!("{path}/{verb}"), None)
        .await?;
    Ok(ActionResult::Redirect(visit.here(&path), done))
}

async fn enable(visit: PageRequest) -> Result<ActionResult, Problem> {
    let path = path(&visit);
    let _: Value = visit
        .act(Verb::Post, &format!("{path}/enable"), None)
        .await?;
    // Leads to the form that replays what the endpoint missed while it was disabled.
    let link = format!("{}#missed-form", visit.here(&path));
    Ok(ActionResult::Redirect(link, Done::Enabled))
}

async fn disable(visit: PageRequest, sent: Form) -> Result<ActionResult, Problem> {
    if sent.is_ticked(CONFIRMED_FIELD) {
        return stand(visit, "disable", Done::Disabled).await;
    }
    let question = Question {
        title: "Disable the endpoint?",
        meaning: "What waits for it fails, and nothing more is sent to it. After it is enabled again, what it missed can be replayed. To hold deliveries without losing any, pause it instead.",
        answer: "Yes, disable it",
    };
    ask(&visit, "disable", &question).await
}

async fn delete(visit: PageRequest, sent: Form) -> Result<ActionResult, Problem> {
    if !sent.is_ticked(CONFIRMED_FIELD) {
        let question = Question {
            title: "Delete the endpoint?",
            meaning: "What waits for it fails, nothing more is sent to it, and that cannot be undone. What was delivered can be looked up until it ages out.",
            answer: "Yes, delete it",
        };
        return ask(&visit, "delete", &question).await;
    }
    let () = visit.act(Verb::Delete, &path(&visit), None).await?;
    Ok(ActionResult::Redirect(
        visit.here("/endpoints"),
        Done::Deleted,
    ))
}

struct Question {
    title: &'static str,
    meaning: &'static str,
    answer: &'static str,
}

/// Shows a page that asks for confirmation.
async fn ask(
    visit: &PageRequest,
    verb: &str,
    question: &Question,
) -> Result<ActionResult, Problem> {
    let path = path(visit);
    let endpoint: Endpoint = visit.get(&path).await?;
    let link = visit.here(&path);
    let body = html! {
        div.card {
            p { strong { (endpoint.url) } }
            p { (question.meaning) }
            form method="post" action={ (link) "/" (verb) } {
                (csrf(visit))
                input type="hidden" name=(CONFIRMED_FIELD) value="yes";
                div.actions {
                    button.danger type="submit" { (question.answer) }
                    a href=(link) { "No, go back" }
                }
            }
        }
    };
    let page = below(visit, question.title, &endpoint.url).static_section("sure", body);
    Ok(ActionResult::Page(page))
}

/// Creates a page below the endpoint's page.
fn below(visit: &PageRequest, title: &str, url: &str) -> Page {
    Page::new(Tab::Endpoints, title)
        .below("Endpoints", visit.here("/endpoints"))
        .below(url, visit.here(&path(visit)))
}

#[derive(Deserialize)]
struct Accepted {
    id: String,
    deliveries: Vec<AcceptedDelivery>,
}

#[derive(Deserialize)]
struct AcceptedDelivery {
    id: String,
}

#[derive(Deserialize)]
struct TestDelivery {
    status: String,
}

async fn test(visit: PageRequest) -> Result<ActionResult, Problem> {
    let target = format!("{}/test", path(&visit));
    let accepted: Accepted = visit.act(Verb::Post, &target, None).await?;
    let link = match accepted.deliveries.first() {
        Some(delivery) => visit.here(&format!("/deliveries/{}", delivery.id)),
        None => visit.here(&format!("/events/{}", accepted.id)),
    };
    let done = match accepted.deliveries.first() {
        None => Done::Tested,
        Some(delivery) => {
            let path = format!("/deliveries/{}", delivery.id);
            let shown: TestDelivery = visit.get(&path).await?;
            match shown.status.as_str() {
                "held" => Done::TestHeld,
                _ => Done::Tested,
            }
        }
    };
    Ok(ActionResult::Redirect(link, done))
}

#[derive(Deserialize)]
struct Replay {
    id: String,
}

async fn replay_missed(visit: PageRequest, sent: Form) -> Result<ActionResult, Problem> {
    let since = sent.text("since");
    let document = json!({"endpoint": visit.name("endpoint"), "missed_since": in_utc(since)});
    let begun: Result<Replay, Problem> = visit.act(Verb::Post, "/replays", Some(document)).await;
    match begun {
        Ok(replay) => {
            let link = visit.here(&format!("/replays/{}", replay.id));
            Ok(ActionResult::Redirect(link, Done::ReplayBegun))
        }
        Err(problem) if problem.code == Code::Invalid => {
            let place = |field: &str| (field == "missed_since").then_some("since");
            let wrong = Wrong::new(&problem, place);
            Ok(ActionResult::Page(
                whole(&visit, &wrong, Some(since)).await?,
            ))
        }
        Err(problem) => Err(problem),
    }
}

/// The current secret, and previous ones that still sign.
#[derive(Deserialize)]
struct Secret {
    secret: String,
    public_key: Option<String>,
    previous: Vec<Previous>,
}

#[derive(Deserialize)]
struct Previous {
    secret: String,
    valid_until: String,
}

async fn show_secret(visit: PageRequest) -> Result<ActionResult, Problem> {
    let secret: Secret = visit.get(&format!("{}/secret", path(&visit))).await?;
    secret_page(&visit, "Signing secret", &secret).await
}

async fn rotate(visit: PageRequest, sent: Form) -> Result<ActionResult, Problem> {
    let document = match sent.filled("overlap") {
        None => json!({}),
        Some(overlap) => json!({"overlap": overlap}),
    };
    let target = format!("{}/secret/rotate", path(&visit));
    let secret: Secret = visit.act(Verb::Post, &target, Some(document)).await?;
    secret_page(&visit, "The new signing secret", &secret).await
}

async fn secret_page(
    visit: &PageRequest,
    title: &str,
    secret: &Secret,
) -> Result<ActionResult, Problem> {
    let endpoint: Endpoint = visit.get(&path(visit)).await?;
    let body = html! {
        div.card {
            (shown_secret(&secret.secret, secret.public_key.as_deref()))
            @if !secret.previous.is_empty() {
                h2 { "Earlier secrets that still sign along" }
                ul { @for earlier in &secret.previous {
                    li { (copied(&earlier.secret, "an earlier secret")) " until " (time(&earlier.valid_until)) }
                } }
            }
            div.actions { a.button href=(visit.here(&path(visit))) { "Done" } }
        }
    };
    Ok(ActionResult::Page(
        below(visit, title, &endpoint.url).static_section("shown", body),
    ))
}

/// Renders a secret for the person who configures the receiver.
pub(super) fn shown_secret(secret: &str, public_key: Option<&str>) -> Markup {
    html! {
        p { "Give it to the receiver, and to nobody else. The endpoint's page shows it again to whoever asks for it there." }
        p { (copied(secret, "the secret")) }
        @if let Some(key) = public_key {
            p { "Receivers verify with the public half:" }
            p { (copied(key, "the public key")) }
        }
    }
}
