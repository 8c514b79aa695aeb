//! Reads the body of a one-off request, and reports all its mistakes at once.

use http::HeaderMap;
use posthaste_core::address::{Destination, DestinationError};
use posthaste_core::ingest::Fingerprint;
use posthaste_core::lane::{MAX_TIMEOUT, MIN_TIMEOUT};
use posthaste_core::time::{Span, Timestamp};
use posthaste_core::validation::Fields;
use posthaste_egress::refuse_self_call;
use posthaste_store::Tenant;
use serde_json::{Map, Value, json};

use crate::code::Code;
use crate::endpoints::headers;
use crate::events::{EventParser, RequestDraft};
use crate::problem::Problem;
use crate::{App, body_fields};

/// A valid one-off request.
pub(super) struct RequestForm {
    /// The event that carries its body, and its method.
    pub(super) request_draft: RequestDraft,
    /// Its URL.
    pub(super) destination: Destination,
    /// Its custom headers, unencrypted.
    pub(super) headers: Map<String, Value>,
    /// Its retry policy, as the caller wrote it.
    pub(super) retry_policy: Option<Value>,
    /// The time limit of its attempts.
    pub(super) timeout: Option<Span>,
}

/// The fields of the HTTP request, as far as they are valid.
#[derive(Default)]
pub(crate) struct HttpFields {
    /// Its URL.
    pub(crate) destination: Option<Destination>,
    /// The code if the URL is refused.
    pub(crate) refused: Option<Code>,
    /// Its custom headers, unencrypted.
    pub(crate) headers: Map<String, Value>,
    /// Its retry policy, as the caller wrote it.
    pub(crate) retry_policy: Option<Value>,
    /// The time limit of its attempts.
    pub(crate) timeout: Option<Span>,
}

/// Reads the request in `text`. The idempotency key may also be in the headers of the call.
pub(super) fn read(
    app: &App,
    tenant: &Tenant,
    now: Timestamp,
    text: &str,
    call_headers: &HeaderMap,
) -> Result<RequestForm, Problem> {
    let mut reader = EventParser::new(now, app.payload_bytes(tenant));
    let Some(mut request_draft) = reader.request(text, "")? else {
        return reader.finish(None);
    };
    let mut draft = Some(request_draft.draft);
    reader.header(call_headers, &mut draft);
    request_draft.draft = draft.expect("a header does not remove the event");
    let read = read_http(app, tenant, &mut reader, &mut request_draft, "");
    let form = read.destination.map(|destination| RequestForm {
        request_draft,
        destination,
        headers: read.headers,
        retry_policy: read.retry_policy,
        timeout: read.timeout,
    });
    // A refused URL determines the code, even if there are other errors.
    reader.finish_as(form, read.refused.unwrap_or(Code::Invalid))
}

/// Reads the fields of the HTTP request. `path` precedes the field names in errors.
pub(crate) fn read_http(
    app: &App,
    tenant: &Tenant,
    reader: &mut EventParser,
    request_draft: &mut RequestDraft,
    path: &str,
) -> HttpFields {
    let http_fields = std::mem::take(&mut request_draft.http_fields);
    let mut read = HttpFields::default();
    let mut policy = None;
    reader.read_http_fields(&http_fields, path, |fields| {
        read_url(app, fields, &mut read);
        read.headers = headers::read(fields).unwrap_or_default();
        policy = body_fields::policy(fields, "retry_policy");
        read.timeout = fields.span("timeout", MIN_TIMEOUT, MAX_TIMEOUT);
    });
    if let Some((written, policy)) = policy {
        let field = format!("{path}retry_policy");
        app.check_policy(&policy, tenant, &field, reader.errors_mut());
        read.retry_policy = Some(written);
    }
    read
}

fn read_url(app: &App, fields: &mut Fields<'_, '_>, read: &mut HttpFields) {
    fields.need("url");
    let Some(url) = fields.text("url") else {
        return;
    };
    let rules = &app.settings.egress_rules;
    let vet = |to: Destination| -> Result<Destination, DestinationError> {
        refuse_self_call(rules, &to)?;
        Ok(to)
    };
    match Destination::parse(url, rules).and_then(vet) {
        Ok(destination) => read.destination = Some(destination),
        Err(error) => {
            fields.wrong("url", error.to_string());
            read.refused = Some(Code::for_destination_error(&error));
        }
    }
}

impl RequestForm {
    /// Returns the fingerprint of the request, if it has an idempotency key.
    pub(super) fn fingerprint(&self) -> Option<Fingerprint> {
        let http = json!({
            "method": self.request_draft.method.name(),
            "url": self.destination.as_str(),
            "headers": self.headers,
            "retry_policy": self.retry_policy,
            "timeout": self.timeout,
        });
        let http = http.to_string();
        self.request_draft.draft.fingerprint(&[http.as_bytes()])
    }
}
