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

use super::auth_fields;
use super::form::{EndpointForm, errors_in_form};
use super::secret::secret_text;
use super::subpage::path;
use crate::components::{Field, FieldErrors, csrf_field};
use crate::form::Form;
use crate::page::{ActionResult, FlashMessage, Page, PageResult, Tab};
use crate::page_request::PageRequest;
use crate::pages::inherited_limits::InheritedLimits;
use crate::pages::policy_presets::policy_presets;
use crate::pages::setting_fields::{policy_fields, protection_fields};

pub(super) async fn new(request: PageRequest) -> Result<PageResult, Problem> {
    let inherited = InheritedLimits::load(&request).await?;
    let form = EndpointForm::new(&inherited);
    Ok(
        new_page(&request, &form, &inherited, &FieldErrors::default())
            .await?
            .into(),
    )
}

async fn new_page(
    request: &PageRequest,
    form: &EndpointForm,
    inherited: &InheritedLimits,
    errors: &FieldErrors,
) -> Result<Page, Problem> {
    let presets = policy_presets(request).await?;
    let page = Page::new(Tab::Endpoints, "Add endpoint")
        .breadcrumb("Endpoints", request.tenant_link("/endpoints"));
    let parts = FormParts {
        form,
        errors,
        presets: &presets,
        inherited,
        is_new: true,
    };
    Ok(parts.add_to(request, page, &request.tenant_link("/endpoints/new")))
}

pub(super) async fn create(request: PageRequest, sent: Form) -> Result<ActionResult, Problem> {
    let inherited = InheritedLimits::load(&request).await?;
    let form = EndpointForm::read(&sent, None);
    let document = form.document(true, &inherited);
    let created: CreatedEndpoint = match call(&request, Verb::Post, "/endpoints", document).await? {
        Ok(created) => created,
        Err(errors) => {
            let page = new_page(&request, &form, &inherited, &errors).await?;
            return Ok(ActionResult::Page(page));
        }
    };
    let link = request.tenant_link(&format!("/endpoints/{}", created.id));
    let body = html! {
        div.card {
            p { "New matching events are delivered to this endpoint. Its signing secret is:" }
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
    let inherited = InheritedLimits::load(&request).await?;
    let form = EndpointForm::from_endpoint(&endpoint);
    let none = FieldErrors::default();
    let page = edit_page(&request, &endpoint, &form, &inherited, &none).await?;
    Ok(page.into())
}

async fn edit_page(
    request: &PageRequest,
    endpoint: &Endpoint,
    form: &EndpointForm,
    inherited: &InheritedLimits,
    errors: &FieldErrors,
) -> Result<Page, Problem> {
    let presets = policy_presets(request).await?;
    let link = request.tenant_link(&path(request));
    let page = Page::new(Tab::Endpoints, "Edit endpoint");
    let page = page
        .breadcrumb("Endpoints", request.tenant_link("/endpoints"))
        .breadcrumb(endpoint.url.clone(), link.clone());
    let parts = FormParts {
        form,
        errors,
        presets: &presets,
        inherited,
        is_new: false,
    };
    Ok(parts.add_to(request, page, &format!("{link}/edit")))
}

pub(super) async fn change(request: PageRequest, sent: Form) -> Result<ActionResult, Problem> {
    let path = path(&request);
    let endpoint: Endpoint = request.tenant_get(&path).await?;
    let inherited = InheritedLimits::load(&request).await?;
    let form = EndpointForm::read(&sent, Some(&endpoint));
    let document = form.document(false, &inherited);
    match call::<Value>(&request, Verb::Patch, &path, document).await? {
        Ok(_) => {
            let link = request.tenant_link(&path);
            Ok(ActionResult::Redirect(link, FlashMessage::Saved))
        }
        Err(errors) => {
            let page = edit_page(&request, &endpoint, &form, &inherited, &errors).await?;
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

/// The parts of the form.
struct FormParts<'a> {
    form: &'a EndpointForm,
    errors: &'a FieldErrors,
    presets: &'a [String],
    inherited: &'a InheritedLimits,
    is_new: bool,
}

impl FormParts<'_> {
    /// Adds the form to a page: the few fields that matter first, the others under "Advanced".
    fn add_to(&self, request: &PageRequest, page: Page, action: &str) -> Page {
        let (form, errors) = (self.form, self.errors);
        let label = if self.is_new {
            "Create endpoint"
        } else {
            "Save"
        };
        // The retry lab is not part of the portal.
        let lab = (!request.is_portal()).then(|| request.tenant_link("/lab"));
        let body = html! {
            (errors.summary())
            form.narrow method="post" action=(action) {
                (csrf_field(request))
                (self.first_fields(request.dashboard.sends_email()))
                details #advanced open[EndpointForm::has_advanced_errors(errors)] {
                    summary { "Advanced: retries, limits, signatures, authentication, headers" }
                    (policy_fields(&form.values, errors, self.presets, &self.inherited.policy, lab.as_deref()))
                    (self.limit_fields())
                    (protection_fields(&form.values, errors))
                    (self.signature_fields())
                    (auth_fields::fields(&form.values, errors))
                    (self.header_fields())
                }
                div.actions {
                    button.primary type="submit" { (label) }
                    a href=(action.trim_end_matches("/edit").trim_end_matches("/new")) { "Cancel" }
                }
            }
        };
        page.static_section("form", body)
            .with_status(errors.status())
    }

    fn field<'f>(&'f self, name: &'f str, label: &'f str, hint: &'f str) -> Field<'f> {
        self.form.values.field(name, label, hint, self.errors)
    }

    fn first_fields(&self, sends_email: bool) -> Markup {
        let owner_hint = match sends_email {
            true => "Gets an email when the endpoint fails, will be disabled or recovers.",
            false => {
                "Contact for problems with this endpoint. Email is not configured on this server."
            }
        };
        html! {
            fieldset {
                legend { "Destination" }
                (self.field("url", "URL", "Deliveries are sent to this URL.").line("url"))
                (self.field("event_types", "Event types",
                    "One per line, for example invoice.paid or invoice.*. Empty means all.").lines(3))
                (self.field("description", "Description", "").line("text"))
                (self.field("owner_email", "Owner email", owner_hint).line("email"))
            }
        }
    }

    fn limit_fields(&self) -> Markup {
        let default = |name: &str| format!("Default: {}.", self.inherited.of(name));
        let (timeout, in_flight, rate, burst) = (
            format!("1s to 60s. {}", default("timeout")),
            default("max_in_flight"),
            default("per_second"),
            format!(
                "Requests allowed at once after an idle period. {}",
                default("burst")
            ),
        );
        html! {
            fieldset #limits {
                legend { "Limits" }
                p.hint { "A limit that you leave at its default changes when the default changes." }
                (self.field("timeout", "Timeout per attempt", &timeout).line("text"))
                (self.field("max_in_flight", "Max concurrent requests", &in_flight).line("text"))
                (self.field("per_second", "Max requests per second", &rate).line("text"))
                (self.field("burst", "Burst size", &burst).line("text"))
                label.choice {
                    input type="checkbox" name="ordered" value="yes" checked[self.form.is_ordered];
                    " Ordered delivery (per ordering key)"
                }
            }
        }
    }

    fn signature_fields(&self) -> Markup {
        let styles = [
            ("standard", "Standard Webhooks"),
            ("github", "Standard Webhooks and GitHub"),
            ("stripe", "Standard Webhooks and Stripe"),
        ];
        let kinds = [
            ("", "Shared secret (hmac)"),
            ("ed25519", "Key pair (ed25519)"),
        ];
        html! {
            fieldset {
                legend { "Signatures" }
                (self.field("signature_style", "Signature headers", "").choice(&styles))
                @if self.is_new {
                    (self.field("secret_kind", "Signing secret", "Generated, and shown after the endpoint is created.").choice(&kinds))
                    (self.field("secret", "Import a secret", "whsec_… or whsk_…. Empty generates a new one.").line("text"))
                }
            }
        }
    }

    fn header_fields(&self) -> Markup {
        html! {
            fieldset {
                legend { "Headers" }
                (self.field("headers", "Custom headers", "One per line, for example X-Team: billing").lines(3))
            }
        }
    }
}
