//! The form that creates or changes an endpoint. Each error is shown beside its field.

use http::StatusCode;
use maud::{Markup, html};
use posthaste_api::code::Code;
use posthaste_api::problem::Problem;
use posthaste_api::route::Verb;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::actions::shown_secret;
use super::{Endpoint, path};
use crate::form::Form;
use crate::layout::csrf;
use crate::page::{ActionResult, Done, Page, PageResult, Tab};
use crate::parts::{Field, Wrong};
use crate::visit::PageRequest;

/// The choice of a custom policy.
const OWN_POLICY: &str = "own";

/// The values of the form.
#[derive(Default)]
struct EndpointForm {
    url: String,
    description: String,
    event_types: String,
    policy: String,
    retry_policy: String,
    timeout: String,
    max_in_flight: String,
    per_second: String,
    burst: String,
    ordered: bool,
    headers: String,
    owner_email: String,
    signature_style: String,
    auth: String,
    client_certificate: String,
    secret: String,
    secret_kind: String,
}

impl EndpointForm {
    /// Fills the form from an existing endpoint. Secrets are not shown: their fields are empty.
    fn of(endpoint: &Endpoint) -> EndpointForm {
        let own = endpoint.retry_policy_from == "endpoint";
        let policy = &endpoint.retry_policy;
        let preset = policy["preset"].as_str().filter(|_| is_only_preset(policy));
        let (policy, written) = match (own, preset) {
            (false, _) => (String::new(), String::new()),
            (true, Some(preset)) => (preset.to_owned(), String::new()),
            (true, None) => (OWN_POLICY.to_owned(), pretty(policy)),
        };
        let header = |(name, value): (&String, &Value)| {
            format!("{name}: {}", value.as_str().unwrap_or_default())
        };
        EndpointForm {
            url: endpoint.url.clone(),
            description: endpoint.description.clone(),
            event_types: endpoint.event_types.join("\n"),
            policy,
            retry_policy: written,
            timeout: endpoint.timeout.clone(),
            max_in_flight: endpoint.max_in_flight.to_string(),
            per_second: endpoint.rate_limit.per_second.to_string(),
            burst: endpoint.rate_limit.burst.to_string(),
            ordered: endpoint.ordered,
            headers: endpoint
                .headers
                .iter()
                .map(header)
                .collect::<Vec<_>>()
                .join("\n"),
            owner_email: endpoint.owner_email.clone().unwrap_or_default(),
            signature_style: endpoint.signature_style.clone(),
            ..EndpointForm::default()
        }
    }

    /// Reads a submitted form.
    fn read(sent: &Form) -> EndpointForm {
        let text = |name: &str| sent.text(name).to_owned();
        EndpointForm {
            url: text("url"),
            description: text("description"),
            event_types: text("event_types"),
            policy: text("policy"),
            retry_policy: text("retry_policy"),
            timeout: text("timeout"),
            max_in_flight: text("max_in_flight"),
            per_second: text("per_second"),
            burst: text("burst"),
            ordered: sent.is_ticked("ordered"),
            headers: text("headers"),
            owner_email: text("owner_email"),
            signature_style: text("signature_style"),
            auth: text("auth"),
            client_certificate: text("client_certificate"),
            secret: text("secret"),
            secret_kind: text("secret_kind"),
        }
    }

    /// Builds the API's document, or returns the fields that cannot be parsed.
    fn document(&self, is_new: bool) -> Result<Value, Wrong> {
        let mut wrong = Wrong::default();
        let mut document = json!({
            "url": self.url,
            "description": self.description,
            "event_types": lines(&self.event_types).collect::<Vec<_>>(),
            "timeout": filled(&self.timeout),
            "max_in_flight": number(&self.max_in_flight),
            "ordered": self.ordered,
            "owner_email": filled(&self.owner_email),
            "signature_style": filled(&self.signature_style),
        });
        document["rate_limit"] = match (self.per_second.is_empty(), self.burst.is_empty()) {
            (true, true) => Value::Null,
            (_, _) => json!({"per_second": number(&self.per_second), "burst": number(&self.burst)}),
        };
        document["retry_policy"] = match self.policy.as_str() {
            "" => Value::Null,
            OWN_POLICY => match serde_json::from_str(&self.retry_policy) {
                Ok(policy) => policy,
                Err(error) => {
                    wrong = wrong.and("retry_policy", format!("is not JSON: {error}"));
                    Value::Null
                }
            },
            preset => json!({"preset": preset}),
        };
        match headers(&self.headers) {
            Ok(headers) => document["headers"] = Value::Object(headers),
            Err(message) => wrong = wrong.and("headers", message),
        }
        for (name, text) in [
            ("auth", &self.auth),
            ("client_certificate", &self.client_certificate),
        ] {
            if text.is_empty() {
                continue;
            }
            match serde_json::from_str(text) {
                Ok(value) => document[name] = value,
                // The input may contain a secret, so the message does not quote the parser's error.
                Err(_) => {
                    wrong = wrong.and(name, "is not JSON: look at the example, or leave it empty")
                }
            }
        }
        if is_new {
            document["secret"] = json!(filled(&self.secret));
            document["secret_kind"] = json!(filled(&self.secret_kind));
        }
        match wrong.is_empty() {
            true => Ok(document),
            false => Err(wrong),
        }
    }
}

fn is_only_preset(policy: &Value) -> bool {
    policy.as_object().is_some_and(|policy| policy.len() == 1)
}

pub(super) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn filled(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

/// Returns a number, or the text if it is none: the API then reports the error.
fn number(text: &str) -> Value {
    match (text.is_empty(), text.parse::<u64>(), text.parse::<f64>()) {
        (true, _, _) => Value::Null,
        (false, Ok(whole), _) => json!(whole),
        (false, Err(_), Ok(number)) => json!(number),
        (false, Err(_), Err(_)) => json!(text),
    }
}

/// Parses headers, one per line, in the notation of HTTP.
fn headers(text: &str) -> Result<Map<String, Value>, String> {
    let mut headers = Map::new();
    for line in lines(text) {
        let Some((name, value)) = line.split_once(':') else {
            return Err(
                "each line must be a name, a colon and a value: X-Team: billing".to_owned(),
            );
        };
        let name = name.trim();
        let value = json!(value.trim());
        if headers.insert(name.to_owned(), value).is_some() {
            return Err(format!("{name} stands here twice"));
        }
    }
    Ok(headers)
}

/// Maps an API field to its form field.
fn place(field: &str) -> Option<&'static str> {
    const PLACES: [(&str, &str); 17] = [
        ("rate_limit.per_second", "per_second"),
        ("rate_limit.burst", "burst"),
        ("rate_limit", "per_second"),
        ("url", "url"),
        ("description", "description"),
        ("event_types", "event_types"),
        ("retry_policy", "retry_policy"),
        ("timeout", "timeout"),
        ("max_in_flight", "max_in_flight"),
        ("ordered", "ordered"),
        ("headers", "headers"),
        ("owner_email", "owner_email"),
        ("signature_style", "signature_style"),
        ("auth", "auth"),
        ("client_certificate", "client_certificate"),
        ("secret_kind", "secret_kind"),
        ("secret", "secret"),
    ];
    let belongs = |(name, _): &&(&str, &str)| {
        let rest = field.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    PLACES.iter().find(belongs).map(|(_, place)| *place)
}

/// Returns a problem that can be shown in the form; other problems replace the form.
fn in_form(problem: Problem) -> Result<Wrong, Problem> {
    let is_about_it =
        ![Code::NotFound, Code::Unauthorized, Code::Forbidden].contains(&problem.code);
    match is_about_it {
        true => Ok(Wrong::new(&problem, place)),
        false => Err(problem),
    }
}

pub(super) async fn new(visit: PageRequest) -> Result<PageResult, Problem> {
    let filled = EndpointForm {
        signature_style: "standard".to_owned(),
        ..EndpointForm::default()
    };
    Ok(new_page(&visit, &filled, &Wrong::default()).await?.into())
}

async fn new_page(
    visit: &PageRequest,
    filled: &EndpointForm,
    wrong: &Wrong,
) -> Result<Page, Problem> {
    let presets = presets(visit).await?;
    let page = Page::new(Tab::Endpoints, "Add an endpoint");
    Ok(with_form(
        visit,
        page,
        filled,
        wrong,
        &presets,
        &visit.here("/endpoints/new"),
        true,
    ))
}

/// The API's answer to a new endpoint.
#[derive(Deserialize)]
struct Created {
    id: String,
    url: String,
    secret: String,
    public_key: Option<String>,
}

pub(super) async fn create(visit: PageRequest, sent: Form) -> Result<ActionResult, Problem> {
    let filled = EndpointForm::read(&sent);
    let created: Result<Created, Wrong> = match filled.document(true) {
        Err(wrong) => Err(wrong),
        Ok(document) => match visit.act(Verb::Post, "/endpoints", Some(document)).await {
            Ok(created) => Ok(created),
            Err(problem) => Err(in_form(problem)?),
        },
    };
    let created = match created {
        Ok(created) => created,
        Err(wrong) => return Ok(ActionResult::Page(new_page(&visit, &filled, &wrong).await?)),
    };
    let link = visit.here(&format!("/endpoints/{}", created.id));
    let body = html! {
        div.card {
            p { "Events it wants are delivered to it from now on. This is its signing secret:" }
            (shown_secret(&created.secret, created.public_key.as_deref()))
            div.actions { a.button.primary href=(link) { "To the endpoint" } }
        }
    };
    let page = Page::new(Tab::Endpoints, "The endpoint is there")
        .below("Endpoints", visit.here("/endpoints"))
        .below(created.url, link)
        .static_section("shown", body);
    Ok(ActionResult::Page(page))
}

pub(super) async fn edit(visit: PageRequest) -> Result<PageResult, Problem> {
    let endpoint: Endpoint = visit.get(&path(&visit)).await?;
    let filled = EndpointForm::of(&endpoint);
    let page = edit_page(&visit, &endpoint, &filled, &Wrong::default()).await?;
    Ok(page.into())
}

async fn edit_page(
    visit: &PageRequest,
    endpoint: &Endpoint,
    filled: &EndpointForm,
    wrong: &Wrong,
) -> Result<Page, Problem> {
    let presets = presets(visit).await?;
    let link = visit.here(&path(visit));
    let page = Page::new(Tab::Endpoints, "Edit the endpoint");
    let page = page
        .below("Endpoints", visit.here("/endpoints"))
        .below(endpoint.url.clone(), link.clone());
    let to = format!("{link}/edit");
    Ok(with_form(visit, page, filled, wrong, &presets, &to, false))
}

pub(super) async fn change(visit: PageRequest, sent: Form) -> Result<ActionResult, Problem> {
    let filled = EndpointForm::read(&sent);
    let path = path(&visit);
    let changed: Result<(), Wrong> = match filled.document(false) {
        Err(wrong) => Err(wrong),
        Ok(document) => {
            let changed: Result<Value, Problem> =
                visit.act(Verb::Patch, &path, Some(document)).await;
            match changed {
                Ok(_) => Ok(()),
                Err(problem) => Err(in_form(problem)?),
            }
        }
    };
    match changed {
        Ok(()) => Ok(ActionResult::Redirect(visit.here(&path), Done::Saved)),
        Err(wrong) => {
            let endpoint: Endpoint = visit.get(&path).await?;
            let page = edit_page(&visit, &endpoint, &filled, &wrong).await?;
            Ok(ActionResult::Page(page))
        }
    }
}

#[derive(Deserialize)]
struct Presets {
    data: Vec<Preset>,
}

#[derive(Deserialize)]
struct Preset {
    name: String,
}

async fn presets(visit: &PageRequest) -> Result<Vec<String>, Problem> {
    let presets: Presets = visit.read("/v1/policies").await?;
    Ok(presets.data.into_iter().map(|preset| preset.name).collect())
}

fn with_form(
    visit: &PageRequest,
    page: Page,
    filled: &EndpointForm,
    wrong: &Wrong,
    presets: &[String],
    to: &str,
    is_new: bool,
) -> Page {
    let status = match wrong.is_empty() {
        true => StatusCode::OK,
        false => StatusCode::UNPROCESSABLE_ENTITY,
    };
    let word = if is_new { "Add the endpoint" } else { "Save" };
    let body = html! {
        (wrong.summary())
        form.narrow method="post" action=(to) {
            (csrf(visit))
            (destination(filled, wrong, visit.dashboard.sends_letters()))
            (retrying(filled, wrong, presets, &visit.here("/lab")))
            (limits(filled, wrong))
            (proof(filled, wrong, is_new))
            div.actions {
                button.primary type="submit" { (word) }
                a href=(to.trim_end_matches("/edit").trim_end_matches("/new")) { "Cancel" }
            }
        }
    };
    page.static_section("form", body).with_status(status)
}

fn field<'a>(
    name: &'a str,
    label: &'a str,
    hint: &'a str,
    value: &'a str,
    wrong: &'a Wrong,
) -> Field<'a> {
    Field {
        name,
        label,
        hint,
        value,
        wrong,
    }
}

fn destination(filled: &EndpointForm, wrong: &Wrong, sends_letters: bool) -> Markup {
    let owner = match sends_letters {
        true => "Who is told by mail when it fails, is about to be disabled, or recovers.",
        false => "Whom to ask when it breaks. This server sends no mail.",
    };
    html! {
        fieldset {
            legend { "Where events go" }
            (field("url", "URL", "Where deliveries are sent to.", &filled.url, wrong).line("url"))
            (field("description", "Description", "", &filled.description, wrong).line("text"))
            (field("event_types", "Event types",
                "One in a line, such as invoice.paid or invoice.*; none means all.",
                &filled.event_types, wrong).lines(3))
            (field("owner_email", "Owner's e-mail", owner, &filled.owner_email, wrong).line("email"))
        }
    }
}

fn retrying(filled: &EndpointForm, wrong: &Wrong, presets: &[String], lab: &str) -> Markup {
    let mut choices = vec![("", "The default")];
    choices.extend(presets.iter().map(|name| (name.as_str(), name.as_str())));
    choices.push((OWN_POLICY, "Written out below"));
    html! {
        fieldset {
            legend { "When it is tried again" }
            (field("policy", "Retry policy", "", &filled.policy, wrong).choice(&choices))
            p.hint { a href=(lab) { "Look at them in the retry lab" } }
            (field("retry_policy", "Written out, as JSON", "Counts only if it is chosen above.", &filled.retry_policy, wrong).lines(6))
        }
    }
}

fn limits(filled: &EndpointForm, wrong: &Wrong) -> Markup {
    html! {
        fieldset {
            legend { "How gently" }
            (field("timeout", "Time limit of an attempt", "From 1s to 60s; empty means the default.", &filled.timeout, wrong).line("text"))
            (field("max_in_flight", "At most so many at once", "Empty means the default.", &filled.max_in_flight, wrong).line("text"))
            (field("per_second", "At most so many a second", "Empty means the default.", &filled.per_second, wrong).line("text"))
            (field("burst", "At most so many at once after a pause", "Empty means two seconds' worth.", &filled.burst, wrong).line("text"))
            label.choice {
                input type="checkbox" name="ordered" value="yes" checked[filled.ordered];
                " One after the other, for each ordering key"
            }
        }
    }
}

fn proof(filled: &EndpointForm, wrong: &Wrong, is_new: bool) -> Markup {
    let styles = [
        ("standard", "Standard Webhooks"),
        ("github", "Standard Webhooks, and as GitHub signs"),
        ("stripe", "Standard Webhooks, and as Stripe signs"),
    ];
    let kinds = [
        ("", "One that both sides share (hmac)"),
        ("ed25519", "A key pair (ed25519)"),
    ];
    let kept = match is_new {
        true => "Empty means none.",
        false => "Empty leaves it as it is; null removes it.",
    };
    let auth_hint = format!(
        "As JSON: {{\"kind\": \"bearer\", \"token\": \"…\"}}, {{\"kind\": \"basic\", \"username\": \"…\", \"password\": \"…\"}}, or oauth2. {kept}"
    );
    let certificate_hint = format!(
        "As JSON: {{\"certificate\": \"-----BEGIN…\", \"private_key\": \"-----BEGIN…\"}}. {kept}"
    );
    html! {
        fieldset {
            legend { "How the receiver knows who sends" }
            (field("signature_style", "Signatures", "", &filled.signature_style, wrong).choice(&styles))
            @if is_new {
                (field("secret_kind", "Signing secret", "It is made, and shown once it is there.", &filled.secret_kind, wrong).choice(&kinds))
                (field("secret", "Or one to take over", "whsec_… or whsk_…; empty means a fresh one.", &filled.secret, wrong).line("text"))
            }
            (field("headers", "Own headers", "One in a line: X-Team: billing", &filled.headers, wrong).lines(3))
            (field("auth", "Authorization", &auth_hint, &filled.auth, wrong).lines(3))
            (field("client_certificate", "Client certificate", &certificate_hint, &filled.client_certificate, wrong).lines(3))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::api_types::tests::endpoint;
    use super::*;

    #[test]
    fn what_is_filled_in_is_what_the_api_is_told() {
        let sent = Form::of(&[
            ("url", " https://example.com/hooks "),
            ("event_types", "invoice.paid\r\n\r\n user.* \r\n"),
            ("policy", "swift"),
            ("retry_policy", "not even looked at"),
            ("max_in_flight", "5"),
            ("per_second", "2.5"),
            ("ordered", "yes"),
            ("headers", "X-Team: billing\r\nX-Time: 12:30"),
            ("auth", "{\"kind\": \"bearer\", \"token\": \"x\"}"),
            ("signature_style", "github"),
        ]);
        let told = EndpointForm::read(&sent)
            .document(true)
            .expect("all is right");
        let wanted = json!({
            "url": "https://example.com/hooks", "description": "", "event_types": ["invoice.paid", "user.*"],
            "retry_policy": {"preset": "swift"}, "timeout": null, "max_in_flight": 5,
            "rate_limit": {"per_second": 2.5, "burst": null}, "ordered": true,
            "headers": {"X-Team": "billing", "X-Time": "12:30"}, "owner_email": null,
            "signature_style": "github", "auth": {"kind": "bearer", "token": "x"},
            "secret": null, "secret_kind": null,
        });
        assert_eq!(told, wanted);
        let changed = EndpointForm::read(&sent)
            .document(false)
            .expect("all is right");
        assert_eq!(changed.get("secret"), None);
        assert_eq!(changed.get("client_certificate"), None, "it stays as it is");
    }

    #[test]
    fn what_cannot_be_read_is_told_beside_its_field() {
        let sent = Form::of(&[
            ("policy", "own"),
            ("retry_policy", "{"),
            ("headers", "no colon"),
            ("auth", "hunter2"),
        ]);
        let wrong = EndpointForm::read(&sent)
            .document(true)
            .expect_err("much is wrong");
        for name in ["retry_policy", "headers", "auth"] {
            assert!(wrong.about(name).is_some(), "{name}");
        }
        assert!(!wrong.about("auth").unwrap_or_default().contains("hunter2"));
        assert!(headers("X-A: 1\nX-A: 2").is_err());
    }

    #[test]
    fn an_endpoint_saved_as_it_stands_stays_as_it_is() {
        let own = json!({"backoff": {"kind": "fixed", "interval": "10s"}, "jitter": {"kind": "none"},
            "max_attempts": 3, "give_up_after": "1h"});
        let shown = endpoint(&json!({
            "event_types": ["a.*", "b"], "retry_policy": own, "retry_policy_from": "endpoint",
            "owner_email": "ops@example.com",
        }));
        let told = EndpointForm::of(&shown)
            .document(false)
            .expect("all is right");
        assert_eq!(told["retry_policy"], own);
        assert_eq!(told["event_types"], json!(["a.*", "b"]));
        assert_eq!(told["rate_limit"], json!({"per_second": 50, "burst": 100}));
        assert_eq!(told["headers"], json!({"X-Team": "billing"}));
        let inherited = endpoint(&json!({"retry_policy_from": "tenant"}));
        let told = EndpointForm::of(&inherited)
            .document(false)
            .expect("all is right");
        assert_eq!(told["retry_policy"], Value::Null, "it stays inherited");
    }

    #[test]
    fn every_field_of_the_api_has_its_place() {
        for (field, wanted) in [
            ("url", Some("url")),
            ("rate_limit.burst", Some("burst")),
            ("rate_limit", Some("per_second")),
            ("event_types[3]", Some("event_types")),
            ("headers.X-Team", Some("headers")),
            ("retry_policy.jitter.kind", Some("retry_policy")),
            ("secret_kind", Some("secret_kind")),
            ("auth.token", Some("auth")),
            ("urls", None),
        ] {
            assert_eq!(place(field), wanted, "{field}");
        }
    }
}
