//! The pages with the form that creates or changes an endpoint.
//!
//! The form itself is in `form`. Its document is sent to the API, whose errors are shown beside their fields, together
//! with those found here. Values that were typed are kept.

use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{CreatedEndpoint, Endpoint};
use posthaste_api::route::Verb;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::form::{EndpointForm, errors_in_form};
use super::secret::secret_text;
use super::subpage::path;
use crate::components::{FieldErrors, csrf_field};
use crate::form::Form;
use crate::page::{ActionResult, FlashMessage, Page, PageResult, Tab};
use crate::page_request::PageRequest;
use crate::pages::policy_presets::{policy_choices, policy_presets};

pub(super) async fn new(request: PageRequest) -> Result<PageResult, Problem> {
    let form = EndpointForm::new();
    Ok(new_page(&request, &form, &FieldErrors::default())
        .await?
        .into())
}

async fn new_page(
    request: &PageRequest,
    form: &EndpointForm,
    errors: &FieldErrors,
) -> Result<Page, Problem> {
    let presets = policy_presets(request).await?;
    let page = Page::new(Tab::Endpoints, "Add endpoint");
    Ok(with_form(
        request,
        page,
        form,
        errors,
        &presets,
        &request.tenant_link("/endpoints/new"),
        true,
    ))
}

pub(super) async fn create(request: PageRequest, sent: Form) -> Result<ActionResult, Problem> {
    let form = EndpointForm::read(&sent);
    let document = form.document(true);
    let created: CreatedEndpoint = match call(&request, Verb::Post, "/endpoints", document).await? {
        Ok(created) => created,
        Err(errors) => {
            let page = new_page(&request, &form, &errors).await?;
            return Ok(ActionResult::Page(page));
        }
    };
    let link = request.tenant_link(&format!("/endpoints/{}", created.id));
    let body = html! {
        div.card {
            p { "Matching events are delivered from now on. This is the signing secret:" }
            (secret_text(&created.secret, created.public_key.as_deref()))
            div.actions { a.button.primary href=(link) { "Open endpoint" } }
        }
    };
    let page = Page::new(Tab::Endpoints, "Endpoint created")
        .breadcrumb("Endpoints", request.tenant_link("/endpoints"))
        .breadcrumb(created.url.clone(), link)
        .static_section("shown", body);
    Ok(ActionResult::Page(page))
}

pub(super) async fn edit(request: PageRequest) -> Result<PageResult, Problem> {
    let endpoint: Endpoint = request.tenant_get(&path(&request)).await?;
    let form = EndpointForm::from_endpoint(&endpoint);
    let page = edit_page(&request, &endpoint, &form, &FieldErrors::default()).await?;
    Ok(page.into())
}

async fn edit_page(
    request: &PageRequest,
    endpoint: &Endpoint,
    form: &EndpointForm,
    errors: &FieldErrors,
) -> Result<Page, Problem> {
    let presets = policy_presets(request).await?;
    let link = request.tenant_link(&path(request));
    let page = Page::new(Tab::Endpoints, "Edit endpoint");
    let page = page
        .breadcrumb("Endpoints", request.tenant_link("/endpoints"))
        .breadcrumb(endpoint.url.clone(), link.clone());
    let action = format!("{link}/edit");
    Ok(with_form(
        request, page, form, errors, &presets, &action, false,
    ))
}

pub(super) async fn change(request: PageRequest, sent: Form) -> Result<ActionResult, Problem> {
    let form = EndpointForm::read(&sent);
    let path = path(&request);
    match call::<Value>(&request, Verb::Patch, &path, form.document(false)).await? {
        Ok(_) => {
            let link = request.tenant_link(&path);
            Ok(ActionResult::Redirect(link, FlashMessage::Saved))
        }
        Err(errors) => {
            let endpoint: Endpoint = request.tenant_get(&path).await?;
            let page = edit_page(&request, &endpoint, &form, &errors).await?;
            Ok(ActionResult::Page(page))
        }
    }
}

/// Sends a valid document to the API. Returns the errors in the form, whether they were found here or by the API.
async fn call<T: DeserializeOwned>(
    request: &PageRequest,
    verb: Verb,
    path: &str,
    document: Result<Value, FieldErrors>,
) -> Result<Result<T, FieldErrors>, Problem> {
    let document = match document {
        Ok(document) => document,
        Err(errors) => return Ok(Err(errors)),
    };
    match request.tenant_call(verb, path, Some(document)).await {
        Ok(response) => Ok(Ok(response)),
        Err(problem) => errors_in_form(problem).map(Err),
    }
}

fn with_form(
    request: &PageRequest,
    page: Page,
    form: &EndpointForm,
    errors: &FieldErrors,
    presets: &[String],
    action: &str,
    is_new: bool,
) -> Page {
    let label = if is_new { "Create endpoint" } else { "Save" };
    let body = html! {
        (errors.summary())
        form.narrow method="post" action=(action) {
            (csrf_field(request))
            (destination_fields(form, errors, request.dashboard.sends_email()))
            (retry_fields(form, errors, presets, &request.tenant_link("/lab")))
            (limit_fields(form, errors))
            (protection_fields(form, errors))
            (authentication_fields(form, errors, is_new))
            div.actions {
                button.primary type="submit" { (label) }
                a href=(action.trim_end_matches("/edit").trim_end_matches("/new")) { "Cancel" }
            }
        }
    };
    page.static_section("form", body)
        .with_status(errors.status())
}

fn destination_fields(form: &EndpointForm, errors: &FieldErrors, sends_email: bool) -> Markup {
    let owner_hint = match sends_email {
        true => "Gets an email when the endpoint fails, will be disabled or recovers.",
        false => "Contact for problems with this endpoint. This server sends no emails.",
    };
    html! {
        fieldset {
            legend { "Destination" }
            (form.field("url", "URL", "Deliveries are sent to this URL.", errors).line("url"))
            (form.field("description", "Description", "", errors).line("text"))
            (form.field("event_types", "Event types",
                "One per line, for example invoice.paid or invoice.*. Empty means all.", errors).lines(3))
            (form.field("owner_email", "Owner email", owner_hint, errors).line("email"))
        }
    }
}

fn retry_fields(
    form: &EndpointForm,
    errors: &FieldErrors,
    presets: &[String],
    lab: &str,
) -> Markup {
    let choices: Vec<(&str, &str)> = [("", "Default")]
        .into_iter()
        .chain(policy_choices(presets))
        .collect();
    html! {
        fieldset {
            legend { "Retries" }
            (form.field("policy", "Retry policy", "", errors).choice(&choices))
            p.hint { a href=(lab) { "Compare policies in the retry lab" } }
            (form.field("retry_policy", "Policy as JSON", "Used only if “Custom JSON” is selected above.", errors).lines(6))
        }
    }
}

fn limit_fields(form: &EndpointForm, errors: &FieldErrors) -> Markup {
    html! {
        fieldset {
            legend { "Rate limits" }
            (form.field("timeout", "Timeout per attempt", "1s to 60s. Empty means the default.", errors).line("text"))
            (form.field("max_in_flight", "Max concurrent requests", "Empty means the default.", errors).line("text"))
            (form.field("per_second", "Max requests per second", "Empty means the default.", errors).line("text"))
            (form.field("burst", "Burst size", "Empty means two seconds at the rate limit.", errors).line("text"))
            label.choice {
                input type="checkbox" name="ordered" value="yes" checked[form.is_ordered];
                " Ordered delivery (per ordering key)"
            }
        }
    }
}

fn protection_fields(form: &EndpointForm, errors: &FieldErrors) -> Markup {
    let on_gone = [
        ("", "Default"),
        ("true", "Disable the endpoint"),
        ("false", "Keep it enabled"),
    ];
    html! {
        fieldset {
            legend { "Protection" }
            p.hint { "When deliveries are held, and when the endpoint is disabled. Empty means the default of the tenant or server." }
            (form.field("refusals", "Hold deliveries after this many refusals",
                "Without a success in between, for example 401, 404 or 422.", errors).line("text"))
            (form.field("consecutive_failures", "Hold deliveries after this many failures in a row",
                "For example 503 or a timeout.", errors).line("text"))
            (form.field("disable_after", "Disable after failing for", "A duration, for example 5d.", errors).line("text"))
            (form.field("warn_before", "Warn the owner in advance by", "A duration, for example 1d.", errors).line("text"))
            (form.field("on_gone", "When the receiver responds with 410 Gone", "", errors).choice(&on_gone))
        }
    }
}

fn authentication_fields(form: &EndpointForm, errors: &FieldErrors, is_new: bool) -> Markup {
    let styles = [
        ("standard", "Standard Webhooks"),
        ("github", "Standard Webhooks and GitHub"),
        ("stripe", "Standard Webhooks and Stripe"),
    ];
    let kinds = [
        ("", "Shared secret (hmac)"),
        ("ed25519", "Key pair (ed25519)"),
    ];
    let if_empty = match is_new {
        true => "Empty means none.",
        false => "Empty keeps the current value; null removes it.",
    };
    let auth_hint = format!(
        "As JSON: {{\"kind\": \"bearer\", \"token\": \"…\"}}, {{\"kind\": \"basic\", \"username\": \"…\", \"password\": \"…\"}}, or oauth2. {if_empty}"
    );
    let certificate_hint = format!(
        "As JSON: {{\"certificate\": \"-----BEGIN…\", \"private_key\": \"-----BEGIN…\"}}. {if_empty}"
    );
    html! {
        fieldset {
            legend { "Authentication" }
            (form.field("signature_style", "Signatures", "", errors).choice(&styles))
            @if is_new {
                (form.field("secret_kind", "Signing secret", "Generated, and shown after the endpoint is created.", errors).choice(&kinds))
                (form.field("secret", "Import a secret", "whsec_… or whsk_…. Empty generates a new one.", errors).line("text"))
            }
            (form.field("headers", "Custom headers", "One per line, for example X-Team: billing", errors).lines(3))
            (form.field("auth", "Authorization", &auth_hint, errors).lines(3))
            (form.field("client_certificate", "Client certificate", &certificate_hint, errors).lines(3))
        }
    }
}
