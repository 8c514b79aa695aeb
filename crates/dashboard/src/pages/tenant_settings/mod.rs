//! The page of a tenant's settings: name, plan, limits, defaults of its endpoints, and deletion.
//!
//! The form is in `form`. Plan and limits are the operator's: a tenant's key sees them and cannot change them. The
//! portal has no such page.

mod form;

use http::StatusCode;
use maud::{Markup, html};
use posthaste_api::problem::Problem;
use posthaste_api::resources::{Plans, Tenant, Usage};
use posthaste_api::route::Verb;
use serde_json::Value;

use self::form::{LIMITS, TenantForm};
use super::policy_presets::policy_presets;
use super::setting_fields::{policy_fields, protection_fields};
use super::usage;
use crate::components::{
    Confirmation, Field, FieldErrors, action_button, copyable, csrf_field, is_confirmed, time,
};
use crate::form::Form;
use crate::page::{ActionResult, FlashMessage, Page, PageResult, Tab};
use crate::page_request::{PageRequest, page_not_found};
use crate::routes::{ActionHandler, PageHandler, Route, action_route, page_route};

pub(super) const PAGES: &[Route<PageHandler>] = &[page_route!(Tenant, "/settings", show)];

pub(super) const ACTIONS: &[Route<ActionHandler>] = &[
    action_route!(Tenant, "/settings", save),
    action_route!(Tenant, "/settings/delete", delete),
];

/// The form field that repeats the tenant's id before it is deleted.
const ID_FIELD: &str = "id";

async fn show(request: PageRequest) -> Result<PageResult, Problem> {
    if request.is_portal() {
        return Err(page_not_found());
    }
    let tenant: Tenant = request.tenant_get("").await?;
    let form = TenantForm::from_tenant(&tenant);
    Ok(page(&request, &tenant, &form, &FieldErrors::default())
        .await?
        .into())
}

async fn page(
    request: &PageRequest,
    tenant: &Tenant,
    form: &TenantForm,
    errors: &FieldErrors,
) -> Result<Page, Problem> {
    let presets = policy_presets(request).await?;
    let usage: Usage = request.tenant_get("/usage").await?;
    let plans: Vec<String> = match request.is_admin() {
        true => {
            let plans: Plans = request.get("/v1/plans").await?;
            plans.data.into_iter().map(|plan| plan.name).collect()
        }
        false => Vec::new(),
    };
    let fields = FormFields {
        request,
        form,
        errors,
        usage: &usage,
    };
    let page = Page::new(Tab::Settings, "Settings")
        .with_status(errors.status())
        .static_section("facts", facts(tenant))
        .static_section("form", fields.render(&plans, &presets));
    Ok(match request.is_admin() {
        true => page.static_section("danger", delete_section(request)),
        false => page,
    })
}

fn facts(tenant: &Tenant) -> Markup {
    html! {
        div.card {
            dl.facts {
                dt { "Tenant" } dd { (copyable(&tenant.id, "tenant id")) }
                dt { "Created" } dd { (time(&tenant.created_at)) }
            }
        }
    }
}

/// The fields of the form.
struct FormFields<'a> {
    request: &'a PageRequest,
    form: &'a TenantForm,
    errors: &'a FieldErrors,
    usage: &'a Usage,
}

impl FormFields<'_> {
    fn field<'f>(&'f self, name: &'f str, label: &'f str, hint: &'f str) -> Field<'f> {
        self.form.values.field(name, label, hint, self.errors)
    }

    fn render(&self, plans: &[String], presets: &[String]) -> Markup {
        let values = &self.form.values;
        let settings = &self.request.dashboard.app.settings;
        let preset = settings.default_policy.1["preset"].as_str();
        let policy = format!("{} (server)", preset.unwrap_or("custom policy"));
        let is_advanced = TenantForm::has_advanced_errors(self.errors);
        html! {
            (self.errors.summary())
            form.narrow method="post" action=(self.request.tenant_link("/settings")) {
                (csrf_field(self.request))
                fieldset {
                    legend { "Tenant" }
                    (self.field("name", "Name", "").line("text"))
                    @if self.request.is_admin() { (self.plan_field(plans)) }
                }
                @if self.request.is_admin() { (self.limit_fields()) } @else { (self.read_only_limits()) }
                details #advanced open[is_advanced] {
                    summary { "Defaults of its endpoints: retries, limits, protection" }
                    (policy_fields(values, self.errors, presets, &policy, Some(&self.request.tenant_link("/lab"))))
                    (self.default_fields())
                    (protection_fields(values, self.errors))
                }
                div.actions { button.primary type="submit" { "Save" } }
            }
        }
    }

    fn plan_field(&self, plans: &[String]) -> Markup {
        let current = self.form.values.get("plan");
        let mut choices: Vec<(&str, &str)> = vec![("", "No plan")];
        choices.extend(plans.iter().map(|plan| (plan.as_str(), plan.as_str())));
        // A plan that was removed from the configuration stays selected.
        if !choices.iter().any(|(plan, _)| *plan == current) {
            choices.push((current, current));
        }
        let hint = match plans.is_empty() {
            true => "The configuration has no plans.",
            false => "Sets the limits that are empty below.",
        };
        self.field("plan", "Plan", hint).choice(&choices)
    }

    fn limit_fields(&self) -> Markup {
        html! {
            fieldset {
                legend { "Limits" }
                p.hint { "If empty, the plan's limit applies, or the server's if the plan sets none. Only an admin key can change plan and limits." }
                div.pairs { @for (name, label) in LIMITS {
                    @let hint = self.limit_hint(name);
                    (self.field(name, label, &hint).line("text"))
                } }
            }
        }
    }

    fn limit_hint(&self, name: &str) -> String {
        let Some(limit) = self.usage.limits.get(name) else {
            return String::new();
        };
        let value = usage::allowed_text(&limit.limit);
        match limit.source.as_str() {
            "tenant" => String::new(),
            source => format!("Default: {value} ({source})."),
        }
    }

    fn read_only_limits(&self) -> Markup {
        html! {
            fieldset {
                legend { "Limits" }
                p.hint { "The operator of the server sets plan and limits." }
                dl.facts {
                    @if let Some(plan) = &self.usage.plan { dt { "Plan" } dd { (plan) } }
                    @for (name, label) in LIMITS { @if let Some(limit) = self.usage.limits.get(name) {
                        dt { (label) } dd { (usage::allowed_text(&limit.limit)) }
                    } }
                }
            }
        }
    }

    fn default_fields(&self) -> Markup {
        let server = &self.request.dashboard.app.settings.endpoint_defaults;
        let default = |value: &dyn std::fmt::Display| format!("Default: {value} (server).");
        let (timeout, in_flight) = (default(&server.timeout), default(&server.max_in_flight));
        let (rate, burst) = (
            default(&server.rate_limit.per_second),
            default(&server.rate_limit.burst),
        );
        html! {
            fieldset {
                legend { "Default limits of endpoints" }
                (self.field("timeout", "Timeout per attempt", &timeout).line("text"))
                (self.field("max_in_flight", "Max concurrent requests", &in_flight).line("text"))
                (self.field("per_second", "Max requests per second", &rate).line("text"))
                (self.field("burst", "Burst size", &burst).line("text"))
            }
        }
    }
}

fn delete_section(request: &PageRequest) -> Markup {
    html! {
        div.card {
            h2 { "Delete the tenant" }
            p.hint { "Its endpoints and keys are deleted, and waiting deliveries fail. This cannot be undone." }
            div.actions {
                // Leads to a page that asks for confirmation.
                (action_button(request, &request.tenant_link("/settings/delete"), "danger", "Delete tenant…"))
            }
        }
    }
}

async fn save(request: PageRequest, sent: Form) -> Result<ActionResult, Problem> {
    let form = TenantForm::read(&sent);
    let result = match form.document(request.is_admin()) {
        Err(errors) => Err(errors),
        Ok(document) => {
            let saved: Result<Value, Problem> =
                request.tenant_call(Verb::Patch, "", Some(document)).await;
            match saved {
                Ok(_) => Ok(()),
                Err(problem) if problem.errors.is_some() => {
                    Err(FieldErrors::new(&problem, form::form_field))
                }
                Err(problem) => return Err(problem),
            }
        }
    };
    match result {
        Ok(()) => request.redirect("/settings", FlashMessage::SettingsSaved),
        Err(errors) => {
            let tenant: Tenant = request.tenant_get("").await?;
            let page = page(&request, &tenant, &form, &errors).await?;
            Ok(ActionResult::Page(page))
        }
    }
}

/// Deletes the tenant, after the visitor has typed its id.
async fn delete(request: PageRequest, sent: Form) -> Result<ActionResult, Problem> {
    let id = request.tenant().to_string();
    let is_typed = sent.text(ID_FIELD) == id;
    if is_confirmed(&sent) && is_typed {
        let () = request.tenant_call(Verb::Delete, "", None).await?;
        let link = request.link("/tenants");
        return Ok(ActionResult::Redirect(link, FlashMessage::TenantDeleted));
    }
    let errors = match is_confirmed(&sent) {
        true => FieldErrors::default().with(ID_FIELD, "is not the id of this tenant"),
        false => FieldErrors::default(),
    };
    let link = request.tenant_link("/settings");
    let label = format!("Type {id} to confirm");
    let field = Field::new(ID_FIELD, &label, "", sent.text(ID_FIELD), &errors);
    let body = Confirmation {
        subject: html! { strong { (id) } },
        meaning: html! {
            p { "All its endpoints and keys are deleted, and waiting deliveries fail. This cannot be undone." }
            (field.line("text"))
        },
        fields: &[],
        answer: "Delete tenant",
        class: "danger",
        action: &request.tenant_link("/settings/delete"),
        cancel: &link,
    };
    let page = Page::new(Tab::Settings, "Delete the tenant?")
        .breadcrumb("Settings", link.clone())
        .with_status(match errors.is_empty() {
            true => StatusCode::OK,
            false => StatusCode::UNPROCESSABLE_ENTITY,
        })
        .static_section("sure", body.render(&request));
    Ok(ActionResult::Page(page))
}
