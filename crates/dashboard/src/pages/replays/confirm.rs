//! The question before a replay starts: how many deliveries match its filter.
//!
//! The filter is in the URL, so that the question can be shared by its link. Only the button starts the replay.

use http::StatusCode;
use maud::html;
use posthaste_api::problem::Problem;
use posthaste_api::resources::{ReplayFilter, ReplayPreview};
use posthaste_api::route::Verb;
use posthaste_charts::format::count;

use super::description::filter_text;
use super::form::ReplayForm;
use super::list_page;
use crate::components::{Confirmation, empty_list};
use crate::page::{Page, PageResult, Tab};
use crate::page_request::PageRequest;
use crate::pages::endpoint_lookup::EndpointLookup;

pub(super) async fn show(request: PageRequest) -> Result<PageResult, Problem> {
    let mut form = ReplayForm::read(|name| request.query(name));
    if let Some(document) = form.document(request.now) {
        let call = request.tenant_call(Verb::Post, "/replays/preview", Some(document.clone()));
        match call.await {
            Ok(preview) => return Ok(question(&request, &form, document, preview).await?.into()),
            Err(problem) if form.add_api_errors(&problem) => {}
            Err(problem) => return Err(problem),
        }
    }
    let page = list_page(&request, &form).await?;
    Ok(page.with_status(StatusCode::UNPROCESSABLE_ENTITY).into())
}

async fn question(
    request: &PageRequest,
    form: &ReplayForm,
    document: serde_json::Value,
    preview: ReplayPreview,
) -> Result<Page, Problem> {
    let filter: ReplayFilter =
        serde_json::from_value(document).map_err(|error| Problem::internal(&error))?;
    let mut lookup = EndpointLookup::empty();
    let endpoint: Vec<&str> = filter.endpoint.as_deref().into_iter().collect();
    lookup.look_up(request, &endpoint).await?;
    let matching = match preview.total {
        1 => "1 delivery".to_owned(),
        total => format!("{} deliveries", count(total)),
    };
    let change = request.tenant_link(&format!("/replays{}#new-replay", form.page_query()));
    let text = filter_text(&filter, &lookup);
    let body = match preview.total {
        0 => html! {
            p { (text) "." }
            (empty_list("No deliveries match this filter."))
            p { a href=(change) { "Change the filter" } }
        },
        _ => {
            // The times that were counted are sent, so that the replay has the same filter.
            let fields = form.counted_fields(request.now);
            let fields: Vec<(&str, &str)> = fields
                .iter()
                .map(|(name, text)| (*name, text.as_str()))
                .collect();
            let question = Confirmation {
                subject: html! {
                    strong { (matching) } @if preview.total == 1 { " matches: " } @else { " match: " } (text) "."
                },
                meaning: html! {
                    p.hint {
                        "They are sent again in the background. The endpoints' limits apply, and new deliveries are sent first. "
                        "Receivers get the same " code { "webhook-id" } " again and can recognise duplicates."
                    }
                },
                fields: &fields,
                answer: &format!("Replay {matching}"),
                class: "primary",
                action: &request.tenant_link("/replays/begin"),
                cancel: &change,
            };
            question.render(request)
        }
    };
    Ok(Page::new(Tab::Replays, "Start this replay?")
        .breadcrumb("Replays", request.tenant_link("/replays"))
        .static_section("sure", body))
}
