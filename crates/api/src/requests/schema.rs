//! Routes and schemas of one-off requests.

use serde_json::{Value, json};

use super::{create, signing_secret};
use crate::code::Code;
use crate::endpoints::schemas::{headers, url};
use crate::events::{ACCEPT_ERRORS, body_base64, content_type, contradictions, delay, short_text};
use crate::resources::schema::{described, nullable, reference, request_method};
use crate::resources::{Schema, timeout_schema};
use crate::route::{Access, Content, Group, RequestBody, Route, Verb, run_to_completion, success};

pub(crate) static GROUP: Group = Group {
    name: "Requests",
    about: "One-off requests: deliveries to a URL without a registered endpoint, with any of five methods, now or later. They are retried, listed and cancelled like other deliveries, and signed with the tenant's signing secret.",
    routes: &[
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/requests",
            name: "create_request",
            summary: "Accepts a one-off request. It is persisted before the response. Limits and the circuit breaker apply per tenant and origin (scheme, host and port). The idempotency key may also be sent in the header `Idempotency-Key`.",
            access: Access::TenantKey,
            query: &[],
            request_body: RequestBody::Json("NewRequest"),
            responses: &[
                success(
                    202,
                    "The request is accepted; this is its delivery.",
                    Content::Json("Delivery"),
                ),
                success(
                    200,
                    "The request was accepted before with the same idempotency key; this is the original response.",
                    Content::Json("Delivery"),
                ),
            ],
            fails: ERRORS,
            handler: |call| Box::pin(create(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/signing-secret",
            name: "get_signing_secret",
            summary: "Returns the secret that signs the tenant's one-off requests, and previous secrets that are still valid. It is generated when it is first needed.",
            access: Access::TenantKey,
            query: &[],
            request_body: RequestBody::Nothing,
            responses: &[success(200, "The secret.", Content::Json("EndpointSecret"))],
            fails: &[(409, Code::Contended)],
            handler: |call| Box::pin(signing_secret::show(call)),
        },
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/signing-secret/rotate",
            name: "rotate_signing_secret",
            summary: "Replaces the tenant's signing secret with a generated or an imported one. Previous secrets stay valid for `overlap`, by default 24 hours; `0s` invalidates them immediately.",
            access: Access::TenantKey,
            query: &[],
            request_body: RequestBody::OptionalJson("Rotation"),
            responses: &[success(200, "The secret.", Content::Json("EndpointSecret"))],
            fails: &[(409, Code::WrongState), (409, Code::Contended)],
            handler: |call| run_to_completion(signing_secret::rotate(call)),
        },
    ],
    schemas,
};

const ERRORS: &[(u16, Code)] = &{
    let mut errors = [(409, Code::Contended); ACCEPT_ERRORS.len() + 4];
    let mut index = 0;
    while index < ACCEPT_ERRORS.len() {
        errors[index] = ACCEPT_ERRORS[index];
        index += 1;
    }
    errors[index] = (422, Code::UnsafeDestination);
    errors[index + 1] = (422, Code::InvalidUrl);
    errors[index + 2] = (503, Code::UpgradeInProgress);
    errors
};

fn schemas() -> Vec<Schema> {
    vec![Schema {
        name: "NewRequest",
        shape: new_request(),
    }]
}

pub(crate) fn new_request() -> Value {
    let [two_bodies, type_of_json, two_times] = contradictions();
    let no_body = json!({
        "not": {"required": ["payload"]},
        "properties": {
            "body_base64": {"type": "null"},
            "method": {"not": {"enum": ["GET", "DELETE"]}},
        },
    });
    json!({
        "type": "object",
        "description": "Either `payload`, or `body_base64` with its `content_type`. A GET or DELETE may have neither.",
        "not": {"anyOf": [two_bodies, type_of_json, two_times, no_body]},
        "required": ["url"],
        "properties": {
            "url": described(url(), "The destination. The same rules apply as for the URL of an endpoint."),
            "method": described(nullable(request_method()), "Default `POST`."),
            "headers": headers(),
            "payload": {"description": "Any JSON value. It is sent byte for byte as received."},
            "body_base64": body_base64(),
            "content_type": content_type(),
            "deliver_at": {
                "type": ["string", "null"], "format": "date-time",
                "description": "The request is not sent before this time. At most 365 days ahead; a time in the past means now.",
            },
            "delay": delay("The request is not sent before this duration has passed. Cannot be combined with `deliver_at`."),
            "retry_policy": nullable(reference("RetryPolicy")),
            "timeout": described(timeout_schema(), "Maximum duration of each attempt."),
            "idempotency_key": short_text("Requests with the same key create one delivery. Events share the keys."),
            "ordering_key": short_text("Requests to one origin with the same key are sent in order, one at a time."),
        },
        "additionalProperties": false,
        "examples": [{
            "url": "https://api.example.com/orders/42", "method": "PUT",
            "payload": {"status": "shipped"}, "delay": "10m",
        }],
    })
}
