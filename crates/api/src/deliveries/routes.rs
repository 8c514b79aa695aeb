//! Routes of deliveries, with their parameters.
//!
//! [`GROUP`] is their part of the route table. The handlers are in the parent module, and the schemas beside the types
//! in [`resources`](crate::resources).

use posthaste_core::classify::FailureKind;
use posthaste_core::delivery::Status;
use serde_json::json;

use super::{cancel, get, list, retry};
use crate::code::Code;
use crate::events::{EVENT_TYPE, SINCE, UNTIL};
use crate::resources::{STATUSES, delivery_schemas};
use crate::route::{
    Access, CURSOR, Content, Group, LIMIT, RequestBody, Route, Verb, parameter, run_to_completion,
    success,
};

pub(crate) static GROUP: Group = Group {
    name: "Deliveries",
    about: "One event on its way to one endpoint: every attempt that was made, and every one still to come.",
    routes: &[
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/deliveries",
            name: "list_deliveries",
            summary: "Lists deliveries, the newest first.",
            access: Access::Tenant,
            query: &[
                LIMIT,
                CURSOR,
                parameter(
                    "status",
                    "Only with this status.",
                    || json!({"enum": STATUSES.map(Status::name)}),
                ),
                parameter(
                    "endpoint",
                    "Only to this endpoint.",
                    || json!({"type": "string"}),
                ),
                parameter("event", "Only of this event.", || json!({"type": "string"})),
                parameter(
                    "id",
                    "Only those of this id: a delivery's, an event's or an endpoint's; or the beginning of a delivery's or an event's, of at least 4 characters after the prefix.",
                    || json!({"type": "string"}),
                ),
                EVENT_TYPE,
                parameter(
                    "error_kind",
                    "Only those that failed last for this.",
                    || json!({"enum": FailureKind::ALL.map(FailureKind::name)}),
                ),
                SINCE,
                UNTIL,
            ],
            takes: RequestBody::Nothing,
            gives: &[success(
                200,
                "A page of deliveries.",
                Content::List("DeliverySummary"),
            )],
            fails: &[],
            handler: |call| Box::pin(list(call)),
        },
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/deliveries/{delivery}",
            name: "get_delivery",
            summary: "Shows a delivery, its attempts, and those still to come if they fail.",
            access: Access::Tenant,
            query: &[],
            takes: RequestBody::Nothing,
            gives: &[success(200, "The delivery.", Content::Json("Delivery"))],
            fails: &[],
            handler: |call| Box::pin(get(call)),
        },
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/deliveries/{delivery}/retry",
            name: "retry_delivery",
            summary: "Tries a delivery again now: one that waits need not wait, one that has ended begins all over.",
            access: Access::Tenant,
            query: &[],
            takes: RequestBody::OptionalJson("Nothing"),
            gives: &[success(202, "It is due now.", Content::Json("Delivery"))],
            fails: &[
                (409, Code::DeliveryInProgress),
                (409, Code::EndpointDisabled),
                (409, Code::EndpointDeleted),
                (409, Code::PayloadGone),
            ],
            handler: |call| run_to_completion(retry(call)),
        },
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/deliveries/{delivery}/cancel",
            name: "cancel_delivery",
            summary: "Calls a delivery off that waits. One that was called off already stays so.",
            access: Access::Tenant,
            query: &[],
            takes: RequestBody::OptionalJson("Nothing"),
            gives: &[success(
                200,
                "No attempt of it begins any more.",
                Content::Json("Delivery"),
            )],
            fails: &[
                (409, Code::DeliveryInProgress),
                (409, Code::AlreadyFinished),
            ],
            handler: |call| Box::pin(cancel(call)),
        },
    ],
    schemas: delivery_schemas,
};
