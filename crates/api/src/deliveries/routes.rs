//! Routes of deliveries, with their parameters.
//!
//! [`GROUP`] is their part of the route table. The handlers are in the parent module, and the schemas beside the types
//! in [`resources`](crate::resources).

use super::id_prefix::MIN_CHARS;
use super::{cancel, get, list, retry};
use crate::code::Code;
use crate::events::{EVENT_TYPE, SINCE, UNTIL};
use crate::resources::schema::{endpoint_id, event_id, failure_kind, matching, reference};
use crate::resources::{delivery_schemas, patterns};
use crate::route::{
    Access, Content, Group, LIMIT, RequestBody, Route, Verb, cursor, parameter, run_to_completion,
    success,
};
use posthaste_core::id::DeliveryId;

pub(crate) static GROUP: Group = Group {
    name: "Deliveries",
    about: "A delivery is one event for one endpoint, with the attempts made and those expected.",
    routes: &[
        Route {
            verb: Verb::Get,
            path: "/v1/tenants/{tenant}/deliveries",
            name: "list_deliveries",
            summary: "Lists deliveries, newest first.",
            access: Access::Tenant,
            query: &[
                LIMIT,
                cursor::<DeliveryId>(),
                parameter("status", "Only deliveries with this status.", || {
                    reference("DeliveryStatus")
                }),
                parameter("endpoint", "Only deliveries to this endpoint.", endpoint_id),
                parameter("event", "Only deliveries of this event.", event_id),
                parameter(
                    "id",
                    "Only deliveries with this id: of a delivery, event or endpoint; or the beginning of a delivery or event id with at least 4 characters after the prefix.",
                    || matching(patterns::id_or_beginning(MIN_CHARS)),
                ),
                EVENT_TYPE,
                parameter(
                    "error_kind",
                    "Only deliveries whose last attempt failed with this kind.",
                    failure_kind,
                ),
                SINCE,
                UNTIL,
            ],
            request_body: RequestBody::Nothing,
            responses: &[success(
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
            summary: "Returns a delivery, its attempts, and the attempts expected if they fail.",
            access: Access::Tenant,
            query: &[],
            request_body: RequestBody::Nothing,
            responses: &[success(200, "The delivery.", Content::Json("Delivery"))],
            fails: &[],
            handler: |call| Box::pin(get(call)),
        },
        Route {
            verb: Verb::Post,
            path: "/v1/tenants/{tenant}/deliveries/{delivery}/retry",
            name: "retry_delivery",
            summary: "Retries a delivery now: a waiting delivery is sent immediately, and a finished one starts over.",
            access: Access::Tenant,
            query: &[],
            request_body: RequestBody::OptionalJson("Nothing"),
            responses: &[success(
                202,
                "The delivery is due now.",
                Content::Json("Delivery"),
            )],
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
            summary: "Cancels a waiting delivery. A cancelled delivery is not changed.",
            access: Access::Tenant,
            query: &[],
            request_body: RequestBody::OptionalJson("Nothing"),
            responses: &[success(
                200,
                "The delivery is cancelled. No more attempts are made.",
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
