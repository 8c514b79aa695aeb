//! Routes and schemas of one-off requests.

use posthaste_core::delivery::RequestMethod;
use serde_json::{Value, json};

use super::{create, signing_secret};
use crate::code::Code;
use crate::endpoints::headers::MAX_HEADERS;
use crate::events::{ACCEPT_REFUSALS, short_text};
use crate::resources::Schema;
use crate::resources::schema::reference;
use crate::route::{Access, Content, Group, RequestBody, Route, Verb, run_to_completion, success};

pub(crate) static GROUP: Group = Group {
    name: "Requests",
    about: "One-off requests: deliveries to a URL that is no endpoint, with any of five methods, now or later. They are retried, shown and cancelled like other deliveries, and signed with the tenant's own secret.",
    routes: &[
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/requests",
            name: "create_request",
            summary: "Accepts a one-off request. It is on stable storage when the answer comes. Limits and breaker hold per tenant and origin (scheme, host and port). The idempotency key may also come in the header `Idempotency-Key`.",
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
                    "The request was accepted before, under the same idempotency key; this is its delivery as it was accepted.",
                    Content::Json("Delivery"),
                ),
            ],
            fails: REFUSALS,
            handler: |call| Box::pin(create(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/signing-secret",
            name: "get_signing_secret",
            summary: "Shows the secret that signs the tenant's one-off requests, and earlier ones that still sign along. It is made when it is first needed.",
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
            summary: "Changes the tenant's signing secret for a fresh one of either kind, or for one brought along. Earlier ones sign along for `overlap`, 24 hours unless said otherwise; `0s` ends them at once.",
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

const REFUSALS: &[(u16, Code)] = &{
    let mut refusals = [(409, Code::Contended); ACCEPT_REFUSALS.len() + 3];
    let mut index = 0;
    while index < ACCEPT_REFUSALS.len() {
        refusals[index] = ACCEPT_REFUSALS[index];
        index += 1;
    }
    refusals[index] = (422, Code::UnsafeDestination);
    refusals[index + 1] = (422, Code::InvalidUrl);
    refusals
};

fn schemas() -> Vec<Schema> {
    vec![Schema {
        name: "NewRequest",
        shape: new_request(),
    }]
}

pub(crate) fn new_request() -> Value {
    json!({
        "type": "object",
        "description": "Either `payload`, or `body_base64` with its `content_type`. A GET or DELETE may have neither.",
        "required": ["url"],
        "properties": {
            "url": {"type": "string", "description": "Where it goes. The rules for the URLs of endpoints apply."},
            "method": {
                "enum": RequestMethod::ALL.map(RequestMethod::name).into_iter().map(Value::from)
                    .chain([Value::Null]).collect::<Vec<Value>>(),
                "description": "`POST` if absent.",
            },
            "headers": {
                "type": ["object", "null"], "maxProperties": MAX_HEADERS,
                "additionalProperties": {"type": "string"},
            },
            "payload": {"description": "Any JSON value. It is sent byte for byte as it was received."},
            "body_base64": {
                "type": ["string", "null"], "contentEncoding": "base64", "description": "Raw bytes.",
            },
            "content_type": short_text("What the raw bytes are; `application/octet-stream` if absent."),
            "deliver_at": {
                "type": ["string", "null"], "format": "date-time",
                "description": "Not before this. At most a year ahead; what lies in the past is now.",
            },
            "delay": {
                "type": ["string", "null"],
                "description": "In place of `deliver_at`: so long after it was accepted, such as `10m`. At most a year.",
            },
            "retry_policy": {"anyOf": [reference("RetryPolicy"), {"type": "null"}]},
            "timeout": {"type": ["string", "null"], "description": "Time limit of each attempt, from `1s` to `60s`."},
            "idempotency_key": short_text("The same key makes one request. Events have the same keys."),
            "ordering_key": short_text("Requests to one origin with the same key are sent one after the other."),
        },
        "additionalProperties": false,
        "examples": [{
            "url": "https://api.example.com/orders/42", "method": "PUT",
            "payload": {"status": "shipped"}, "delay": "10m",
        }],
    })
}
